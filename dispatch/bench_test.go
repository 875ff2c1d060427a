package dispatch_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func openFile(b *testing.B, file string) *outbox.Store {
	b.Helper()
	store, err := outbox.Open(context.Background(), "libsql", "file:"+file, &outbox.Options{Synchronous: outbox.Normal, Logger: quiet()})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, store.Close()) })
	return store
}

// startDispatcher runs a dispatcher until the returned function is called.
func startDispatcher(b *testing.B, store *outbox.Store, handler dispatch.Handler, opts dispatch.Options) (stop func()) {
	b.Helper()
	opts.Logger = quiet()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- dispatch.New(store, handler, &opts).Run(ctx) }()
	return func() {
		b.Helper()
		cancel()
		require.NoError(b, <-ended)
	}
}

func stagedRows(n int) []outbox.Row {
	workflow := uuid.Must(uuid.NewV7())
	rows := make([]outbox.Row, n)
	for i := range rows {
		rows[i] = outbox.Row{WorkflowID: workflow, Ordinal: uint64(i), ActivityType: "bench",
			Input: outbox.Payload{ContentType: "application/octet-stream", Data: make([]byte, 256)}}
	}
	return rows
}

// BenchmarkDispatch shows how many rows a second go to a handler that does
// nothing, and are completed.
func BenchmarkDispatch(b *testing.B) {
	for _, concurrency := range []int{1, 8, 32, 100} {
		b.Run(fmt.Sprintf("concurrency=%d", concurrency), func(b *testing.B) {
			store := openFile(b, filepath.Join(b.TempDir(), "outbox.db"))
			benchmarkDrain(b, store, dispatch.Options{Concurrency: concurrency})
		})
	}
}

// benchmarkDrain dispatches b.N rows of a store.
func benchmarkDrain(b *testing.B, store *outbox.Store, opts dispatch.Options) {
	b.Helper()
	for n := b.N; n > 0; n -= 1000 {
		_, err := store.Append(context.Background(), stagedRows(min(n, 1000))...)
		require.NoError(b, err)
	}
	var settled atomic.Int64
	all := make(chan struct{})
	opts.Observer = dispatch.Observer{Settled: func(context.Context, outbox.Row, dispatch.Outcome, time.Duration, error) {
		if settled.Add(1) == int64(b.N) {
			close(all)
		}
	}}
	b.ResetTimer()
	stop := startDispatcher(b, store, nothing, opts)
	<-all
	b.StopTimer()
	stop()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkPool is BenchmarkDispatch with 32 handlers that one store with work
// shares with others that have none.
func BenchmarkPool(b *testing.B) {
	for _, idle := range []int{0, 15} {
		b.Run(fmt.Sprintf("idle=%d", idle), func(b *testing.B) {
			pool := dispatch.NewPool(32)
			for range idle {
				store := openFile(b, filepath.Join(b.TempDir(), "outbox.db"))
				defer startDispatcher(b, store, nothing, dispatch.Options{Pool: pool})()
			}
			store := openFile(b, filepath.Join(b.TempDir(), "outbox.db"))
			benchmarkDrain(b, store, dispatch.Options{Pool: pool})
		})
	}
}

// BenchmarkStartLatency shows how long after its Append has returned a row's
// handler starts, staged by the dispatcher's own Store and by another on the
// same file, as another process has.
func BenchmarkStartLatency(b *testing.B) {
	for _, elsewhere := range []bool{false, true} {
		b.Run(fmt.Sprintf("elsewhere=%t", elsewhere), func(b *testing.B) {
			file := filepath.Join(b.TempDir(), "outbox.db")
			store := openFile(b, file)
			stager := store
			if elsewhere {
				stager = openFile(b, file)
			}
			started := make(chan time.Time, 1)
			defer startDispatcher(b, store, func(context.Context, outbox.Row) error {
				started <- time.Now()
				return nil
			}, dispatch.Options{PollInterval: time.Hour})()
			var took []time.Duration
			for b.Loop() {
				b.StopTimer()
				time.Sleep(15 * time.Millisecond) // the loop has gone to sleep
				b.StartTimer()
				_, err := stager.Append(context.Background(), stagedRows(1)...)
				staged := time.Now()
				require.NoError(b, err)
				took = append(took, (<-started).Sub(staged))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// BenchmarkIdle shows what a loop costs that has nothing to do.
func BenchmarkIdle(b *testing.B) {
	store := openFile(b, filepath.Join(b.TempDir(), "outbox.db"))
	defer startDispatcher(b, store, nothing, dispatch.Options{})()
	time.Sleep(100 * time.Millisecond)
	cpu := func() time.Duration {
		var usage syscall.Rusage
		require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	before := cpu()
	for b.Loop() {
		time.Sleep(100 * time.Millisecond)
	}
	b.ReportMetric(float64((cpu()-before).Microseconds())/1000/b.Elapsed().Seconds(), "cpu-ms/s")
}
