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
	"github.com/stretchr/testify/require"
)

func TestShutdownLetsHandlersFinishAndStoresTheirOutcomes(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(6, nil)
		b.run(func(ctx context.Context, row outbox.Row) error {
			time.Sleep(5 * time.Second)
			if err := ctx.Err(); err != nil {
				return err
			}
			if row.Ordinal == 1 {
				return errTest
			}
			return nil
		}, dispatch.Options{Concurrency: 3, ShutdownTimeout: 8 * time.Second})
		synctest.Wait()
		begun := time.Now()
		b.end()
		require.Equal(t, 5*time.Second, time.Since(begun), "no longer than the handlers took")
		b.requireStatus(outbox.Done, keys[0], keys[2])
		require.Equal(t, uint32(1), b.get(keys[1]).Attempt, "an error of its own spends an attempt")
		b.requireStatus(outbox.Pending, keys[3:]...)
		require.Zero(t, b.get(keys[3]).Fence, "nothing more was claimed")
	})
}

func TestShutdownGivesBackWhatDoesNotFinishWithoutSpendingAnAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		earlier := b.append(1, func(row *outbox.Row) { row.Attempt = 4; row.LastError = "of before" })
		finishing := b.append(1, func(row *outbox.Row) { row.ActivityType = "finishes" })
		accepted := b.append(1, func(row *outbox.Row) { row.ActivityType = "accepts" })
		permanent := b.append(1, func(row *outbox.Row) { row.ActivityType = "gives up" })
		var causes []error
		var seen recorder
		b.run(func(ctx context.Context, row outbox.Row) error {
			<-ctx.Done()
			switch row.ActivityType {
			case "finishes":
				return nil
			case "accepts":
				return dispatch.Accepted
			case "gives up":
				return dispatch.Permanent(ctx.Err())
			}
			causes = append(causes, context.Cause(ctx))
			return ctx.Err()
		}, dispatch.Options{ShutdownTimeout: 3 * time.Second, Observer: seen.observer()})
		synctest.Wait()
		begun := time.Now()
		b.end()
		require.Equal(t, 3*time.Second, time.Since(begun))
		require.Equal(t, []error{dispatch.ErrShutdown}, causes)
		row := b.get(earlier[0])
		require.Equal(t, outbox.Pending, row.Status)
		require.Equal(t, uint32(4), row.Attempt)
		require.Equal(t, "of before", row.LastError)
		require.False(t, row.VisibleAfter.After(time.Now()), "at once")
		b.requireStatus(outbox.Done, finishing...)
		b.requireStatus(outbox.Claimed, accepted...)
		b.requireStatus(outbox.Pending, permanent...)
		require.Equal(t, 2, seen.count(dispatch.Returned))
	})
}

func TestShutdownLeavesHandlersBehindThatDoNotReturn(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(2, nil)
		var seen recorder
		release := make(chan struct{})
		b.run(func(_ context.Context, row outbox.Row) error {
			if row.Ordinal == 0 {
				<-release
			}
			return errors.New("too late")
		}, dispatch.Options{ShutdownTimeout: 3 * time.Second, Observer: seen.observer(), Backoff: func(uint32) time.Duration { return time.Hour }})
		synctest.Wait()
		b.stop()
		require.ErrorContains(t, <-b.ended, "1 handlers")
		b.stop = nil
		row := b.get(keys[0])
		require.Equal(t, outbox.Pending, row.Status, "it can be dispatched elsewhere")
		require.Zero(t, row.Attempt)
		close(release)
		synctest.Wait()
		require.Equal(t, row, b.get(keys[0]), "what it returns is ignored")
		require.Equal(t, 1, seen.count(dispatch.Returned))
		require.Equal(t, 1, seen.count(dispatch.Retried))
	})
}

func TestObserverOfAHandlerThatIsLeftBehindIsToldItsContextAndTime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.append(1, nil)
		type mark struct{}
		release := make(chan struct{})
		var marked any
		var took time.Duration
		b.run(func(context.Context, outbox.Row) error {
			<-release
			return nil
		}, dispatch.Options{ShutdownTimeout: 3 * time.Second, Observer: dispatch.Observer{
			Started: func(ctx context.Context, _ outbox.Row) context.Context {
				return context.WithValue(ctx, mark{}, "started")
			},
			Settled: func(ctx context.Context, _ outbox.Row, _ dispatch.Outcome, handling time.Duration, _ error) {
				marked, took = ctx.Value(mark{}), handling
			},
		}})
		synctest.Wait()
		b.stop()
		require.Error(t, <-b.ended)
		b.stop = nil
		close(release)
		require.Equal(t, "started", marked)
		require.Equal(t, 4*time.Second, took, "until it was left")
	})
}

