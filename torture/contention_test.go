package torture_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Many processes write to one file, with little time for some of their calls,
// while other programs hold its locks.
func TestContentionLeavesEveryCallWithItsOutcome(t *testing.T) {
	const processes, goroutines = 6, 8
	for _, how := range []setting{walNormal, rollback} {
		t.Run(string(how), func(t *testing.T) {
			random := newRand(t)
			file := filepath.Join(t.TempDir(), "outbox.db")
			store, closeAll, err := openFile(context.Background(), how, file)
			require.NoError(t, err)
			defer func() { require.NoError(t, closeAll()) }()

			var (
				all      sync.WaitGroup
				workers  []*child
				made     = make([][]call, processes)
				lockers  []*child
				argument = func() string { return strconv.FormatUint(random.Uint64(), 10) }
			)
			lockers = append(lockers,
				startChild(t, "hold-lock", file, "BEGIN IMMEDIATE", "10ms", argument()),
				startChild(t, "hold-lock", file, "BEGIN", "150ms", argument()))
			for i := range processes {
				told, err := json.Marshal(job{File: file, How: how, Seed: random.Uint64(), Workers: goroutines, Deadlines: 0.15})
				require.NoError(t, err)
				worker := startChild(t, "work", string(told))
				workers = append(workers, worker)
				all.Go(func() { made[i] = worker.calls(func(int) {}) })
			}
			time.Sleep(*contention) // how long it is measured, not what is waited for
			for _, worker := range workers {
				worker.stop()
			}
			all.Wait()
			for _, worker := range workers {
				worker.wait()
			}
			for i, what := range []string{"the write lock", "a read lock"} {
				lockers[i].stop()
				held, _ := lockers[i].line()
				lockers[i].wait()
				t.Logf("another program held %s %s times", what, held)
				assert.NotEqual(t, "0", held)
			}

			outboxtest.Check(t, store)
			l := newLedger()
			l.audit(t, slices.Concat(made...), takeSnapshot(t, store))
			for i := range made {
				requireFairness(t, made[i], goroutines)
			}
			tally(t, slices.Concat(made...))
			finishTheRest(t, store, l)
		})
	}
}

// requireFairness fails the test if one goroutine of a process got to make far
// fewer calls than the others, all of which do the same.
func requireFairness(t *testing.T, calls []call, goroutines int) {
	t.Helper()
	made := make([]int, goroutines)
	for _, c := range calls {
		if c.Outcome == stored {
			made[c.Worker]++
		}
	}
	slices.Sort(made)
	t.Logf("calls of a process by goroutine: %v", made)
	// All are at it for the same time. What they do differs at random, which
	// shows while they have made few calls.
	require.LessOrEqual(t, made[len(made)-1], 3*made[0]+10)
}

// tally logs how often calls had which outcome.
func tally(t *testing.T, calls []call) {
	counts := map[string]int{}
	for _, c := range calls {
		outcome := string(c.Outcome)
		switch {
		case c.Outcome == unanswered:
			outcome = "unknown"
		case len(c.Lost) > 0:
			outcome += ", some refs lost"
		}
		counts[fmt.Sprintf("%s, %s", c.Kind, outcome)]++
	}
	t.Logf("%d calls: %v", len(calls), counts)
}

// finishTheRest settles what is left, and checks that all of it can be.
func finishTheRest(t *testing.T, store *outbox.Store, l *ledger) {
	t.Helper()
	ctx := context.Background()
	_, err := store.RearmStale(ctx, time.Now().Add(time.Hour), time.Time{}, 1<<30)
	require.NoError(t, err)
	for {
		rows, err := store.Claim(ctx, 1000)
		require.NoError(t, err)
		if len(rows) == 0 {
			break
		}
		l.hand(t, refsOf(rows))
		require.NoError(t, store.Complete(ctx, refsOf(rows)...))
	}
	inFlight, err := store.CountInFlight(ctx, outbox.DefaultRoute)
	require.NoError(t, err)
	require.Zero(t, inFlight)
	outboxtest.Check(t, store)
}
