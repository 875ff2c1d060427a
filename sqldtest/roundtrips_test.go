//go:build sqld

package sqldtest

import (
	"testing"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestCallsTakeFewRequests(t *testing.T) {
	proxy := newProxy(t, startServer(t))
	store := open(t, proxy.url(), nil)
	ctx := t.Context()

	rows := func(n, size int) []outbox.Row {
		workflow := uuid.New()
		var list []outbox.Row
		for i := range n {
			row := row(workflow, i)
			row.Input.Data = make([]byte, size)
			list = append(list, row)
		}
		return list
	}
	var claimed []outbox.Row
	claim := func(n int) func() {
		return func() {
			var err error
			claimed, err = store.Claim(ctx, n)
			require.NoError(t, err)
			require.Len(t, claimed, n)
		}
	}
	refs := func() (list []outbox.Ref) {
		for _, row := range claimed {
			list = append(list, row.Ref())
		}
		return list
	}
	stage := func(n, size int) func() {
		return func() {
			duplicates, err := store.Append(ctx, rows(n, size)...)
			require.NoError(t, err)
			require.Empty(t, duplicates)
		}
	}
	must := func(call func() error) func() { return func() { require.NoError(t, call()) } }
	nothing := func() {
		rows, err := store.Claim(ctx, 1)
		require.NoError(t, err)
		require.Empty(t, rows)
	}
	for _, step := range []struct {
		name string
		call func()
		most int64
	}{
		{"append 1", stage(1, 256), 4},
		{"append 100", stage(100, 256), 4},
		{"claim 101", claim(101), 4},
		{"complete 101", must(func() error { return store.Complete(ctx, refs()...) }), 4},
		{"claim nothing, after a claim that found something", nothing, 4},
		{"claim nothing again", nothing, 2},
		{"append 100 with large payloads", stage(100, 8000), 6},
		{"claim 100 with large payloads", claim(100), 6},
		{"extend 100", must(func() error { return store.Extend(ctx, refs()...) }), 4},
		{"retry", must(func() error { return store.Retry(ctx, claimed[0].Ref(), 1, time.Time{}, nil) }), 4},
		{"fail", must(func() error { return store.Fail(ctx, claimed[1].Ref(), nil) }), 4},
		{"cancel 98", must(func() error { return store.Cancel(ctx, refs()[2:]...) }), 4},
		{"settle a workflow", must(func() error { _, err := store.SettleWorkflow(ctx, claimed[0].WorkflowID); return err }), 4},
		{"count claimed of many", must(func() error { _, err := store.CountClaimedByNamespace(ctx, "a", "b", "c"); return err }), 2},
		{"routes", must(func() error { _, err := store.PendingRoutes(ctx); return err }), 2},
		{"get", must(func() error { _, err := store.Get(ctx, claimed[0].DispatchKey); return err }), 2},
	} {
		cost := proxy.cost(step.call)
		t.Logf("%-50s %d requests", step.name, cost)
		require.LessOrEqual(t, cost, step.most, step.name)
		require.NotZero(t, cost, step.name)
	}
}