func TestRunReturnsWhenTheObserverHasHeardOfEveryOutcome(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.append(3, nil)
		var heard atomic.Int32
		b.run(nothing, dispatch.Options{Observer: dispatch.Observer{
			Settled: func(context.Context, outbox.Row, dispatch.Outcome, time.Duration, error) {
				time.Sleep(time.Second)
				heard.Add(1)
			},
		}})
		synctest.Wait()
		require.Zero(t, heard.Load())
		b.end()
		require.Equal(t, int32(3), heard.Load())
	})
}

func TestShutdownIsNoErrorOfTheStore(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.append(1, nil)
		var seen recorder
		observer := seen.observer()
		observer.Claimed = func([]outbox.Row) { b.stop() } // before the loop goes to sleep
		b.run(nothing, dispatch.Options{Observer: observer})
		synctest.Wait()
		b.end()
		require.Equal(t, 1, seen.count(dispatch.Completed))
		require.Empty(t, seen.errors)
	})
}

func TestShutdownOfAStoreThatFailsEndsAllTheSame(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(1, nil)
		b.run(func(ctx context.Context, _ outbox.Row) error {
			return b.store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
				_, err := tx.ExecContext(ctx, `CREATE TRIGGER broken BEFORE UPDATE ON outbox BEGIN SELECT RAISE(ABORT, 'broken'); END`)
				return err
			})
		}, dispatch.Options{ShutdownTimeout: 3 * time.Second})
		time.Sleep(time.Minute)
		begun := time.Now()
		b.stop()
		require.Error(t, <-b.ended)
		b.stop = nil
		require.LessOrEqual(t, time.Since(begun), 10*time.Second)
		b.requireStatus(outbox.Claimed, keys...)
		require.NoError(t, b.store.Update(t.Context(), func(ctx context.Context, tx outbox.Tx) error {
			_, err := tx.ExecContext(ctx, `DROP TRIGGER broken`)
			return err
		}))
	})
}

func TestShutdownStoresWhatHandlersReturnedRatherThanGiveTheirRowsBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		exec := func(statement string) {
			require.NoError(t, b.store.Update(t.Context(), func(ctx context.Context, tx outbox.Tx) error {
				_, err := tx.ExecContext(ctx, statement)
				return err
			}))
		}
		exec(`CREATE TRIGGER broken BEFORE UPDATE ON outbox WHEN NEW.status = 'done' BEGIN SELECT RAISE(ABORT, 'broken'); END`)
		keys := b.append(1, nil)
		tried := make(chan struct{}, 100)
		var seen recorder
		observer := seen.observer()
		observer.StoreError = func(string, error) { tried <- struct{}{} }
		b.run(nothing, dispatch.Options{ShutdownTimeout: time.Nanosecond, Observer: observer})
		for range 20 {
			<-tried
		}
		exec(`DROP TRIGGER broken`) // the next try is more than two seconds away
		b.end()
		b.requireStatus(outbox.Done, keys...)
		require.Equal(t, 1, seen.count(dispatch.Completed))
	})
}

func TestRowThatIsGivenBackKeepsItsPlace(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		due := time.Now().Add(-time.Hour)
		keys := b.append(1, func(row *outbox.Row) { row.VisibleAfter = due })
		b.run(func(ctx context.Context, _ outbox.Row) error {
			<-ctx.Done()
			return ctx.Err()
		}, dispatch.Options{})
		synctest.Wait()
		b.end()
		require.Equal(t, due.UTC(), b.get(keys[0]).VisibleAfter)
	})
}

func TestDispatcherRunsAgainAfterItWasStopped(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		dispatcher := dispatch.New(b.store, nothing, &dispatch.Options{Logger: quiet()})
		for range 3 {
			keys := b.append(1, nil)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- dispatcher.Run(ctx) }()
			synctest.Wait()
			b.requireStatus(outbox.Done, keys...)
			stop()
			require.NoError(t, <-ended)
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		require.NoError(t, dispatcher.Run(ctx), "a context that has ended before")
	})
}
