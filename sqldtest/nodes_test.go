//go:build sqld

package sqldtest

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var nodesFor = flag.Duration("nodes-for", 12*time.Second, "how long the test of several nodes appends rows")

// roleVariable makes the test binary a node: a process that appends rows to a
// server for a while, and claims and settles rows until none is left.
const roleVariable = "OUTBOX_TEST_NODE"

// node prints "appended KEY" for each row it staged and "claimed KEY FENCE" for
// each that it was handed.
func node(args []string) error {
	driver, url := args[0], args[1]
	duration, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), duration+time.Minute)
	defer cancel()
	store, err := outbox.Open(ctx, driver, url, nil)
	if err != nil {
		return err
	}
	defer store.Close()

	var (
		mu  sync.Mutex
		out = bufio.NewWriter(os.Stdout)
	)
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, format+"\n", args...)
	}
	appended := make(chan error, 1)
	go func() { appended <- appendFor(ctx, store, duration, say) }()
	for last := false; ; {
		rows, err := store.Claim(ctx, 50)
		if err != nil {
			return err
		}
		for _, row := range rows {
			say("claimed %s %d", row.DispatchKey, row.Fence)
		}
		if err := settle(ctx, store, rows); err != nil {
			return err
		}
		if len(rows) > 0 {
			continue
		}
		if last {
			return out.Flush()
		}
		select {
		case err := <-appended:
			if err != nil {
				return err
			}
			last = true // what it appended just now is still to be claimed, by this node or another
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func appendFor(ctx context.Context, store *outbox.Store, duration time.Duration, say func(string, ...any)) error {
	const batch = 10
	end := time.Now().Add(duration)
	for time.Now().Before(end) {
		workflow := uuid.New()
		rows := make([]outbox.Row, batch)
		for i := range rows {
			rows[i] = row(workflow, i)
			rows[i].Input.Data = make([]byte, 400*i) // the last are kept beside their rows
		}
		duplicates, err := store.Append(ctx, rows...)
		if err == nil && len(duplicates) > 0 {
			err = fmt.Errorf("new keys are duplicates: %q", duplicates)
		}
		if err != nil {
			return err
		}
		for i := range rows {
			say("appended %s", outbox.DispatchKey(workflow, uint64(i)))
		}
	}
	return nil
}

// settle completes rows, but for some, which it sends round a second time.
func settle(ctx context.Context, store *outbox.Store, rows []outbox.Row) error {
	var done []outbox.Ref
	for i, row := range rows {
		if i == 0 && row.Attempt == 0 {
			if err := store.Retry(ctx, row.Ref(), 1, time.Time{}, errors.New("once more")); err != nil {
				return err
			}
		} else {
			done = append(done, row.Ref())
		}
	}
	return store.Complete(ctx, done...)
}

func TestSeveralNodesHandOutEveryRowOncePerFence(t *testing.T) {
	eachDriver(t, testSeveralNodesHandOutEveryRowOncePerFence)
}

func testSeveralNodesHandOutEveryRowOncePerFence(t *testing.T, driver string) {
	const nodes = 4
	server := startServer(t)
	store := openOver(t, driver, server.url(), nil)

	var (
		mu       sync.Mutex
		appended = make(map[string]bool)
		handed   = make(map[outbox.Ref]int)
		all      sync.WaitGroup
	)
	start := time.Now()
	for range nodes {
		cmd := exec.Command(os.Args[0], driver, server.url(), nodesFor.String())
		cmd.Env = append(os.Environ(), roleVariable+"=node")
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		all.Go(func() {
			lines := bufio.NewScanner(out)
			for lines.Scan() {
				var (
					what, key string
					fence     int64
				)
				_, _ = fmt.Sscan(lines.Text(), &what, &key, &fence)
				mu.Lock()
				switch what {
				case "appended":
					appended[key] = true
				case "claimed":
					handed[outbox.Ref{DispatchKey: key, Fence: fence}]++
				default:
					assert.Fail(t, "a node says something else", lines.Text())
				}
				mu.Unlock()
			}
			assert.NoError(t, cmd.Wait(), "a node fails")
		})
	}
	all.Wait()
	elapsed := time.Since(start)

	require.NotEmpty(t, appended)
	for ref, times := range handed {
		require.Equal(t, 1, times, "row %s was handed out with fence %d more than once", ref.DispatchKey, ref.Fence)
	}
	rows := listAll(t, store)
	require.Len(t, rows, len(appended), "every row that was appended is stored, and no other")
	claims := 0
	for _, row := range rows {
		require.True(t, appended[row.DispatchKey])
		require.Equal(t, outbox.Done, row.Status, "row %s is stuck", row.DispatchKey)
		require.Equal(t, int64(row.Attempt)+1, row.Fence, "row %s was claimed by nobody who says so", row.DispatchKey)
		for fence := int64(1); fence <= row.Fence; fence++ {
			require.Equal(t, 1, handed[outbox.Ref{DispatchKey: row.DispatchKey, Fence: fence}],
				"row %s was lost with fence %d", row.DispatchKey, fence)
			claims++
		}
	}
	require.Len(t, handed, claims, "no claim is told of that the store does not know")
	outboxtest.Check(t, store)
	t.Logf("%d nodes: %d rows in %v, %.0f rows/s appended, claimed and settled",
		nodes, len(rows), elapsed.Round(time.Millisecond), float64(len(rows))/elapsed.Seconds())
}

// listAll lists page by page: a server bounds its answers.
func listAll(t testing.TB, store *outbox.Store) (all []outbox.Row) {
	t.Helper()
	for filter := (outbox.Filter{Limit: 1000}); ; {
		page, err := store.List(t.Context(), filter)
		require.NoError(t, err)
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		filter.After = page[len(page)-1].ID
	}
}
