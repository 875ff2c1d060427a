//go:build sqld

package sqldtest

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	writeFor   = flag.Duration("write-for", 5*time.Second, "how long the nodes of TestNodesThatWriteWithoutAPause write")
	writeNodes = flag.Int("write-nodes", 4, "how many nodes of TestNodesThatWriteWithoutAPause there are")
)

// The server may lose seconds, and in the end its lock, if many BEGINs wait there
// side by side. Four nodes never have it do so. With 16, which
//
//	go test -tags sqld ./sqldtest -run WithoutAPause -write-nodes 16 -write-for 1m
//
// lets loose, it stands still for 5 seconds or more in some of the runs.
func TestNodesThatWriteWithoutAPause(t *testing.T) {
	for _, roundTrip := range []time.Duration{0, 10 * time.Millisecond} {
		t.Run(fmt.Sprintf("%d nodes, round trip %v", *writeNodes, roundTrip), func(t *testing.T) {
			server := startServer(t)
			url := slowly(t, server, roundTrip)
			var nodes []*writer
			for range *writeNodes {
				nodes = append(nodes, &writer{store: openOver(t, "hrana", url, nil)})
			}
			ctx, cancel := context.WithTimeout(t.Context(), *writeFor+patience)
			defer cancel()
			var calls atomic.Int64
			var all sync.WaitGroup
			start := time.Now()
			for i, node := range nodes {
				all.Go(func() {
					time.Sleep(time.Duration(i) * 30 * time.Millisecond) // as processes start, not all within a millisecond
					assert.NoError(t, node.write(ctx, start.Add(*writeFor), &calls))
				})
			}
			var perSecond []int64 // how many calls the nodes made together
			for last := int64(0); time.Since(start) < *writeFor-time.Second/2; {
				time.Sleep(time.Second)
				made := calls.Load()
				perSecond, last = append(perSecond, made-last), made
			}
			all.Wait()
			elapsed := time.Since(start)

			claimed := make(map[string]int)
			appended := 0
			var took []time.Duration
			for _, node := range nodes {
				appended += node.appended
				took = append(took, node.took...)
				for _, key := range node.claimed {
					claimed[key]++
				}
			}
			slices.Sort(took)
			t.Logf("%.0f calls/s, at the median %v, at the 99th percentile %v, at most %v; by the second %v",
				float64(len(took))/elapsed.Seconds(), took[len(took)/2], took[len(took)*99/100], took[len(took)-1], perSecond)
			for _, times := range claimed {
				require.Equal(t, 1, times, "a row was handed out twice")
			}
			require.Less(t, took[len(took)-1], 4*time.Second, "a call was blocked")
			store := openOver(t, "hrana", server.url(), nil)
			outboxtest.RequireCounts(t, store, map[outbox.Status]int{outbox.Pending: appended - len(claimed), outbox.Done: len(claimed)})
			outboxtest.Check(t, store)
		})
	}
}

// writer is a node, and what it has done.
type writer struct {
	store    *outbox.Store
	appended int
	claimed  []string
	took     []time.Duration // each call
}

// write appends, claims and completes rows until a time.
func (w *writer) write(ctx context.Context, end time.Time, calls *atomic.Int64) error {
	timed := func(call func() error) error {
		start := time.Now()
		err := call()
		w.took = append(w.took, time.Since(start))
		calls.Add(1)
		return err
	}
	for time.Now().Before(end) {
		workflow := uuid.New()
		var rows []outbox.Row
		for i := range 10 {
			rows = append(rows, row(workflow, i))
		}
		err := timed(func() error {
			duplicates, err := w.store.Append(ctx, rows...)
			w.appended += len(rows) - len(duplicates)
			return err
		})
		if err != nil {
			return err
		}
		err = timed(func() (err error) {
			rows, err = w.store.Claim(ctx, 10)
			return err
		})
		if err != nil {
			return err
		}
		var refs []outbox.Ref
		for _, row := range rows {
			w.claimed = append(w.claimed, row.DispatchKey)
			refs = append(refs, row.Ref())
		}
		if err := timed(func() error { return w.store.Complete(ctx, refs...) }); err != nil {
			return err
		}
	}
	return nil
}
