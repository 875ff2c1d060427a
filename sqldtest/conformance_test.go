//go:build sqld

package sqldtest

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"testing"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// drivers are those that speak to a server.
var drivers = []string{"libsql", "hrana"}

func TestServer(t *testing.T) {
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			server := startServer(t)
			outboxtest.Run(t, func(t *testing.T, opts *outbox.Options) *outbox.Store {
				server.empty(t)
				return openOver(t, driver, server.url(), opts)
			})
		})
	}
}

func TestHostDatabaseOnServer(t *testing.T) {
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			server := startServer(t)
			outboxtest.Run(t, func(t *testing.T, opts *outbox.Options) *outbox.Store {
				server.empty(t)
				db, err := sql.Open(driver, server.url())
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, db.Close()) })
				store := outbox.New(db, opts)
				require.NoError(t, store.Migrate(context.Background()))
				return store
			})
		})
	}
}

func TestLibsqlURL(t *testing.T) {
	// Over libsql:// the driver speaks https, which a test server does not.
	_, err := outbox.Open(t.Context(), "libsql", strings.Replace(startServer(t).url(), "http://", "libsql://", 1), nil)
	require.ErrorIs(t, err, outbox.ErrUnavailable)
}

func TestSeveralNodesMayStartAtOnce(t *testing.T) {
	server := startServer(t)
	var all sync.WaitGroup
	results := make(chan error, 8)
	for i := range 8 {
		all.Go(func() {
			store, err := outbox.Open(context.Background(), "libsql", server.url(), nil)
			if err == nil {
				_, err = store.Append(context.Background(), row(uuid.New(), i))
				store.Close()
			}
			results <- err
		})
	}
	all.Wait()
	for range 8 {
		require.NoError(t, <-results)
	}
	store := open(t, server.url(), nil)
	outboxtest.RequireCounts(t, store, map[outbox.Status]int{outbox.Pending: 8})
	outboxtest.Check(t, store)
}

func row(workflow uuid.UUID, ordinal int) outbox.Row {
	return outbox.Row{WorkflowID: workflow, Ordinal: uint64(ordinal), ActivityType: "send"}
}
