package dispatch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestErrorsOfTheStoreAreSurvivedWithoutSpinning(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		exec := func(statement string) {
			require.NoError(t, b.store.Update(t.Context(), func(ctx context.Context, tx outbox.Tx) error {
				_, err := tx.ExecContext(ctx, statement)
				return err
			}))
		}
		exec(`CREATE TRIGGER broken BEFORE UPDATE ON outbox BEGIN SELECT RAISE(ABORT, 'broken'); END`)
		keys := b.append(5, nil)
		var seen recorder
		b.run(nothing, dispatch.Options{Observer: seen.observer()})
		time.Sleep(10 * time.Minute)
		b.requireStatus(outbox.Pending, keys...)
		seen.mu.Lock()
		tries := seen.errors["claim"]
		seen.mu.Unlock()
		require.Greater(t, tries, 30)
		require.Less(t, tries, 300, "in ten minutes")
		exec(`DROP TRIGGER broken`)
		time.Sleep(time.Minute)
		b.requireStatus(outbox.Done, keys...)
	})
}

func TestOutcomeIsStoredHoweverOftenTheStoreFails(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		exec := func(statement string) {
			require.NoError(t, b.store.Update(t.Context(), func(ctx context.Context, tx outbox.Tx) error {
				_, err := tx.ExecContext(ctx, statement)
				return err
			}))
		}
		exec(`CREATE TRIGGER broken BEFORE UPDATE ON outbox WHEN NEW.status = 'done' BEGIN SELECT RAISE(ABORT, 'broken'); END`)
		keys := b.append(5, nil)
		var seen recorder
		handled := 0
		b.run(func(context.Context, outbox.Row) error { handled++; return nil }, dispatch.Options{Concurrency: 1, Observer: seen.observer()})
		time.Sleep(10 * time.Minute)
		require.Equal(t, 1, handled, "its row is held until its outcome is stored, however long that takes")
		exec(`DROP TRIGGER broken`)
		time.Sleep(time.Minute)
		b.requireStatus(outbox.Done, keys...)
		require.Equal(t, 5, handled)
	})
}

func TestClosedStoreEndsRun(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		other, err := outbox.Open(t.Context(), "libsql", ":memory:", nil)
		require.NoError(t, err)
		dispatcher := dispatch.New(other, nothing, &dispatch.Options{Logger: quiet()})
		ended := make(chan error)
		go func() { ended <- dispatcher.Run(t.Context()) }()
		synctest.Wait()
		require.ErrorContains(t, dispatcher.Run(t.Context()), "already")
		require.NoError(t, other.Close())
		require.ErrorIs(t, <-ended, outbox.ErrClosed)
		require.Error(t, dispatch.New(b.store, nil, nil).Run(t.Context()))
	})
}

func TestClosedStoreEndsRunAlsoWhileAllHandlersAreBusy(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		other, err := outbox.Open(t.Context(), "libsql", ":memory:", nil)
		require.NoError(t, err)
		_, err = other.Append(t.Context(), outbox.Row{WorkflowID: uuid.New(), ActivityType: "test"})
		require.NoError(t, err)
		dispatcher := dispatch.New(other, func(ctx context.Context, _ outbox.Row) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}, &dispatch.Options{Logger: quiet(), Concurrency: 1, ShutdownTimeout: time.Second})
		ended := make(chan error)
		go func() { ended <- dispatcher.Run(t.Context()) }()
		synctest.Wait()
		begun := time.Now()
		require.NoError(t, other.Close())
		require.ErrorIs(t, <-ended, outbox.ErrClosed)
		require.LessOrEqual(t, time.Since(begun), 22*time.Second, "a third of the lease, and the shutdown")
	})
}
