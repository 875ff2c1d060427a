package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	_ "github.com/tursodatabase/go-libsql"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
)

// The specification, over every kind of database that needs no server.
func TestMemory(t *testing.T) { outboxtest.Run(t, openMemory) }

func TestFile(t *testing.T) { outboxtest.Run(t, openFile) }

func TestHostDatabase(t *testing.T) {
	outboxtest.Run(t, func(t *testing.T, opts *outbox.Options) *outbox.Store {
		store := outbox.New(openHost(t), opts)
		require.NoError(t, store.Migrate(context.Background()))
		return store
	})
}

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
