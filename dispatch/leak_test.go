package dispatch_test

import (
	"context"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// ourGoroutines returns the stacks of goroutines that this module's packages
// started or run in, but for tests.
func ourGoroutines() (stacks []string) {
	all := make([]byte, 4<<20)
	all = all[:runtime.Stack(all, true)]
	for _, stack := range strings.Split(string(all), "\n\n") {
		if strings.Contains(stack, "example.com/outbox.") || strings.Contains(stack, "example.com/outbox/dispatch.") {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

// requireNoGoroutines waits for goroutines that have done their work to be gone.
func requireNoGoroutines(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool { return len(ourGoroutines()) == 0 }, 10*time.Second, time.Millisecond,
		"%s", strings.Join(ourGoroutines(), "\n\n"))
}

func TestRunLeavesNoGoroutineBehind(t *testing.T) {
	open := func(name string) *outbox.Store {
		store, err := outbox.Open(t.Context(), "libsql", name, &outbox.Options{Logger: quiet()})
		require.NoError(t, err)
		_, err = store.Append(t.Context(), outbox.Row{WorkflowID: uuid.New(), ActivityType: "test"})
		require.NoError(t, err)
		return store
	}
	started := make(chan struct{}, 10)
	waits := func(ctx context.Context, _ outbox.Row) error {
		started <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	opts := func(pool *dispatch.Pool) *dispatch.Options {
		return &dispatch.Options{Logger: quiet(), ShutdownTimeout: 1, Pool: pool, HandlerTimeout: time.Hour}
	}
	for name, file := range map[string]string{"memory": ":memory:", "file": "file:" + filepath.Join(t.TempDir(), "outbox.db")} {
		t.Run(name+", stopped", func(t *testing.T) {
			store := open(file)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- dispatch.New(store, waits, opts(nil)).Run(ctx) }()
			<-started
			stop()
			require.NoError(t, <-ended)
			require.NoError(t, store.Close())
			requireNoGoroutines(t)
		})
		t.Run(name+", closed", func(t *testing.T) {
			store := open(file)
			ended := make(chan error)
			go func() { ended <- dispatch.New(store, waits, opts(nil)).Run(t.Context()) }()
			<-started
			require.NoError(t, store.Close())
			require.ErrorIs(t, <-ended, outbox.ErrClosed)
			requireNoGoroutines(t)
		})
	}
	t.Run("several", func(t *testing.T) {
		pool := dispatch.NewPool(1)
		stores := []*outbox.Store{open(":memory:"), open(":memory:"), open(":memory:")}
		var dispatchers []*dispatch.Dispatcher
		for _, store := range stores {
			dispatchers = append(dispatchers, dispatch.New(store, waits, opts(pool)))
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- dispatch.RunAll(ctx, dispatchers...) }()
		<-started
		stop()
		require.NoError(t, <-ended)
		for _, store := range stores {
			require.NoError(t, store.Close())
		}
		requireNoGoroutines(t)
	})
}
