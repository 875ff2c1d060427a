package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// woken reports whether a value has been sent. Commits send it before they
// return.
func woken(wake <-chan struct{}) bool {
	select {
	case <-wake:
		return true
	default:
		return false
	}
}

func TestSubscribersAreWokenByWhatMayLetARowBeClaimed(t *testing.T) {
	ctx := context.Background()
	store := open(t, ":memory:", nil)
	wake, cancel := store.Subscribe()
	other, cancelOther := store.Subscribe()
	defer cancelOther()
	workflow := uuid.New()
	require.False(t, woken(wake))

	var claimed []outbox.Row
	claim := func() {
		t.Helper()
		rows, err := store.Claim(ctx, 10)
		require.NoError(t, err)
		require.NotEmpty(t, rows)
		claimed = rows
		require.False(t, woken(wake), "a claim wakes nobody")
	}
	for _, step := range []struct {
		name string
		call func() error
	}{
		{"append", func() error { _, err := store.Append(ctx, row(workflow, 0)); return err }},
		{"retry", func() error { claim(); return store.Retry(ctx, claimed[0].Ref(), 1, time.Time{}, nil) }},
		{"rearm", func() error { claim(); return store.Rearm(ctx, row(workflow, 0)) }},
		{"rearm stale", func() error {
			claim()
			_, err := store.RearmStale(ctx, time.Now().Add(time.Hour), time.Time{}, 1)
			return err
		}},
		{"requeue", func() error {
			claim()
			require.NoError(t, store.Fail(ctx, claimed[0].Ref(), errors.New("dead")))
			require.False(t, woken(wake), "a dead letter wakes nobody")
			_, err := store.Requeue(ctx, claimed[0].DispatchKey)
			return err
		}},
		{"update", func() error {
			return store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
				_, err := store.AppendTx(ctx, tx, row(workflow, 1))
				woken(wake)
				return err
			})
		}},
	} {
		require.NoError(t, step.call(), step.name)
		require.True(t, woken(wake), step.name)
		require.False(t, woken(wake), "%s: once", step.name)
	}
	require.True(t, woken(other), "each subscriber has its own, and many that were not received are one")
	require.False(t, woken(other))

	cancel()
	_, err := store.Append(ctx, row(workflow, 2))
	require.NoError(t, err)
	require.False(t, woken(wake))
}

func TestWatchSeesCommitsOfOthers(t *testing.T) {
	ctx := context.Background()
	name := "file:" + filepath.Join(t.TempDir(), "outbox.db")
	store, other := open(t, name, nil), open(t, name, nil)
	host, err := sql.Open("libsql", name)
	require.NoError(t, err)
	defer host.Close()
	for name, watched := range map[string]*outbox.Store{"opened": store, "host's": outbox.New(host, nil)} {
		watch, err := watched.Watch(ctx)
		require.NoError(t, err, name)
		changed := func() bool {
			t.Helper()
			changed, err := watch.Changed(ctx)
			require.NoError(t, err)
			return changed
		}
		require.False(t, changed(), name)
		_, err = other.Append(ctx, row(uuid.New(), 0))
		require.NoError(t, err)
		require.True(t, changed(), name)
		require.False(t, changed(), "%s: once", name)
		_, err = store.Claim(ctx, 0)
		require.NoError(t, err)
		require.False(t, changed(), "%s: nothing was written", name)
		require.NoError(t, watch.Close())
		require.NoError(t, watch.Close())
		_, err = watch.Changed(ctx)
		require.ErrorIs(t, err, outbox.ErrClosed)
	}
}

func TestWatchIsUnsupportedWhereItCouldSeeNothingOrTakesTheOnlyConnection(t *testing.T) {
	host := openHost(t)
	host.SetMaxOpenConns(1)
	for name, store := range map[string]*outbox.Store{"memory": open(t, ":memory:", nil), "one connection": outbox.New(host, nil)} {
		_, err := store.Watch(context.Background())
		require.ErrorIs(t, err, errors.ErrUnsupported, name)
	}
}

func TestWatchLeavesAConnectionOfTheHostsToTheStore(t *testing.T) {
	ctx := context.Background()
	host := openHost(t)
	host.SetMaxOpenConns(2)
	store := outbox.New(host, nil)
	require.NoError(t, store.Migrate(ctx))
	watch, err := store.Watch(ctx)
	require.NoError(t, err)
	short, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = store.Watch(short)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = store.Append(short, row(uuid.New(), 0))
	require.NoError(t, err)
	require.NoError(t, watch.Close())
	require.NoError(t, watch.Close())
	watch, err = store.Watch(short)
	require.NoError(t, err, "the first gave its connection back")
	require.NoError(t, watch.Close())
}

func TestWatchTellsALockFromWhatCannotBeWatched(t *testing.T) {
	ctx := context.Background()
	host := openHost(t) // in rollback-journal mode writers lock readers out
	store := outbox.New(host, &outbox.Options{BusyTimeout: -1})
	require.NoError(t, store.Migrate(ctx))
	watch, err := store.Watch(ctx)
	require.NoError(t, err)
	defer watch.Close()
	writer, err := host.Conn(ctx)
	require.NoError(t, err)
	defer writer.Close()
	_, err = writer.ExecContext(ctx, "BEGIN EXCLUSIVE")
	require.NoError(t, err)
	_, err = store.Watch(ctx)
	require.ErrorIs(t, err, outbox.ErrBusy)
	require.NotErrorIs(t, err, errors.ErrUnsupported)
	changed, err := watch.Changed(ctx)
	require.NoError(t, err)
	require.False(t, changed, "nothing is committed yet")
	_, err = writer.ExecContext(ctx, "CREATE TABLE of_the_host (n)")
	require.NoError(t, err)
	_, err = writer.ExecContext(ctx, "COMMIT")
	require.NoError(t, err)
	changed, err = watch.Changed(ctx)
	require.NoError(t, err)
	require.True(t, changed)
}

func TestNextVisibleAfterPassesOverWhatIsDueAlready(t *testing.T) {
	ctx := context.Background()
	store := open(t, ":memory:", nil)
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	rows := fanOut(3, 0)
	for i := range rows {
		rows[i].VisibleAfter = start.Add(time.Duration(i) * time.Minute)
	}
	_, err := store.Append(ctx, rows...)
	require.NoError(t, err)
	for after, want := range map[time.Duration]int{-time.Second: 0, 0: 1, time.Minute - 1: 1, time.Minute: 2} {
		at, ok, err := store.NextVisibleAfter(ctx, start.Add(after))
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, rows[want].VisibleAfter, at)
	}
	_, ok, err := store.NextVisibleAfter(ctx, start.Add(2*time.Minute))
	require.NoError(t, err)
	require.False(t, ok)
	_, _, err = store.NextVisibleAfter(ctx, time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC))
	require.ErrorIs(t, err, outbox.ErrInvalid)
}
