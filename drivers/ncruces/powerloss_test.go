package ncruces

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// With Full, a power loss at any moment leaves the calls that have returned, and
// the one under way whole or not at all. With Normal it may take more of the
// last calls, but leaves a state that was. That SQLite keeps this, given how the
// store sets it up, shows best where its writes and syncs can be seen: on a file
// system written in Go, which this driver lets us have.
func TestPowerLossLeavesWhatWasPromised(t *testing.T) {
	const losses = 60
	for name, level := range map[string]outbox.Synchronous{"Full": outbox.Full, "Normal": outbox.Normal} {
		t.Run(name, func(t *testing.T) {
			random := newRand(t)
			d := newDisk(t, "recorded-"+name)
			store := openOn(t, "file:"+filepath.Join(t.TempDir(), "outbox.db")+"?vfs=recorded-"+name, level)
			digests, ends := workAndNote(t, store, random, d)
			require.Positive(t, d.writesBetween(ends[0], ends[len(ends)-1]), "the log was written back")
			taken := 0
			for range losses {
				after := ends[0] + random.IntN(d.length()-ends[0])
				answered := 0
				for answered+1 < len(ends) && ends[answered+1] <= after {
					answered++
				}
				found := digestOf(t, d, random, after)
				if level == outbox.Full {
					require.Contains(t, digests[answered:min(answered+2, len(digests))], found)
				} else {
					require.Contains(t, digests[:min(answered+2, len(digests))], found)
				}
				if found != digests[answered] {
					taken++
				}
			}
			t.Logf("%d power losses within %d calls, %d of them to another state than the last answered", losses, len(ends)-1, taken)
		})
	}
}

// The same for calls that share their commits.
func TestPowerLossLeavesCallsThatShareACommit(t *testing.T) {
	const losses, goroutines, each = 40, 8, 20
	random := newRand(t)
	d := newDisk(t, "recorded-shared")
	store := openOn(t, "file:"+filepath.Join(t.TempDir(), "outbox.db")+"?vfs=recorded-shared", outbox.Full)
	start := d.length()
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		ends = map[string]int{} // by key, how much had happened when its call returned
	)
	for range goroutines {
		workflow := uuid.New()
		all.Go(func() {
			for i := range each {
				_, err := store.Append(context.Background(), row(workflow, 2*i, 100), row(workflow, 2*i+1, 3000))
				end := d.length()
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				ends[outbox.DispatchKey(workflow, uint64(2*i))] = end
				ends[outbox.DispatchKey(workflow, uint64(2*i+1))] = end
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for range losses {
		after := start + random.IntN(d.length()-start)
		left := openOn(t, "file:"+d.lose(t, random, after, random.Float64()), outbox.Normal)
		rows, err := left.List(context.Background(), outbox.Filter{})
		require.NoError(t, err)
		there := map[string]bool{}
		for _, row := range rows {
			there[row.DispatchKey] = true
		}
		for key, end := range ends {
			require.True(t, there[key] || end > after, "a call that has returned is lost")
		}
		require.Zero(t, len(rows)%2, "a call is stored by half")
		outboxtest.Check(t, left)
		require.NoError(t, left.Close())
	}
}

func newRand(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func openOn(t testing.TB, dataSourceName string, level outbox.Synchronous) *outbox.Store {
	t.Helper()
	store, err := outbox.Open(context.Background(), "sqlite3", dataSourceName, &outbox.Options{Synchronous: level})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

func row(workflow uuid.UUID, ordinal, size int) outbox.Row {
	return outbox.Row{
		WorkflowID: workflow, Ordinal: uint64(ordinal), ActivityType: "ship",
		Input: outbox.Payload{ContentType: "text/plain", Data: bytes.Repeat([]byte{'a' + byte(ordinal%26)}, size)},
	}
}

// workAndNote makes calls and notes after each what the store holds, and how
// much has happened on the disk: enough for SQLite to write its log back and
// begin it anew.
func workAndNote(t testing.TB, store *outbox.Store, random *rand.Rand, d *disk) (digests [][32]byte, ends []int) {
	t.Helper()
	ctx := context.Background()
	note := func() {
		digests, ends = append(digests, digest(t, store)), append(ends, d.length())
	}
	note()
	for i := range 100 {
		if i%5 == 0 { // makes the log long, and goes again
			ballast := uuid.New()
			_, err := store.Append(ctx, row(ballast, 0, 1_200_000))
			require.NoError(t, err)
			note()
			_, err = store.SettleWorkflow(ctx, ballast)
			require.NoError(t, err)
			note()
			_, err = store.Purge(ctx, time.Now().Add(time.Hour), 100)
			require.NoError(t, err)
			note()
		}
		workflow := uuid.New()
		var rows []outbox.Row
		for i := range 1 + random.IntN(6) {
			rows = append(rows, row(workflow, i, random.IntN(2)*random.IntN(20_000)))
		}
		_, err := store.Append(ctx, rows...)
		require.NoError(t, err)
		note()
		claimed, err := store.Claim(ctx, 1+random.IntN(6))
		require.NoError(t, err)
		note()
		refs := make([]outbox.Ref, len(claimed))
		for i, row := range claimed {
			refs[i] = row.Ref()
		}
		require.NoError(t, store.Complete(ctx, refs...))
		note()
	}
	return digests, ends
}

// digestOf is what a power loss leaves.
func digestOf(t testing.TB, d *disk, random *rand.Rand, after int) [32]byte {
	t.Helper()
	store := openOn(t, "file:"+d.lose(t, random, after, random.Float64()), outbox.Normal)
	outboxtest.Check(t, store)
	found := digest(t, store)
	require.NoError(t, store.Close())
	return found
}

func digest(t testing.TB, store *outbox.Store) [32]byte {
	t.Helper()
	all := sha256.New()
	rows, err := store.List(context.Background(), outbox.Filter{})
	require.NoError(t, err)
	for _, row := range rows {
		fmt.Fprintf(all, "%+v\n", row)
	}
	return [32]byte(all.Sum(nil))
}
