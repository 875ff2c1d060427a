package dispatch_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// turns panics until it is told not to.
type turns struct{ well atomic.Bool }

func (p *turns) panic() {
	if !p.well.Load() {
		panic((*fs.PathError)(nil))
	}
}

func TestFunctionOfOptionsThatPanicsDoesWhatItsDocumentationSays(t *testing.T) {
	for name, c := range map[string]struct {
		option func(o *dispatch.Options, p *turns)
		sick   outbox.Status // of a row, while it panics
	}{
		"Held": {func(o *dispatch.Options, p *turns) {
			o.Held = func() []uuid.UUID { p.panic(); return nil }
		}, outbox.Pending},
		"HeldContext": {func(o *dispatch.Options, p *turns) {
			o.HeldContext = func(context.Context) ([]uuid.UUID, error) { p.panic(); return nil, nil }
		}, outbox.Pending},
		"HeldContext's error": {func(o *dispatch.Options, p *turns) {
			o.HeldContext = func(context.Context) ([]uuid.UUID, error) {
				if p.well.Load() {
					return nil, nil
				}
				return nil, (*fs.PathError)(nil)
			}
		}, outbox.Pending},
		"MaxPerNamespace": {func(o *dispatch.Options, p *turns) {
			o.MaxPerNamespace = func(string) int { p.panic(); return 1 }
		}, outbox.Pending},
		"Now": {func(o *dispatch.Options, p *turns) {
			o.Now = func() time.Time { p.panic(); return time.Now() }
		}, outbox.Done},
		"Observer.Claimed": {func(o *dispatch.Options, p *turns) {
			o.Observer.Claimed = func([]outbox.Row) { p.panic() }
		}, outbox.Done},
		"Observer.Started": {func(o *dispatch.Options, p *turns) {
			o.Observer.Started = func(context.Context, outbox.Row) context.Context { p.panic(); return nil }
		}, outbox.Done},
		"Observer.Settled": {func(o *dispatch.Options, p *turns) {
			o.Observer.Settled = func(context.Context, outbox.Row, dispatch.Outcome, time.Duration, error) { p.panic() }
		}, outbox.Done},
		"Observer.Recovered": {func(o *dispatch.Options, p *turns) {
			o.Observer.Recovered = func(outbox.Row, dispatch.Outcome) { p.panic() }
		}, outbox.Done},
		"Observer.StoreError": {func(o *dispatch.Options, p *turns) {
			o.Observer.StoreError = func(string, error) { p.panic() }
			o.Terminal = func(context.Context, uuid.UUID) (bool, error) { return false, (*fs.PathError)(nil) }
		}, outbox.Done},
		"Logger": {func(o *dispatch.Options, p *turns) {
			o.Logger = slog.New(sick{p})
		}, outbox.Done},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				keys := b.append(3, nil)
				stale := b.append(1, func(row *outbox.Row) { row.Status, row.ClaimedAt = outbox.Claimed, time.Now().Add(-time.Hour) })
				p := &turns{}
				var seen atomic.Int32
				opts := dispatch.Options{PollInterval: time.Hour}
				c.option(&opts, p)
				b.run(func(ctx context.Context, _ outbox.Row) error { seen.Add(1); return ctx.Err() }, opts)
				time.Sleep(time.Hour)
				synctest.Wait()
				b.requireStatus(c.sick, keys...)
				p.well.Store(true)
				b.append(1, nil)
				time.Sleep(time.Minute)
				synctest.Wait()
				b.requireStatus(outbox.Done, keys...)
				if name != "Observer.StoreError" {
					b.requireStatus(outbox.Done, stale...)
				}
			})
		})
	}
}

// sick is a log handler that panics.
type sick struct{ *turns }

func (s sick) Enabled(context.Context, slog.Level) bool  { return true }
func (s sick) Handle(context.Context, slog.Record) error { s.panic(); return nil }
func (s sick) WithAttrs([]slog.Attr) slog.Handler        { return s }
func (s sick) WithGroup(string) slog.Handler             { return s }

func TestBackoffThatPanicsIsTheDefault(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(1, nil)
		b.run(failing(errTest), dispatch.Options{Backoff: func(uint32) time.Duration { panic("ouch") }})
		synctest.Wait()
		require.Greater(t, time.Until(b.get(keys[0]).VisibleAfter), 400*time.Millisecond)
		require.LessOrEqual(t, time.Until(b.get(keys[0]).VisibleAfter), time.Second)
	})
}

func TestTerminalThatPanicsTakesNothingBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		stale := b.append(1, func(row *outbox.Row) { row.Status, row.ClaimedAt = outbox.Claimed, time.Now().Add(-time.Hour) })
		p := &turns{}
		b.run(nothing, dispatch.Options{Terminal: func(context.Context, uuid.UUID) (bool, error) { p.panic(); return false, nil }})
		time.Sleep(time.Hour)
		b.requireStatus(outbox.Claimed, stale...)
		p.well.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		b.requireStatus(outbox.Done, stale...)
	})
}

func TestClockOfTheStoreThatPanicsIsSurvived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p turns
		p.well.Store(true)
		store, err := outbox.Open(t.Context(), "libsql", ":memory:", &outbox.Options{Logger: quiet(), Now: func() time.Time { p.panic(); return time.Now() }})
		require.NoError(t, err)
		b := &bench{t: t, store: store}
		keys := b.append(3, nil)
		b.run(func(context.Context, outbox.Row) error { p.well.Store(false); return nil }, dispatch.Options{Concurrency: 1})
		time.Sleep(time.Hour)
		p.well.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		p.well.Store(false)
		p.well.Store(true)
		b.requireStatus(outbox.Done, keys[0])
		b.end()
		require.NoError(t, store.Close())
	})
}
func TestNothingIsClaimedWhileItCannotBeToldWhatIsHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		held, open := b.append(2, nil), b.append(1, nil)
		held2 := b.append(1, nil)
		workflow, workflow2 := b.get(held[0]).WorkflowID, b.get(held2[0]).WorkflowID
		var failing atomic.Bool
		failing.Store(true)
		var seen recorder
		b.run(nothing, dispatch.Options{
			Observer: seen.observer(),
			Held:     func() []uuid.UUID { return []uuid.UUID{workflow2} },
			HeldContext: func(ctx context.Context) ([]uuid.UUID, error) {
				if failing.Load() {
					return nil, errors.Join(outbox.ErrClosed, ctx.Err()) // another store's
				}
				return []uuid.UUID{workflow}, nil
			},
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		b.requireStatus(outbox.Pending, append(held, open[0], held2[0])...)
		seen.mu.Lock()
		require.InDelta(t, 15, seen.errors["held"], 10, "at intervals that grow to 10 s")
		seen.mu.Unlock()
		failing.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		b.requireStatus(outbox.Done, open...)
		b.requireStatus(outbox.Pending, append(held, held2[0])...)
	})
}
