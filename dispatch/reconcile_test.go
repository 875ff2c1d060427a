package dispatch_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// abandonClaims claims rows as a process does that dies then, some time ago.
func (b *bench) abandonClaims(n int) []outbox.Row {
	b.t.Helper()
	rows, err := b.store.Claim(b.t.Context(), n)
	require.NoError(b.t, err)
	require.Len(b.t, rows, n)
	time.Sleep(5 * time.Minute)
	return rows
}

func TestStaleClaimsAreTakenBackAtTheStartAndRegularly(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(250, nil) // of one instant, more than a page
		b.abandonClaims(250)
		var seen recorder
		b.run(nothing, dispatch.Options{Observer: seen.observer()})
		synctest.Wait()
		b.requireStatus(outbox.Done, keys...)
		require.Equal(t, 250, seen.count("recovered: "+dispatch.Returned))
		require.Zero(t, b.get(keys[0]).Attempt)

		more := b.append(1, func(row *outbox.Row) { row.Status = outbox.Claimed; row.ClaimedAt = time.Now() })
		time.Sleep(59 * time.Second)
		b.requireStatus(outbox.Claimed, more...)
		time.Sleep(time.Minute)
		b.requireStatus(outbox.Done, more...)
	})
}

func TestRowsOfEndedWorkflowsAreSettledAndNotDispatched(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		stale := b.append(2, nil)
		claimed := b.abandonClaims(1)
		pending := b.append(2, nil)
		ended := map[uuid.UUID]bool{claimed[0].WorkflowID: true, b.get(pending[0]).WorkflowID: true}
		live := b.append(2, nil)
		handled := map[string]int{}
		b.run(func(_ context.Context, row outbox.Row) error {
			handled[row.DispatchKey]++
			return nil
		}, dispatch.Options{Concurrency: 1, Terminal: func(_ context.Context, workflow uuid.UUID) (bool, error) { return ended[workflow], nil }})
		time.Sleep(time.Hour)
		synctest.Wait()
		b.requireStatus(outbox.Cancelled, append(stale, pending...)...)
		b.requireStatus(outbox.Done, live...)
		require.Equal(t, map[string]int{live[0]: 1, live[1]: 1}, handled)
	})
}

func TestNothingIsTakenBackWhenAQuestionFails(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a, c := b.append(1, nil), b.append(1, nil)
		b.abandonClaims(2)
		var fails atomic.Bool
		fails.Store(true)
		failing := b.get(c[0]).WorkflowID
		var seen recorder
		b.run(nothing, dispatch.Options{
			ReconcileInterval: time.Minute, Observer: seen.observer(),
			Terminal: func(_ context.Context, workflow uuid.UUID) (bool, error) {
				if workflow == failing && fails.Load() {
					return false, errors.New("no answer")
				}
				return false, nil
			},
		})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		b.requireStatus(outbox.Claimed, a[0], c[0])
		require.InDelta(t, 10, seen.errors["reconcile"], 2)
		fresh := b.append(1, nil)
		synctest.Wait()
		b.requireStatus(outbox.Done, fresh...) // others are dispatched meanwhile
		fails.Store(false)
		time.Sleep(2 * time.Minute)
		b.requireStatus(outbox.Done, a[0], c[0])
	})
}

func TestRowThatKillsItsWorkersBecomesADeadLetter(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(1, func(row *outbox.Row) { row.Attempt = 2 })
		for range 5 { // each a process that dies of it
			b.abandonClaims(1)
			_, err := b.store.RearmStale(t.Context(), time.Now(), time.Time{}, 1)
			require.NoError(t, err)
		}
		b.abandonClaims(1) // the sixth
		var seen recorder
		b.run(nothing, dispatch.Options{MaxClaims: 3, Observer: seen.observer()})
		synctest.Wait()
		row := b.get(keys[0])
		require.Equal(t, outbox.Failed, row.Status)
		require.Equal(t, uint32(2), row.Attempt)
		require.Contains(t, row.LastError, "claimed 4 times")
		require.Equal(t, 1, seen.count("recovered: "+dispatch.Failed))
	})
}

func TestRetriedRowIsNoKiller(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(1, nil)
		b.run(func(_ context.Context, row outbox.Row) error {
			if row.Attempt < 10 {
				return dispatch.RetryNow(errTest)
			}
			if row.Fence == 11 {
				return dispatch.Accepted // and nobody completes it
			}
			return nil
		}, dispatch.Options{MaxClaims: 1})
		time.Sleep(time.Hour)
		b.requireStatus(outbox.Done, keys...)
	})
}

func TestRowThatIsExtendedWhileItsWorkflowIsAskedAboutIsNoKiller(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(1, nil)
		rows := b.abandonClaims(1)
		require.NoError(t, b.store.Retry(t.Context(), rows[0].Ref(), 0, time.Time{}, nil))
		rows = b.abandonClaims(1)
		asked := 0
		b.run(nothing, dispatch.Options{MaxClaims: 1, Terminal: func(ctx context.Context, _ uuid.UUID) (bool, error) {
			if asked++; asked == 1 { // at the start, about all that are live
				return false, nil
			}
			return false, b.store.Extend(ctx, rows[0].Ref()) // its worker was late, but is alive
		}})
		synctest.Wait()
		require.Equal(t, 2, asked)
		b.requireStatus(outbox.Claimed, keys...)
		require.NoError(t, b.store.Complete(t.Context(), rows[0].Ref()))
	})
}

func TestStaleClaimsThatCannotBeTakenBackAreLeftUntilTheNextTime(t *testing.T) {
	for name, c := range map[string]struct {
		statements []string
		want       outbox.Status
	}{
		"a trigger keeps them": {[]string{`CREATE TRIGGER keep BEFORE UPDATE ON outbox WHEN OLD.status = 'claimed' BEGIN SELECT RAISE(IGNORE); END`}, outbox.Claimed},
		"instants are damaged": {[]string{`UPDATE outbox SET claimed_at = replace(claimed_at, '-01-01T', '-02-30T') WHERE ordinal > 50`}, outbox.Done},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				keys := b.append(120, func(row *outbox.Row) {
					row.Status, row.ClaimedAt = outbox.Claimed, time.Date(1999, 1, 1, 0, 0, 0, int(row.Ordinal), time.UTC)
				})
				exec := func(statement string) {
					require.NoError(t, b.store.Update(t.Context(), func(ctx context.Context, tx outbox.Tx) error {
						_, err := tx.ExecContext(ctx, statement)
						return err
					}))
				}
				for _, statement := range c.statements {
					exec(statement)
				}
				asked := 0
				b.run(nothing, dispatch.Options{Terminal: func(context.Context, uuid.UUID) (bool, error) {
					if asked++; asked > 10 {
						b.stop()
					}
					return false, nil
				}})
				synctest.Wait()
				require.LessOrEqual(t, asked, 10)
				b.requireStatus(c.want, keys...)
				exec(`DROP TRIGGER IF EXISTS keep`)
			})
		})
	}
}
