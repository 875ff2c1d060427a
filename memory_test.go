package outbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"os"
	"strings"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestInMemoryDatabasesShareNothingUnlessNamed(t *testing.T) {
	ctx := context.Background()
	for _, name := range []string{":memory:", "file::memory:", "file::memory:?cache=shared", "file:x?mode=memory"} {
		one, two := open(t, name, nil), open(t, name, nil)
		_, err := one.Append(ctx, row(uuid.New(), 0))
		require.NoError(t, err)
		outboxtest.RequireCounts(t, one, map[outbox.Status]int{outbox.Pending: 1})
		outboxtest.RequireCounts(t, two, nil)
	}
	shared := "file:shared-" + uuid.NewString() + "?mode=memory&cache=shared"
	one := open(t, shared, nil)
	_, err := one.Append(ctx, row(uuid.New(), 0))
	require.NoError(t, err)
	outboxtest.RequireCounts(t, open(t, shared, nil), map[outbox.Status]int{outbox.Pending: 1})
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, entry := range entries {
		require.NotRegexp(t, `memory|^x$`, strings.TrimSuffix(entry.Name(), "memory_test.go"), "no file is made")
	}
}

func TestStoresThatShareAMemoryDatabaseWaitForEachOther(t *testing.T) {
	name := "file:shared-" + uuid.NewString() + "?mode=memory&cache=shared"
	stores := []*outbox.Store{open(t, name, nil), open(t, name, nil)}
	results := make(chan error, 4)
	for i := range cap(results) {
		go func() { results <- appendAndComplete(stores[i%2], 100, func(outbox.Row) {}) }()
	}
	for range cap(results) {
		require.NoError(t, <-results)
	}
	outboxtest.RequireCounts(t, stores[0], map[outbox.Status]int{outbox.Done: 400})
}

func TestCancelledCallsCostAHostNoMemoryDatabase(t *testing.T) {
	plain, err := sql.Open("libsql", ":memory:")
	require.NoError(t, err)
	defer plain.Close()
	connector, err := plain.Driver().(driver.DriverContext).OpenConnector(":memory:")
	require.NoError(t, err)
	db := sql.OpenDB(heedful{connector})
	defer db.Close()
	db.SetMaxOpenConns(1)
	ctx := context.Background()
	store := outbox.New(db, nil)
	require.NoError(t, store.Migrate(ctx))
	for i := range 300 {
		short, cancel := context.WithTimeout(ctx, time.Duration(i)*time.Microsecond)
		_, _ = store.Append(short, row(uuid.New(), i))
		_, _ = store.Claim(short, 1)
		cancel()
	}
	_, err = store.Append(ctx, row(uuid.New(), 0))
	require.NoError(t, err)
}
