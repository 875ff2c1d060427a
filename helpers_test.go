package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	_ "github.com/tursodatabase/go-libsql"
)

// silent are the options of a store that logs nothing.
var silent = &outbox.Options{Logger: slog.New(slog.DiscardHandler)}

func openMemory(t *testing.T, opts *outbox.Options) *outbox.Store { return open(t, ":memory:", opts) }

func openFile(t *testing.T, opts *outbox.Options) *outbox.Store {
	return open(t, "file:"+filepath.Join(t.TempDir(), "outbox.db"), opts)
}

func open(t *testing.T, dataSourceName string, opts *outbox.Options) *outbox.Store {
	t.Helper()
	store, err := outbox.Open(context.Background(), "libsql", dataSourceName, opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		if _, err := store.State(context.Background(), ""); !errors.Is(err, outbox.ErrClosed) && !t.Failed() {
			outboxtest.Check(t, store)
		}
		require.NoError(t, store.Close())
	})
	return store
}

// openHost returns a host's own database: a new file, as the driver sets it up,
// in rollback-journal mode.
func openHost(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("libsql", "file:"+filepath.Join(t.TempDir(), "host.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func row(workflow uuid.UUID, ordinal int) outbox.Row {
	return outbox.Row{WorkflowID: workflow, Ordinal: uint64(ordinal), ActivityType: "send"}
}

// eventually waits for what another goroutine is about to do. (That of testify
// starts goroutines itself.)
func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	for range 10_000 {
		if condition() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

func fileSize(t *testing.T, dataSourceName string) int64 {
	t.Helper()
	info, err := os.Stat(strings.TrimPrefix(dataSourceName, "file:"))
	if os.IsNotExist(err) {
		return 0
	}
	require.NoError(t, err)
	return info.Size()
}

// pragma reads a setting on the connection of an Update.
func pragma(t *testing.T, store *outbox.Store, name string) (value string) {
	t.Helper()
	require.NoError(t, store.Update(context.Background(), func(ctx context.Context, tx outbox.Tx) error {
		return tx.QueryRowContext(ctx, "PRAGMA "+name).Scan(&value)
	}))
	return value
}

// atOnce makes calls that all wait for their turn before the first is served,
// in the order given, and returns their errors. What is done meanwhile, is done
// when all of them wait.
func atOnce(t *testing.T, store *outbox.Store, calls []func() error, meanwhile func()) []error {
	t.Helper()
	errs := make([]error, len(calls))
	var all sync.WaitGroup
	require.NoError(t, store.Update(context.Background(), func(context.Context, outbox.Tx) error {
		for i, call := range calls {
			all.Go(func() { errs[i] = call() })
			require.Eventually(t, func() bool { return store.Waiting() == i+1 }, time.Minute, time.Millisecond)
		}
		meanwhile()
		return nil
	}))
	all.Wait()
	return errs
}

// ticking is a clock that never tells the same instant twice, so that rows
// with equal instants were written by one statement.
func ticking() func() time.Time {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var ticks atomic.Int64
	return func() time.Time { return start.Add(time.Duration(ticks.Add(1)) * time.Millisecond) }
}

func instantsOf(t *testing.T, store *outbox.Store, of func(outbox.Row) time.Time) map[time.Time]int {
	t.Helper()
	rows, err := store.List(context.Background(), outbox.Filter{})
	require.NoError(t, err)
	instants := map[time.Time]int{}
	for _, row := range rows {
		instants[of(row)]++
	}
	return instants
}

func keyed(keys ...string) []outbox.Row {
	workflow := uuid.New()
	rows := make([]outbox.Row, len(keys))
	for i, key := range keys {
		rows[i] = row(workflow, i)
		rows[i].DispatchKey = key
	}
	return rows
}

func large(row outbox.Row) outbox.Row {
	row.Input.Data = make([]byte, 3000)
	return row
}
