package dispatch_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	_ "github.com/tursodatabase/go-libsql"
)

// bench is a store in memory with a dispatcher on it, in a bubble whose clock
// advances when nothing is left to do.
type bench struct {
	t     *testing.T
	store *outbox.Store
	stop  context.CancelFunc
	ended chan error // what Run returned
}

// inBubble runs test with a store in memory. What it starts must have ended when
// it returns.
func inBubble(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, err := outbox.Open(context.Background(), "libsql", ":memory:", &outbox.Options{Logger: quiet()})
		require.NoError(t, err)
		b := &bench{t: t, store: store}
		test(t, b)
		if b.stop != nil {
			b.end()
		}
		outboxtest.Check(t, store)
		require.NoError(t, store.Close())
	})
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// run starts a dispatcher.
func (b *bench) run(handler dispatch.Handler, opts dispatch.Options) *dispatch.Dispatcher {
	b.t.Helper()
	if opts.Logger == nil {
		opts.Logger = quiet()
	}
	dispatcher := dispatch.New(b.store, handler, &opts)
	var ctx context.Context
	ctx, b.stop = context.WithCancel(b.t.Context())
	b.ended = make(chan error, 1)
	go func() { b.ended <- dispatcher.Run(ctx) }()
	return dispatcher
}

// end stops the dispatcher, which must end cleanly.
func (b *bench) end() {
	b.t.Helper()
	b.stop()
	require.NoError(b.t, <-b.ended)
	b.stop = nil
}

// append stages n rows of a workflow of its own and returns their keys.
func (b *bench) append(n int, change func(row *outbox.Row)) []string {
	b.t.Helper()
	workflow := uuid.New()
	rows := make([]outbox.Row, n)
	keys := make([]string, n)
	for i := range rows {
		rows[i] = outbox.Row{WorkflowID: workflow, Ordinal: uint64(i), ActivityType: "test"}
		keys[i] = outbox.DispatchKey(workflow, uint64(i))
		if change != nil {
			change(&rows[i])
		}
	}
	_, err := b.store.Append(b.t.Context(), rows...)
	require.NoError(b.t, err)
	return keys
}

func (b *bench) get(key string) outbox.Row {
	b.t.Helper()
	row, err := b.store.Get(b.t.Context(), key)
	require.NoError(b.t, err)
	return row
}

func (b *bench) requireStatus(want outbox.Status, keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		require.Equal(b.t, want, b.get(key).Status, key)
	}
}

// recorder notes what it is told.
type recorder struct {
	mu       sync.Mutex
	claimed  int
	largest  int // claim
	outcomes map[dispatch.Outcome]int
	errors   map[string]int
}

func (r *recorder) observer() dispatch.Observer {
	r.outcomes, r.errors = map[dispatch.Outcome]int{}, map[string]int{}
	return dispatch.Observer{
		Claimed: func(rows []outbox.Row) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.claimed += len(rows)
			r.largest = max(r.largest, len(rows))
		},
		Settled: func(_ context.Context, _ outbox.Row, outcome dispatch.Outcome, _ time.Duration, _ error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.outcomes[outcome]++
		},
		Recovered: func(_ outbox.Row, outcome dispatch.Outcome) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.outcomes["recovered: "+outcome]++
		},
		StoreError: func(operation string, _ error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.errors[operation]++
		},
	}
}

func (r *recorder) count(outcome dispatch.Outcome) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outcomes[outcome]
}

func nothing(context.Context, outbox.Row) error { return nil }

var errTest = errors.New("did not work")
