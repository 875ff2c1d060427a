package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// Benchmarks report rows a second. They run over files; compare only figures
// of one run on one machine.

func openBenchmark(b *testing.B, synchronous outbox.Synchronous) *outbox.Store {
	b.Helper()
	name := "file:" + filepath.Join(b.TempDir(), "outbox.db")
	store, err := outbox.Open(context.Background(), "libsql", name, &outbox.Options{Synchronous: synchronous})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, store.Close()) })
	return store
}

func eachSynchronous(b *testing.B, run func(b *testing.B, store *outbox.Store)) {
	for name, synchronous := range map[string]outbox.Synchronous{"full": outbox.Full, "normal": outbox.Normal} {
		b.Run("synchronous="+name, func(b *testing.B) { run(b, openBenchmark(b, synchronous)) })
	}
}

// fanOut returns n rows of one workflow.
func fanOut(n, size int) []outbox.Row {
	workflow, err := uuid.NewV7()
	if err != nil {
		panic(err)
	}
	rows := make([]outbox.Row, n)
	for i := range rows {
		rows[i] = row(workflow, i)
		rows[i].Input = outbox.Payload{ContentType: "application/octet-stream", Data: make([]byte, size)}
	}
	return rows
}

func reportRows(b *testing.B, rows int) {
	b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
}

func fill(b *testing.B, store *outbox.Store, rows int) {
	b.Helper()
	for range rows / 100 {
		_, err := store.Append(context.Background(), fanOut(100, 256)...)
		require.NoError(b, err)
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("rows=%d", n), func(b *testing.B) {
			eachSynchronous(b, func(b *testing.B, store *outbox.Store) {
				for b.Loop() {
					if _, err := store.Append(context.Background(), fanOut(n, 256)...); err != nil {
						b.Fatal(err)
					}
				}
				reportRows(b, n*b.N)
			})
		})
	}
}

func BenchmarkAppendConcurrently(b *testing.B) {
	for _, goroutines := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			eachSynchronous(b, func(b *testing.B, store *outbox.Store) {
				var all sync.WaitGroup
				var next atomic.Int64
				for range goroutines {
					all.Go(func() {
						for next.Add(1) <= int64(b.N) {
							if _, err := store.Append(context.Background(), fanOut(1, 256)...); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				reportRows(b, b.N)
			})
		})
	}
}

// BenchmarkAppendOverNew is what a program's own pool costs beside that of Open,
// with contexts that cannot end and with such that can.
func BenchmarkAppendOverNew(b *testing.B) {
	for _, goroutines := range []int{8, 32} {
		for _, over := range []string{"open", "new", "new, contexts end"} {
			b.Run(fmt.Sprintf("goroutines=%d/%s", goroutines, over), func(b *testing.B) {
				file := "file:" + filepath.Join(b.TempDir(), "bench.db")
				store, err := outbox.Open(context.Background(), "libsql", file, nil)
				if err != nil {
					b.Fatal(err)
				}
				defer store.Close()
				ctx := context.Background()
				if over != "open" {
					db, err := sql.Open("libsql", file)
					if err != nil {
						b.Fatal(err)
					}
					defer db.Close()
					store = outbox.New(db, nil)
				}
				if over == "new, contexts end" {
					var cancel context.CancelFunc
					ctx, cancel = context.WithCancel(ctx)
					defer cancel()
				}
				var all sync.WaitGroup
				var next atomic.Int64
				b.ResetTimer()
				for range goroutines {
					all.Go(func() {
						for next.Add(1) <= int64(b.N) {
							if _, err := store.Append(ctx, fanOut(1, 256)...); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				reportRows(b, b.N)
			})
		}
	}
}

func BenchmarkClaimAndComplete(b *testing.B) {
	for _, backlog := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("backlog=%d", backlog), func(b *testing.B) {
			store := openBenchmark(b, outbox.Normal)
			fill(b, store, backlog)
			var claiming, completing time.Duration
			rows := 0
			for b.Loop() {
				start := time.Now()
				claimed, err := store.Claim(context.Background(), 100)
				if err != nil {
					b.Fatal(err)
				}
				claiming += time.Since(start)
				refs := make([]outbox.Ref, len(claimed))
				for i, row := range claimed {
					refs[i] = row.Ref()
				}
				start = time.Now()
				if err := store.Complete(context.Background(), refs...); err != nil {
					b.Fatal(err)
				}
				completing += time.Since(start)
				rows += len(refs)
				b.StopTimer()
				fill(b, store, len(refs))
				b.StartTimer()
			}
			b.ReportMetric(float64(rows)/claiming.Seconds(), "claimed/s")
			b.ReportMetric(float64(rows)/completing.Seconds(), "completed/s")
		})
	}
}

func BenchmarkEmptyClaim(b *testing.B) {
	store := openBenchmark(b, outbox.Full)
	for b.Loop() {
		if _, err := store.Claim(context.Background(), 100); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCompleteConcurrently has workers complete a row each.
func BenchmarkCompleteConcurrently(b *testing.B) {
	for _, goroutines := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			eachSynchronous(b, func(b *testing.B, store *outbox.Store) {
				for n := b.N; n > 0; n -= 1000 {
					_, err := store.Append(context.Background(), fanOut(min(n, 1000), 256)...)
					require.NoError(b, err)
				}
				claimed, err := store.Claim(context.Background(), b.N)
				require.NoError(b, err)
				require.Len(b, claimed, b.N)
				b.ResetTimer()
				var all sync.WaitGroup
				var next atomic.Int64
				for range goroutines {
					all.Go(func() {
						for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
							if err := store.Complete(context.Background(), claimed[i].Ref()); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				reportRows(b, b.N)
			})
		})
	}
}

// BenchmarkPurge deletes settled rows; what it allocates is for a page of them,
// however many there are.
func BenchmarkPurge(b *testing.B) {
	for _, rows := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			store := openBenchmark(b, outbox.Normal)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				for range rows / 1000 {
					settled := fanOut(1000, 256)
					for i := range settled {
						settled[i].Status = outbox.Done
					}
					_, err := store.Append(context.Background(), settled...)
					require.NoError(b, err)
				}
				b.StartTimer()
				purged, err := store.Purge(context.Background(), time.Now().Add(time.Hour), rows)
				require.NoError(b, err)
				require.Equal(b, rows, purged)
			}
			reportRows(b, rows*b.N)
		})
	}
}
