// Package drivertest runs the conformance suite over one driver. Each driver
// calls it from a module of its own, below drivers: not all of them link into
// one program, and the library shall not depend on any.
package drivertest

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// Run checks a driver that is registered as driverName and takes a URI as data
// source name.
func Run(t *testing.T, driverName string) {
	file := func(t *testing.T) string { return "file:" + filepath.Join(t.TempDir(), "outbox.db") }
	open := func(t *testing.T, dataSourceName string, opts *outbox.Options) *outbox.Store {
		store, err := outbox.Open(context.Background(), driverName, dataSourceName, opts)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		return store
	}
	host := func(t *testing.T, opts *outbox.Options) (*outbox.Store, *sql.DB) {
		db, err := sql.Open(driverName, file(t))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		store := outbox.New(db, opts)
		require.NoError(t, store.Migrate(context.Background()))
		return store, db
	}

	t.Run("Memory", func(t *testing.T) {
		outboxtest.Run(t, func(t *testing.T, opts *outbox.Options) *outbox.Store { return open(t, ":memory:", opts) })
	})
	t.Run("File", func(t *testing.T) {
		outboxtest.Run(t, func(t *testing.T, opts *outbox.Options) *outbox.Store { return open(t, file(t), opts) })
	})
	t.Run("HostDatabase", func(t *testing.T) {
		outboxtest.Run(t, func(t *testing.T, opts *outbox.Options) *outbox.Store {
			store, _ := host(t, opts)
			return store
		})
	})

	t.Run("a store for tests finds the driver", func(t *testing.T) {
		store := outboxtest.New(t)
		var version string
		require.NoError(t, store.Update(t.Context(), func(ctx context.Context, tx outbox.Tx) error {
			return tx.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version)
		}))
		t.Log("SQLite", version)
	})
	t.Run("databases in memory are shared by name alone", func(t *testing.T) {
		shared := "file:" + uuid.NewString() + "?mode=memory&cache=shared"
		for name, want := range map[string]int{":memory:": 0, "file::memory:": 0, "file:x?mode=memory": 0, shared: 1} {
			one, two := open(t, name, nil), open(t, name, nil)
			_, err := one.Append(t.Context(), outbox.Row{WorkflowID: uuid.New(), ActivityType: "send"})
			require.NoError(t, err)
			outboxtest.RequireCounts(t, one, map[outbox.Status]int{outbox.Pending: 1})
			outboxtest.RequireCounts(t, two, map[outbox.Status]int{outbox.Pending: want})
		}
	})
	t.Run("a file is durable as asked", func(t *testing.T) {
		for want, synchronous := range map[string]outbox.Synchronous{"wal 2 0": outbox.Full, "wal 1 0": outbox.Normal} {
			store := open(t, file(t), &outbox.Options{Synchronous: synchronous})
			require.NoError(t, store.Update(t.Context(), func(ctx context.Context, tx outbox.Tx) error {
				var mode string
				var level, wait int
				require.NoError(t, tx.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode))
				require.NoError(t, tx.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&level))
				require.NoError(t, tx.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&wait))
				require.Equal(t, want, fmt.Sprint(mode, " ", level, " ", wait))
				return nil
			}))
		}
	})
	t.Run("a Tx call whose context ends leaves the host's transaction as it was", func(t *testing.T) {
		store, db := host(t, nil)
		_, err := db.Exec("CREATE TABLE history (event TEXT)")
		require.NoError(t, err)
		rows := make([]outbox.Row, 300)
		for i := range rows {
			rows[i] = outbox.Row{WorkflowID: uuid.New(), ActivityType: "send", Input: outbox.Payload{Data: bytes.Repeat([]byte("x"), 5000)}}
		}
		failed := 0
		for i := range 100 {
			tx, err := db.Begin()
			require.NoError(t, err)
			_, err = tx.Exec("INSERT INTO history VALUES ('started')")
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*50*time.Microsecond)
			_, err = store.AppendTx(ctx, tx, rows...)
			cancel()
			want := len(rows)
			if err != nil {
				want, failed = 0, failed+1
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			var events, staged int
			require.NoError(t, tx.QueryRow("SELECT count(*) FROM history").Scan(&events))
			require.NoError(t, tx.QueryRow("SELECT count(*) FROM outbox").Scan(&staged))
			require.Equal(t, []int{1, want}, []int{events, staged})
			require.NoError(t, tx.Rollback())
		}
		require.NotZero(t, failed)
	})
}
