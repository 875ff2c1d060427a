package main

import (
	"context"
	"os"
	"testing"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestMain is main in the process that a test has killed.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == doomed {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// Definitions of the tests.
const (
	two   = "two"   // steps
	twice = "twice" // runs
)

// bench is an engine on a store in memory, with a workflow that is looked at.
type bench struct {
	t        *testing.T
	store    *outbox.Store
	engine   *engine
	workflow uuid.UUID
	far      chan string // keys that were accepted
}

func newBench(t *testing.T) *bench {
	t.Helper()
	store, err := outbox.Open(t.Context(), "libsql", ":memory:", nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		outboxtest.Check(t, store)
		require.NoError(t, store.Close())
	})
	b := &bench{t: t, store: store, workflow: uuid.New(), far: make(chan string, 1)}
	b.newEngine()
	return b
}

func (b *bench) newEngine() {
	b.t.Helper()
	var err error
	b.engine, err = newEngine(b.t.Context(), b.store, map[string]definition{
		two:   {steps: [][]string{{"first"}, {"second"}}},
		twice: {steps: [][]string{{"far"}}, runs: 2},
	}, map[string]dispatch.Handler{"first": work, "second": work, "far": handOver(b.far)})
	require.NoError(b.t, err)
}

// run has the engine dispatch until the test ends.
func (b *bench) run() {
	b.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.engine.dispatcher.Run(ctx) }()
	b.t.Cleanup(func() {
		stop()
		require.NoError(b.t, <-ended)
	})
}

func (b *bench) start(name string) {
	b.t.Helper()
	require.NoError(b.t, b.engine.start(b.t.Context(), b.workflow, name))
}

// claim takes the only row that is due, as a dispatcher would.
func (b *bench) claim() outbox.Row {
	b.t.Helper()
	rows, err := b.store.Claim(b.t.Context(), 2)
	require.NoError(b.t, err)
	require.Len(b.t, rows, 1)
	return rows[0]
}

func (b *bench) await(wanted func(*workflow) bool) *workflow {
	b.t.Helper()
	w, err := b.engine.await(b.t.Context(), b.workflow, wanted)
	require.NoError(b.t, err)
	return w
}

// history is what happened to the workflow, in words.
func (b *bench) history() (texts []string) {
	b.t.Helper()
	for _, e := range b.await(anyhow).history {
		texts = append(texts, e.what+" "+e.detail)
	}
	return texts
}

// status is that of the row which the event of that number scheduled.
func (b *bench) status(number uint64) outbox.Status {
	b.t.Helper()
	state, err := b.store.State(b.t.Context(), outbox.DispatchKey(b.workflow, number))
	require.NoError(b.t, err)
	return state.Status
}

// refuse makes the database refuse rows of an activity.
func (b *bench) refuse(activity string) {
	b.t.Helper()
	err := b.store.Update(b.t.Context(), func(ctx context.Context, tx outbox.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TRIGGER refuse_`+activity+` BEFORE INSERT ON outbox
			WHEN NEW.activity_type = '`+activity+`' BEGIN SELECT RAISE(ABORT, 'refused'); END`)
		return err
	})
	require.NoError(b.t, err)
}
