package dispatch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"example.com/outbox/outboxtest"
	"github.com/stretchr/testify/require"
)

// jumpingClock tells the time of the bubble, and jumps as a clock does whose
// machine was suspended or whose time was set: when told, or after so many
// readings.
type jumpingClock struct {
	mu       sync.Mutex
	offset   time.Duration
	readings int // until the next jump, if positive
	jumps    []time.Duration
}

func (c *jumpingClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now().Add(c.offset)
	if c.readings--; c.readings == 0 && len(c.jumps) > 0 {
		c.offset += c.jumps[0]
		c.jumps = c.jumps[1:]
		c.readings = 20
	}
	return now
}

func (c *jumpingClock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
}

// jumpAfter makes the clock jump within a call that reads it for the n-th time.
func (c *jumpingClock) jumpAfter(n int, jumps ...time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readings, c.jumps = n, jumps
}

func inJumpingBubble(t *testing.T, test func(t *testing.T, b *bench, clock *jumpingClock)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpingClock{}
		store, err := outbox.Open(context.Background(), "libsql", ":memory:", &outbox.Options{Logger: quiet(), Now: clock.Now})
		require.NoError(t, err)
		b := &bench{t: t, store: store}
		test(t, b, clock)
		if b.stop != nil {
			b.end()
		}
		outboxtest.Check(t, store)
		require.NoError(t, store.Close())
	})
}

func TestSuspendTakesNothingBackThatThisProcessRuns(t *testing.T) {
	inJumpingBubble(t, func(t *testing.T, b *bench, clock *jumpingClock) {
		keys := b.append(4, nil)
		var seen recorder
		b.run(func(ctx context.Context, _ outbox.Row) error {
			time.Sleep(10 * time.Minute)
			return ctx.Err()
		}, dispatch.Options{Lease: time.Minute, ReconcileInterval: time.Second, Observer: seen.observer()})
		for range 7 {
			time.Sleep(90 * time.Second)
			clock.jump(8 * time.Hour)
		}
		synctest.Wait()
		b.requireStatus(outbox.Done, keys...)
		for _, key := range keys {
			require.Equal(t, int64(1), b.get(key).Fence)
		}
		require.Zero(t, seen.count("recovered: "+dispatch.Returned))
		require.Empty(t, seen.errors)
	})
}

// The clock jumps, forwards and back, at any moment: between any two readings of
// it. Two Dispatchers run on the Store, so that each meets the claims of the other.
func TestNoRowHasTwoHandlersHoweverTheClockJumps(t *testing.T) {
	for round := range 50 {
		random := rand.New(rand.NewPCG(uint64(round), 0))
		inJumpingBubble(t, func(t *testing.T, b *bench, clock *jumpingClock) {
			var mu sync.Mutex
			runs := map[string]int{}
			handler := func(ctx context.Context, row outbox.Row) error {
				mu.Lock()
				runs[row.DispatchKey]++
				takes := time.Duration(random.Int64N(int64(5 * time.Minute)))
				mu.Unlock()
				select {
				case <-time.After(takes):
				case <-ctx.Done():
				}
				return context.Cause(ctx)
			}
			opts := func() dispatch.Options {
				return dispatch.Options{
					Concurrency: 3, Lease: time.Minute, PollInterval: time.Hour,
					ReconcileInterval: time.Duration(5+random.IntN(25)) * time.Second,
				}
			}
			first, second := opts(), opts()
			first.Logger, second.Logger = quiet(), quiet()
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			for _, opts := range []*dispatch.Options{&first, &second} {
				go func() { ended <- dispatch.New(b.store, handler, opts).Run(ctx) }()
			}
			mu.Lock()
			jumps := []time.Duration{8 * time.Hour, 3 * time.Minute, -8 * time.Hour, 8 * time.Hour, 50 * time.Second}
			random.Shuffle(len(jumps), func(i, j int) { jumps[i], jumps[j] = jumps[j], jumps[i] })
			clock.jumpAfter(1+random.IntN(60), jumps...)
			mu.Unlock()
			keys := b.append(12, nil)
			for live := true; live; {
				time.Sleep(10 * time.Minute)
				workflows, err := b.store.UnsettledWorkflows(t.Context())
				require.NoError(t, err)
				live = len(workflows) > 0
			}
			stop()
			require.NoError(t, <-ended)
			require.NoError(t, <-ended)
			mu.Lock()
			defer mu.Unlock()
			for _, key := range keys {
				require.Equal(t, 1, runs[key], fmt.Sprintf("round %d", round))
				require.Equal(t, int64(1), b.get(key).Fence)
			}
			b.requireStatus(outbox.Done, keys...)
		})
	}
}

func TestNothingIsTakenBackWhileOwnClaimsCannotBeExtended(t *testing.T) {
	inJumpingBubble(t, func(t *testing.T, b *bench, clock *jumpingClock) {
		exec := func(statement string) {
			require.NoError(t, b.store.Update(t.Context(), func(ctx context.Context, tx outbox.Tx) error {
				_, err := tx.ExecContext(ctx, statement)
				return err
			}))
		}
		keys := b.append(1, nil)
		b.run(func(ctx context.Context, row outbox.Row) error {
			time.Sleep(time.Hour)
			return ctx.Err()
		}, dispatch.Options{Lease: time.Minute, Concurrency: 1})
		synctest.Wait()
		others := b.append(1, func(row *outbox.Row) { row.Status, row.ClaimedAt = outbox.Claimed, clock.Now() })
		exec(`CREATE TRIGGER broken BEFORE UPDATE ON outbox WHEN OLD.status = NEW.status BEGIN SELECT RAISE(ABORT, 'broken'); END`)
		clock.jump(8 * time.Hour)
		time.Sleep(10 * time.Minute)
		b.requireStatus(outbox.Claimed, keys[0], others[0])
		exec(`DROP TRIGGER broken`)
		time.Sleep(time.Minute)
		b.requireStatus(outbox.Claimed, keys...)
		b.requireStatus(outbox.Pending, others...)
		time.Sleep(2 * time.Hour)
		b.requireStatus(outbox.Done, keys[0])
		require.Equal(t, int64(1), b.get(keys[0]).Fence)
	})
}

func TestClocksThatDifferByMoreThanTheLeaseTakeNothingOfThisProcessBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(1, nil)
		var seen recorder
		b.run(func(ctx context.Context, _ outbox.Row) error {
			time.Sleep(10 * time.Minute)
			return ctx.Err()
		}, dispatch.Options{Now: func() time.Time { return time.Now().Add(time.Hour) }, Observer: seen.observer()})
		time.Sleep(11 * time.Minute)
		b.requireStatus(outbox.Done, keys...)
		require.Equal(t, int64(1), b.get(keys[0]).Fence)
		require.Positive(t, seen.errors["reconcile"], "and it is said")
	})
}
