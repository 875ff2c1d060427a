package outbox_test

import (
	"context"
	"database/sql"
	"os"
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

func TestWALStaysBoundedUnderLoadAndAfterALongReader(t *testing.T) {
	ctx := context.Background()
	file := filepath.Join(t.TempDir(), "outbox.db")
	store := open(t, "file:"+file, &outbox.Options{Synchronous: outbox.Normal})
	walSize := func() int64 {
		info, err := os.Stat(file + "-wal")
		require.NoError(t, err)
		return info.Size()
	}
	// work appends and settles while other goroutines read without a pause,
	// and returns the largest size that it saw.
	work := func(rows int) (largest int64) {
		var all sync.WaitGroup
		var finished atomic.Bool
		for range 4 {
			all.Go(func() {
				for !finished.Load() {
					_, err := store.CountInFlight(ctx, outbox.DefaultRoute)
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		defer all.Wait()
		defer finished.Store(true)
		for range rows / 100 {
			_, err := store.Append(ctx, fanOut(100, 256)...)
			require.NoError(t, err)
			claimed, err := store.Claim(ctx, 100)
			require.NoError(t, err)
			refs := make([]outbox.Ref, len(claimed))
			for i, row := range claimed {
				refs[i] = row.Ref()
			}
			require.NoError(t, store.Complete(ctx, refs...))
			largest = max(largest, walSize())
		}
		return largest
	}
	first := work(10_000)
	require.Less(t, first, int64(walLimit))

	// A reader that stays keeps every checkpoint from starting the WAL anew.
	reader, err := sql.Open("libsql", "file:"+file)
	require.NoError(t, err)
	defer reader.Close()
	reading, err := reader.Begin()
	require.NoError(t, err)
	var n int
	require.NoError(t, reading.QueryRow("SELECT count(*) FROM outbox").Scan(&n))
	grown := work(8_000)
	require.NoError(t, reading.Rollback())
	work(5_000)
	require.Less(t, walSize(), grown, "it is cut back once the reader has gone")
	last := work(3_000)
	require.Less(t, last, int64(walLimit))
	t.Logf("bytes: %d under load, %d beside a long reader, %d after it", first, grown, last)
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
