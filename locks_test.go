package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestLockOfAnotherProcessIsWaitedForWithinContextAndBusyTimeout(t *testing.T) {
	for _, setup := range []struct {
		name string
		open func(t *testing.T, file string, busy time.Duration) *outbox.Store
	}{
		{"Open", func(t *testing.T, file string, busy time.Duration) *outbox.Store {
			return open(t, file, &outbox.Options{BusyTimeout: busy})
		}},
		{"New, over a pool whose driver waits deaf to the context", func(t *testing.T, file string, busy time.Duration) *outbox.Store {
			db, err := sql.Open("libsql", file)
			require.NoError(t, err)
			db.SetMaxOpenConns(4)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			var conns []*sql.Conn
			for range 4 {
				conn, err := db.Conn(context.Background())
				require.NoError(t, err)
				var timeout int
				require.NoError(t, conn.QueryRowContext(context.Background(), "PRAGMA busy_timeout = 400").Scan(&timeout))
				conns = append(conns, conn)
			}
			for _, conn := range conns {
				require.NoError(t, conn.Close())
			}
			return outbox.New(db, &outbox.Options{BusyTimeout: busy})
		}},
	} {
		t.Run(setup.name, func(t *testing.T) {
			file := "file:" + filepath.Join(t.TempDir(), "outbox.db")
			ctx := context.Background()
			first := open(t, file, nil)
			_, err := first.Append(ctx, row(uuid.New(), 0), row(uuid.New(), 1))
			require.NoError(t, err)
			claimed, err := first.Claim(ctx, 1)
			require.NoError(t, err)
			before, err := first.List(ctx, outbox.Filter{})
			require.NoError(t, err)

			store := setup.open(t, file, time.Hour)
			holder := startChild(t, "hold", file, "BEGIN IMMEDIATE")
			holder.expect("held")
			// The holder does not let go before it is told to, so that a call
			// that returns has not waited for it.
			for name, call := range writes(store, claimed[0].Ref()) {
				short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				require.ErrorIs(t, call(short), context.DeadlineExceeded, name)
				cancel()
			}
			impatient := setup.open(t, file, 30*time.Millisecond)
			for name, call := range writes(impatient, claimed[0].Ref()) {
				require.ErrorIs(t, call(ctx), outbox.ErrBusy, name)
			}

			var waiting sync.WaitGroup
			results := make(chan error, 4)
			for range 4 {
				waiting.Go(func() { results <- store.Extend(ctx, claimed[0].Ref()) })
			}
			holder.finish()
			waiting.Wait()
			for range 4 {
				require.NoError(t, <-results, "those who wait are served")
			}
			after, err := first.List(ctx, outbox.Filter{})
			require.NoError(t, err)
			require.Len(t, after, len(before), "nothing that was given up is stored late")
			require.NoError(t, first.Complete(ctx, claimed[0].Ref()))
			outboxtest.Check(t, first)
		})
	}
}

func TestReadsAndEmptyClaimsNeedNoWriteLock(t *testing.T) {
	file := "file:" + filepath.Join(t.TempDir(), "outbox.db")
	store := open(t, file, &outbox.Options{BusyTimeout: -1})
	ctx := context.Background()
	holder := startChild(t, "hold", file, "BEGIN IMMEDIATE")
	holder.expect("held")
	size := fileSize(t, file+"-wal")
	for range 1000 {
		rows, err := store.Claim(ctx, 100)
		require.NoError(t, err)
		require.Empty(t, rows)
	}
	_, err := store.ClaimScopedExcluding(ctx, outbox.Scope{Namespace: "a", TaskQueue: "b"}, 1, uuid.New())
	require.NoError(t, err)
	_, err = store.RearmStale(ctx, time.Now(), time.Time{}, 1)
	require.NoError(t, err)
	_, err = store.PendingRoutes(ctx)
	require.NoError(t, err)
	_, err = store.CountInFlight(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, size, fileSize(t, file+"-wal"))
	holder.finish()
}

