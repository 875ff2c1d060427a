package outbox_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// walLimit is the size in bytes that the WAL of a file keeps to under load: a
// checkpoint comes after 4,000 pages of 4 KiB, and readers may put it off.
const walLimit = 64 << 20

func TestWALStaysBoundedUnderLoad(t *testing.T) {
	ctx := context.Background()
	file := filepath.Join(t.TempDir(), "outbox.db")
	store := open(t, "file:"+file, &outbox.Options{Synchronous: outbox.Normal})
	// Others read without a pause: a checkpoint can start the WAL anew only
	// when none of them is under way.
	var readers sync.WaitGroup
	var finished atomic.Bool
	defer readers.Wait()
	defer finished.Store(true)
	for range 4 {
		readers.Go(func() {
			for !finished.Load() {
				if _, err := store.CountInFlight(ctx, outbox.DefaultRoute); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 100 {
		_, err := store.Append(ctx, fanOut(100, 256)...)
		require.NoError(t, err)
		claimed, err := store.Claim(ctx, 100)
		require.NoError(t, err)
		refs := make([]outbox.Ref, len(claimed))
		for i, row := range claimed {
			refs[i] = row.Ref()
		}
		require.NoError(t, store.Complete(ctx, refs...))
		require.Less(t, fileSize(t, file+"-wal"), int64(walLimit))
	}
}

func TestIdleStoreHoldsLittleMemory(t *testing.T) {
	const stores = 20
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := heap()
	for range stores {
		store := open(t, "file:"+filepath.Join(t.TempDir(), "outbox.db"), nil)
		_, err := store.Append(context.Background(), row(uuid.New(), 0))
		require.NoError(t, err)
		_, err = store.Claim(context.Background(), 1)
		require.NoError(t, err)
	}
	after := heap()
	require.Less(t, int64(after)-int64(before), int64(stores*100<<10))
}

func TestWALShrinksAgainAfterALongReader(t *testing.T) {
	file := filepath.Join(t.TempDir(), "outbox.db")
	store := open(t, "file:"+file, &outbox.Options{Synchronous: outbox.Normal})
	reader, err := sql.Open("libsql", "file:"+file)
	require.NoError(t, err)
	defer reader.Close()
	ctx := context.Background()
	conn, err := reader.Conn(ctx)
	require.NoError(t, err)
	_, err = conn.ExecContext(ctx, "BEGIN")
	require.NoError(t, err)
	var n int
	require.NoError(t, conn.QueryRowContext(ctx, "SELECT count(*) FROM outbox").Scan(&n))
	const limit = 20 << 20
	large := row(uuid.New(), 0)
	large.Input.Data = make([]byte, 1<<20)
	for i := range 64 {
		large.Ordinal = uint64(i)
		_, err := store.Append(ctx, large)
		require.NoError(t, err)
	}
	require.Greater(t, fileSize(t, file+"-wal"), int64(3*limit))
	_, err = conn.ExecContext(ctx, "COMMIT")
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	for i := range 200 {
		_, err := store.Append(ctx, row(uuid.New(), i))
		require.NoError(t, err)
	}
	require.LessOrEqual(t, fileSize(t, file+"-wal"), int64(limit))
}
