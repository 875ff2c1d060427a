package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// running returns the stacks of the goroutines that are not of the test itself:
// those that run or were started by this module or by database/sql.
func running() (stacks []string) {
	all := make([]byte, 8<<20)
	for stack := range strings.SplitSeq(string(all[:runtime.Stack(all, true)]), "\n\n") {
		for _, of := range []string{"example.com/outbox.", "example.com/outbox/internal/", "example.com/outbox/dispatch.", "database/sql."} {
			if strings.Contains(stack, of) {
				stacks = append(stacks, stack)
				break
			}
		}
	}
	return stacks
}

// requireNoneRunning waits until goroutines that have done their work are gone.
func requireNoneRunning(t *testing.T, before int) {
	t.Helper()
	for range 10_000 {
		if len(running()) <= before {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal(strings.Join(running(), "\n\n"))
}

// use makes a store do what starts goroutines, and leaves a subscriber behind.
func use(t *testing.T, store *outbox.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, _ = store.Subscribe()
	for range 3 {
		for _, call := range everyCall(store, outbox.Ref{DispatchKey: "a"}, nil) {
			_ = call(ctx)
		}
		large := row(uuid.New(), 0)
		large.Input.Data = make([]byte, 100_000)
		for _, timeout := range []time.Duration{0, time.Microsecond, time.Millisecond} {
			short, cancel := context.WithTimeout(ctx, timeout)
			_, _ = store.Append(short, large)
			_, _ = store.Claim(short, 10)
			_ = store.Update(short, func(ctx context.Context, tx outbox.Tx) error { <-ctx.Done(); return ctx.Err() })
			cancel()
		}
		calls := make([]func() error, 4)
		for i := range calls {
			calls[i] = func() error { _, err := store.Append(ctx, row(uuid.New(), i)); return err }
		}
		require.NoError(t, errors.Join(atOnce(t, store, calls, func() {})...))
		require.Panics(t, func() { _ = store.Update(ctx, func(context.Context, outbox.Tx) error { panic("x") }) })
		for _, err := range store.Rows(ctx, outbox.Filter{}) {
			require.NoError(t, err)
			break
		}
	}
	handled := make(chan struct{}, 100)
	ended := make(chan error)
	dispatcher := dispatch.New(store, func(context.Context, outbox.Row) error { handled <- struct{}{}; return nil }, &dispatch.Options{Logger: silent.Logger})
	go func() { ended <- dispatcher.Run(ctx) }()
	<-handled
	cancel()
	require.NoError(t, <-ended)
}

func TestCloseLeavesNothingRunning(t *testing.T) {
	before := len(running())
	t.Run("memory", func(t *testing.T) {
		store, err := outbox.Open(t.Context(), "libsql", ":memory:", silent)
		require.NoError(t, err)
		use(t, store)
		require.NoError(t, store.Close())
		requireNoneRunning(t, before)
	})
	file := "file:" + filepath.Join(t.TempDir(), "outbox.db")
	t.Run("file, with a watch", func(t *testing.T) {
		store, err := outbox.Open(t.Context(), "libsql", file, silent)
		require.NoError(t, err)
		watch, err := store.Watch(t.Context())
		require.NoError(t, err)
		use(t, store)
		_, err = watch.Changed(t.Context())
		require.NoError(t, err)
		require.NoError(t, watch.Close())
		require.NoError(t, store.Close())
		requireNoneRunning(t, before)
	})
	t.Run("host, with a watch", func(t *testing.T) {
		db, err := sql.Open("libsql", file)
		require.NoError(t, err)
		own := len(running())
		store := outbox.New(db, silent)
		watch, err := store.Watch(t.Context())
		require.NoError(t, err)
		use(t, store)
		require.NoError(t, watch.Close())
		require.NoError(t, store.Close())
		requireNoneRunning(t, own)
		eventually(t, func() bool { return db.Stats().InUse == 0 }, "connections are given back")
		require.NoError(t, db.Close())
		requireNoneRunning(t, before)
	})
	t.Run("an Open that fails", func(t *testing.T) {
		for _, name := range []string{"file:" + t.TempDir(), "file:" + filepath.Join(t.TempDir(), "no", "such.db"), "http://127.0.0.1:1"} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			_, err := outbox.Open(ctx, "libsql", name, &outbox.Options{BusyTimeout: -1})
			cancel()
			require.Error(t, err, name)
		}
		requireNoneRunning(t, before)
	})
	t.Run("without a call", func(t *testing.T) {
		db, err := sql.Open("libsql", file)
		require.NoError(t, err)
		own := len(running())
		store := outbox.New(db, nil)
		requireNoneRunning(t, own)
		require.NoError(t, store.Close())
		require.NoError(t, db.Close())
		requireNoneRunning(t, before)
	})
}