func TestReadsWaitForAnExclusiveLock(t *testing.T) {
	// In rollback-journal mode a committing writer shuts readers out.
	file := "file:" + filepath.Join(t.TempDir(), "host.db")
	db, err := sql.Open("libsql", file)
	require.NoError(t, err)
	defer db.Close()
	store := outbox.New(db, &outbox.Options{BusyTimeout: time.Hour})
	ctx := context.Background()
	require.NoError(t, store.Migrate(ctx))
	_, err = store.Append(ctx, row(uuid.New(), 0))
	require.NoError(t, err)
	conn, err := db.Conn(ctx) // the driver would wait for longer, deaf to the context
	require.NoError(t, err)
	var timeout int
	require.NoError(t, conn.QueryRowContext(ctx, "PRAGMA busy_timeout = 3600000").Scan(&timeout))
	require.NoError(t, conn.Close())
	holder := startChild(t, "hold", file, "BEGIN EXCLUSIVE")
	holder.expect("held")
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = store.List(short, outbox.Filter{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = store.Claim(short, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	result := make(chan error)
	go func() {
		rows, err := store.Claim(ctx, 1)
		if err == nil && len(rows) != 1 {
			err = fmt.Errorf("claimed %d rows", len(rows))
		}
		result <- err
	}()
	holder.finish()
	require.NoError(t, <-result)
}

func TestCommitThatAReaderHoldsUpIsRepeatedOrUndone(t *testing.T) {
	db, recorded := openRecorded(t) // in rollback-journal mode
	ctx := context.Background()
	store := outbox.New(db, &outbox.Options{BusyTimeout: 50 * time.Millisecond})
	require.NoError(t, store.Migrate(ctx))

	reader, err := db.Conn(ctx)
	require.NoError(t, err)
	_, err = reader.ExecContext(ctx, "BEGIN")
	require.NoError(t, err)
	var n int
	require.NoError(t, reader.QueryRowContext(ctx, "SELECT count(*) FROM outbox").Scan(&n))

	_, err = store.Append(ctx, row(uuid.New(), 0))
	require.ErrorIs(t, err, outbox.ErrBusy)
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err = store.Append(short, row(uuid.New(), 0))
	require.ErrorIs(t, err, context.DeadlineExceeded)

	patient := outbox.New(db, &outbox.Options{BusyTimeout: time.Hour})
	workflow := uuid.New()
	result := make(chan error)
	recorded.forget()
	go func() { _, err := patient.Append(ctx, row(workflow, 0)); result <- err }()
	eventually(t, func() bool { return recorded.sent("COMMIT") }, "it tries to commit")
	_, err = reader.ExecContext(ctx, "COMMIT")
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	require.NoError(t, <-result)
	rows, err := store.List(ctx, outbox.Filter{})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, workflow, rows[0].WorkflowID)
}

func TestTextsOfTheHostAreNotTakenForLocks(t *testing.T) {
	store := open(t, ":memory:", nil)
	ctx := context.Background()
	require.NoError(t, store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TRIGGER t BEFORE INSERT ON outbox BEGIN SELECT RAISE(ABORT, 'the vault database is locked by its keeper'); END`)
		return err
	}))
	_, err := store.Append(ctx, row(uuid.New(), 0))
	require.ErrorContains(t, err, "keeper")
	require.NotErrorIs(t, err, outbox.ErrBusy)
}

func TestCommitThatAReaderHoldsUpKeepsNobodyBeyondItsContext(t *testing.T) {
	db := openHost(t) // in rollback-journal mode
	ctx := context.Background()
	store := outbox.New(db, nil)
	require.NoError(t, store.Migrate(ctx))
	reader, err := db.Conn(ctx)
	require.NoError(t, err)
	_, err = reader.ExecContext(ctx, "BEGIN")
	require.NoError(t, err)
	var n int
	require.NoError(t, reader.QueryRowContext(ctx, "SELECT count(*) FROM outbox").Scan(&n))

	const calls = 4
	short, cancel := context.WithTimeout(ctx, time.Minute)
	undone := errors.New("undone, since the reader would hold it up")
	results := make(chan error, calls)
	require.ErrorIs(t, store.Update(ctx, func(context.Context, outbox.Tx) error {
		for i := range calls {
			go func() { _, err := store.Append(short, row(uuid.New(), i)); results <- err }()
		}
		eventually(t, func() bool { return store.Waiting() == calls }, "all wait")
		return undone
	}), undone)
	time.Sleep(50 * time.Millisecond) // the first is about to commit
	cancel()
	ended := time.Now()
	for range calls {
		require.ErrorIs(t, <-results, context.Canceled)
	}
	require.Less(t, time.Since(ended), time.Second)
	_, err = reader.ExecContext(ctx, "COMMIT")
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	rows, err := store.List(ctx, outbox.Filter{})
	require.NoError(t, err)
	require.Empty(t, rows)
}
