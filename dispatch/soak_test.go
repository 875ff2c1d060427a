package dispatch_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

var (
	soakRows = flag.Int("soak-rows", 1000, "rows of the soak test")
	soakSeed = flag.Uint64("soak-seed", 0, "seed of the soak test; 0: a random one")
)

// soakFile is the environment variable that makes this program a worker on the
// file it names.
const soakFile = "DISPATCH_SOAK_FILE"

func TestMain(m *testing.M) {
	if file := os.Getenv(soakFile); file != "" {
		go func() { // does not outlive the test
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
		fmt.Fprintln(os.Stderr, soakWorker(file))
		os.Exit(1) // it is killed sooner
	}
	os.Exit(m.Run())
}

// fate is what the handler makes of a row, which depends on its key: a number of
// errors, and then an end.
type fate struct {
	failures uint32
	end      string
}

func fateOf(key string) fate {
	hash := fnv.New32a()
	hash.Write([]byte(key))
	n := hash.Sum32()
	return fate{failures: n / 7 % 4, end: []string{"done", "done", "done", "panics", "permanent", "accepted", "slow"}[n%7]}
}

// want is how the row ends, however often a process died on the way: attempts
// are spent by what handlers returned alone.
func (f fate) want() (outbox.Status, uint32) {
	switch f.end {
	case "permanent":
		return outbox.Failed, f.failures
	case "panics":
		return outbox.Failed, soakAttempts - 1
	}
	return outbox.Done, f.failures
}

const soakAttempts = 6

// soakWorker dispatches until it is killed.
func soakWorker(file string) error {
	ctx := context.Background()
	store, err := outbox.Open(ctx, "libsql", "file:"+file, &outbox.Options{Synchronous: outbox.Normal, Logger: quiet()})
	if err != nil {
		return err
	}
	handler := func(ctx context.Context, row outbox.Row) error {
		fate := fateOf(row.DispatchKey)
		time.Sleep(10 * time.Millisecond) // is work
		if fate.end == "panics" {
			panic("of the soak test")
		}
		if row.Attempt < fate.failures {
			switch row.Attempt {
			case 0:
				return dispatch.RetryNow(errors.New("at once"))
			case 1:
				return dispatch.RetryAfter(time.Millisecond, errors.New("soon"))
			}
			return errors.New("once more")
		}
		switch fate.end {
		case "permanent":
			return dispatch.Permanent(errors.New("for good"))
		case "accepted": // and completed by key, by another who may be late
			time.AfterFunc(time.Millisecond, func() {
				_ = store.Complete(context.Background(), outbox.Ref{DispatchKey: row.DispatchKey})
			})
			return dispatch.Accepted
		case "slow": // for longer than its lease
			select {
			case <-time.After(250 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	held := uuid.MustParse(soakHeld)
	return dispatch.New(store, handler, &dispatch.Options{
		Concurrency: 8, MaxAttempts: soakAttempts, MaxClaims: math.MaxInt, MaxPerNamespace: dispatch.Limit(5),
		Backoff: dispatch.Exponential(time.Millisecond, 4*time.Millisecond),
		Lease:   200 * time.Millisecond, PollInterval: 20 * time.Millisecond, Logger: quiet(),
		Held: func() []uuid.UUID { // is paused every other moment
			if time.Now().UnixMilli()/100%2 == 0 {
				return []uuid.UUID{held}
			}
			return nil
		},
	}).Run(ctx)
}

const soakHeld = "5f3c9f0a-0000-4000-8000-000000000001"

// TestSoak has processes work that are killed at random moments, until every row
// is settled, each exactly as its handler's results say.
func TestSoak(t *testing.T) {
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-soak-seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	file := filepath.Join(t.TempDir(), "outbox.db")
	store, err := outbox.Open(t.Context(), "libsql", "file:"+file, nil)
	require.NoError(t, err)
	defer store.Close()
	for i := range *soakRows {
		workflow := uuid.MustParse(soakHeld)
		if i%10 > 0 {
			workflow = uuid.New()
		}
		_, err := store.Append(t.Context(), outbox.Row{
			WorkflowID: workflow, Ordinal: uint64(i), ActivityType: "soak", Namespace: fmt.Sprint("tenant-", i%7),
		})
		require.NoError(t, err)
	}

	const workers = 2
	processes := make([]*exec.Cmd, workers)
	kills := 0
	defer func() {
		for _, process := range processes {
			if process != nil {
				_ = process.Process.Kill()
				_ = process.Wait()
			}
		}
	}()
	for live := true; live; {
		for i, process := range processes {
			if process == nil {
				processes[i] = exec.Command(os.Args[0])
				processes[i].Env = append(os.Environ(), soakFile+"="+file)
				processes[i].Stderr = os.Stderr
				_, err := processes[i].StdinPipe() // open for as long as this process is alive
				require.NoError(t, err)
				require.NoError(t, processes[i].Start())
			}
		}
		select {
		case <-time.After(time.Duration(50+random.IntN(400)) * time.Millisecond):
		case <-t.Context().Done():
		}
		i := random.IntN(workers)
		require.NoError(t, processes[i].Process.Kill())
		_ = processes[i].Wait()
		processes[i] = nil
		kills++
		workflows, err := store.UnsettledWorkflows(t.Context())
		require.NoError(t, err)
		live = len(workflows) > 0
	}
	t.Logf("%d kills", kills)
	rows, err := store.List(t.Context(), outbox.Filter{})
	require.NoError(t, err)
	require.Len(t, rows, *soakRows)
	for _, row := range rows {
		status, attempt := fateOf(row.DispatchKey).want()
		require.Equal(t, status, row.Status, "%+v", row)
		require.Equal(t, attempt, row.Attempt, "%+v", row)
	}
	outboxtest.Check(t, store)
}
