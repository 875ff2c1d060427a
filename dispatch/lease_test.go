package dispatch_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestClaimOfARunningHandlerIsExtended(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(1, nil)
		runs := 0
		b.run(func(ctx context.Context, _ outbox.Row) error {
			runs++
			time.Sleep(time.Hour)
			return ctx.Err()
		}, dispatch.Options{Lease: time.Minute})
		for range 59 {
			time.Sleep(time.Minute)
			stale, err := b.store.ListStale(t.Context(), time.Now().Add(-time.Minute), 1)
			require.NoError(t, err)
			require.Empty(t, stale)
		}
		time.Sleep(2 * time.Minute)
		b.requireStatus(outbox.Done, keys...)
		require.Equal(t, 1, runs)
	})
}

func TestLostClaimEndsTheHandlersContextAndDropsItsOutcome(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(1, nil)
		var seen recorder
		var cause error
		b.run(func(ctx context.Context, row outbox.Row) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return nil
		}, dispatch.Options{Lease: time.Minute, Observer: seen.observer()})
		synctest.Wait()
		require.NoError(t, b.store.Cancel(t.Context(), outbox.Ref{DispatchKey: keys[0]}))
		time.Sleep(21 * time.Second) // a third of the lease
		synctest.Wait()
		require.ErrorIs(t, cause, outbox.ErrClaimLost)
		b.requireStatus(outbox.Cancelled, keys...)
		require.Equal(t, 1, seen.count(dispatch.Lost))
	})
}

func TestHandlerThatOutlivesItsClaimDoesNotEndItsSuccessor(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(1, nil)
		release := make(chan struct{})
		var seen recorder
		b.run(func(ctx context.Context, row outbox.Row) error {
			if row.Fence == 1 {
				<-release // whatever becomes of ctx
				return nil
			}
			select {
			case <-time.After(10 * time.Minute):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}, dispatch.Options{Lease: time.Minute, Observer: seen.observer()})
		synctest.Wait()
		require.NoError(t, b.store.Rearm(t.Context(), b.get(keys[0])))
		time.Sleep(time.Hour)
		b.requireStatus(outbox.Done, keys...)
		require.Equal(t, int64(3), b.get(keys[0]).Fence, "its claim was kept")
		close(release)
		synctest.Wait()
		require.Equal(t, 1, seen.count(dispatch.Lost))
	})
}

func TestOutcomeOfAHandlerThatLostItsClaimUnnoticedIsFenced(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(1, nil)
		var seen recorder
		b.run(func(context.Context, outbox.Row) error {
			time.Sleep(time.Second)
			return nil
		}, dispatch.Options{Observer: seen.observer()})
		synctest.Wait()
		require.NoError(t, b.store.Cancel(t.Context(), outbox.Ref{DispatchKey: keys[0]}))
		time.Sleep(2 * time.Second)
		b.requireStatus(outbox.Cancelled, keys...)
		require.Equal(t, 1, seen.count(dispatch.Lost))
	})
}

func TestOutcomeOfAHandlerWhoseClaimWasTakenBackIsDropped(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(1, nil)
		var held atomic.Bool // so that nobody claims the row again
		workflow := b.get(keys[0]).WorkflowID
		b.run(func(ctx context.Context, _ outbox.Row) error {
			held.Store(true)
			<-ctx.Done()
			return nil
		}, dispatch.Options{Lease: time.Minute, Held: func() []uuid.UUID {
			if held.Load() {
				return []uuid.UUID{workflow}
			}
			return nil
		}})
		synctest.Wait()
		_, err := b.store.RearmStale(t.Context(), time.Now().Add(time.Second), time.Time{}, 1)
		require.NoError(t, err)
		time.Sleep(21 * time.Second) // a third of the lease
		synctest.Wait()
		b.requireStatus(outbox.Pending, keys...)
	})
}

func TestHandlerTimeoutEndsTheHandlersContext(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(1, nil)
		b.run(func(ctx context.Context, _ outbox.Row) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}, dispatch.Options{HandlerTimeout: 3 * time.Second})
		time.Sleep(3 * time.Second)
		synctest.Wait()
		row := b.get(keys[0])
		require.Equal(t, uint32(1), row.Attempt)
		require.Equal(t, dispatch.ErrHandlerTimeout.Error(), row.LastError)
	})
}

func TestAcceptedRowIsCompletedByKeyOrDispatchedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(2, nil)
		runs := map[string]int{}
		b.run(func(_ context.Context, row outbox.Row) error {
			runs[row.DispatchKey]++
			return dispatch.Accepted
		}, dispatch.Options{Lease: time.Minute, ReconcileInterval: time.Second, Concurrency: 1})
		time.Sleep(30 * time.Second)
		require.NoError(t, b.store.Complete(t.Context(), outbox.Ref{DispatchKey: keys[0]}))
		time.Sleep(35 * time.Second)
		synctest.Wait()
		require.Equal(t, map[string]int{keys[0]: 1, keys[1]: 2}, runs)
		b.requireStatus(outbox.Done, keys[0])
		b.requireStatus(outbox.Claimed, keys[1])
	})
}
