package torture

import (
	"strings"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Each call is made on the store of one node, and then on the model with the
// instant that the store has read.

func (m *machine) append(r *rapid.T) {
	n, rows := m.node(r), drawRows(r)
	got, err := n.store.Append(m.ctx, rows...)
	want, wantErr := m.model.append(n.now(r, 1), rows)
	requireOutcome(r, wantErr, err)
	require.Equal(r, want, orNone(got))
}

func (m *machine) rearm(r *rapid.T) {
	n, rows := m.node(r), drawRows(r)
	err := n.store.Rearm(m.ctx, rows...)
	requireOutcome(r, m.model.rearm(n.now(r, 1), rows), err)
}

func (m *machine) claim(r *rapid.T) {
	n, limit := m.node(r), drawLimit(r)
	var held []uuid.UUID
	if rapid.Bool().Draw(r, "excluding") {
		held = make([]uuid.UUID, rapid.IntRange(0, 4).Draw(r, "held"))
		for i := range held {
			held[i] = drawWorkflow(r)
		}
	}
	var (
		got   []outbox.Row
		err   error
		scope *outbox.Scope
	)
	if rapid.Bool().Draw(r, "scoped") {
		scope = m.drawScope(r)
	}
	switch {
	case scope == nil && held == nil:
		got, err = n.store.Claim(m.ctx, limit)
	case scope == nil:
		got, err = n.store.ClaimExcluding(m.ctx, limit, held...)
	case held == nil:
		got, err = n.store.ClaimScoped(m.ctx, *scope, limit)
	default:
		got, err = n.store.ClaimScopedExcluding(m.ctx, *scope, limit, held...)
	}
	want, wantErr := m.model.claim(n.now(r, anyTimes), limit, scope, held)
	requireOutcome(r, wantErr, err)
	requireRows(r, want, got)
	for _, row := range got {
		require.Equal(r, outbox.Ref{DispatchKey: row.DispatchKey, Fence: row.Fence}, row.Ref())
		require.NotContains(r, m.handed, row.Ref(), "a fence repeats")
		require.True(r, scope == nil || scope.Admits(row))
		m.handed = append(m.handed, row.Ref())
	}
}

// drawScope gives the route of a row that waits, or nearly that.
func (m *machine) drawScope(r *rapid.T) *outbox.Scope {
	waiting := m.model.where(func(row outbox.Row) bool { return row.Status == outbox.Pending }, visibleAfter)
	var like outbox.Row
	if len(waiting) > 0 {
		like = waiting[rapid.IntRange(0, len(waiting)-1).Draw(r, "like")]
	}
	scope := outbox.Scope{Namespace: like.Namespace, TaskQueue: like.TaskQueue, Node: like.Node}
	switch rapid.SampledFrom([]string{"node", "node", "namespace", "queue", "", ""}).Draw(r, "miss") {
	case "node":
		scope.Node = badly(r, append(near(scope.Node), someNodes...), "node")
	case "namespace":
		scope.Namespace = badly(r, near(scope.Namespace), "namespace")
	case "queue":
		scope.TaskQueue = badly(r, near(scope.TaskQueue), "queue")
	}
	return &scope
}

// near gives texts that a sloppy comparison takes for this one.
func near(text string) []string {
	return []string{strings.ToUpper(text), strings.ToLower(text), text + " ", strings.TrimSpace(text), ""}
}

func (m *machine) extend(r *rapid.T) {
	n, refs := m.node(r), m.drawRefs(r)
	err := n.store.Extend(m.ctx, refs...)
	requireOutcome(r, m.model.extend(n.now(r, 1), refs), err)
}

func (m *machine) listStale(r *rapid.T) {
	n, olderThan, limit := m.node(r), drawInstant(r, "older than"), drawLimit(r)
	got, err := n.store.ListStale(m.ctx, olderThan, limit)
	want, wantErr := m.model.listStale(olderThan, limit)
	requireOutcome(r, wantErr, err)
	requireRows(r, want, got)
}

func (m *machine) rearmStale(r *rapid.T) {
	n, olderThan, after, limit := m.node(r), drawInstant(r, "older than"), drawInstant(r, "visible after"), drawLimit(r)
	got, err := n.store.RearmStale(m.ctx, olderThan, after, limit)
	want, wantErr := m.model.rearmStale(n.now(r, 1), olderThan, after, limit)
	requireOutcome(r, wantErr, err)
	requireRows(r, want, got)
}

func (m *machine) complete(r *rapid.T) {
	n, refs := m.node(r), m.drawRefs(r)
	err := n.store.Complete(m.ctx, refs...)
	requireOutcome(r, m.model.complete(n.now(r, 1), refs), err)
}

func (m *machine) cancel(r *rapid.T) {
	n, refs := m.node(r), m.drawRefs(r)
	err := n.store.Cancel(m.ctx, refs...)
	requireOutcome(r, m.model.cancel(n.now(r, 1), refs), err)
}

func (m *machine) fail(r *rapid.T) {
	n, ref, cause := m.node(r), m.drawOneRef(r), drawCause(r)
	err := n.store.Fail(m.ctx, ref, cause)
	requireOutcome(r, m.model.fail(n.now(r, 1), ref, cause), err)
}

func (m *machine) retry(r *rapid.T) {
	n, ref, cause := m.node(r), m.drawOneRef(r), drawCause(r)
	attempt, after := rapid.Uint32().Draw(r, "attempt"), drawInstant(r, "visible after")
	err := n.store.Retry(m.ctx, ref, attempt, after, cause)
	requireOutcome(r, m.model.retry(n.now(r, 1), ref, attempt, after, cause), err)
}

func drawCause(r *rapid.T) error {
	return causes[rapid.IntRange(0, len(causes)-1).Draw(r, "cause")]
}

func (m *machine) settleWorkflow(r *rapid.T) {
	n, workflow := m.node(r), drawWorkflow(r)
	got, err := n.store.SettleWorkflow(m.ctx, workflow)
	want, wantErr := m.model.settleWorkflow(n.now(r, 1), workflow)
	requireOutcome(r, wantErr, err)
	require.Equal(r, orNone(want), orNone(got))
}

func (m *machine) requeue(r *rapid.T) {
	n, keys := m.node(r), make([]string, rapid.IntRange(0, 6).Draw(r, "keys"))
	for i := range keys {
		keys[i] = m.drawKey(r)
	}
	got, err := n.store.Requeue(m.ctx, keys...)
	want, wantErr := m.model.requeue(n.now(r, 1), keys)
	requireOutcome(r, wantErr, err)
	require.Equal(r, want, got)
}

// purge also forgets the refs that were handed out for rows that are gone, as
// their fences start again.
func (m *machine) purge(r *rapid.T) {
	n, before, limit := m.node(r), drawInstant(r, "finished before"), drawLimit(r)
	got, err := n.store.Purge(m.ctx, before, limit)
	kept, listErr := n.store.List(m.ctx, outbox.Filter{})
	require.NoError(r, listErr)
	want, wantErr := m.model.purge(before, limit, byKey(kept))
	requireOutcome(r, wantErr, err)
	require.Equal(r, want, got)
	var still []outbox.Ref
	for _, ref := range m.handed {
		if _, ok := m.model.rows[ref.DispatchKey]; ok {
			still = append(still, ref)
		}
	}
	m.handed = still
}

func (m *machine) get(r *rapid.T) {
	n, key := m.node(r), m.drawKey(r)
	got, err := n.store.Get(m.ctx, key)
	want, wantErr := m.model.get(key)
	requireOutcome(r, wantErr, err)
	requireRows(r, []outbox.Row{want}, []outbox.Row{got})
	state, err := n.store.State(m.ctx, key)
	wantState, wantErr := m.model.state(key)
	requireOutcome(r, wantErr, err)
	require.Equal(r, wantState, state)
}

// list walks pages of a filter to the end.
func (m *machine) list(r *rapid.T) {
	n := m.node(r)
	filter := outbox.Filter{
		Status:    rapid.SampledFrom(append([]outbox.Status{"", "", "", "paused"}, statuses...)).Draw(r, "status"),
		Namespace: badly(r, append([]string{"", "", "", ""}, routes...), "namespace"),
		After:     rapid.SampledFrom([]int64{0, 0, 0, 3, -1, 1 << 40}).Draw(r, "after"),
		Limit:     rapid.SampledFrom([]int{0, 1, 2, 7, -1}).Draw(r, "page"),
	}
	if rapid.Bool().Draw(r, "of a workflow") {
		filter.WorkflowID = uuid.NullUUID{UUID: drawWorkflow(r), Valid: true}
	}
	for {
		got, err := n.store.List(m.ctx, filter)
		want, wantErr := m.model.list(filter)
		requireOutcome(r, wantErr, err)
		requireRows(r, want, got)
		if len(got) == 0 || filter.Limit == 0 {
			return
		}
		filter.After = got[len(got)-1].ID
	}
}

func (m *machine) count(r *rapid.T) {
	n := m.node(r)
	namespaces := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) string { return badly(r, routes, "namespace") }), 0, 4).Draw(r, "namespaces")
	got, err := n.store.CountClaimedByNamespace(m.ctx, namespaces...)
	want, wantErr := m.model.countClaimedByNamespace(namespaces)
	requireOutcome(r, wantErr, err)
	require.Equal(r, want, got)
	for _, namespace := range namespaces {
		got, err := n.store.CountInFlight(m.ctx, namespace)
		want, wantErr := m.model.count(namespace, live)
		requireOutcome(r, wantErr, err)
		require.Equal(r, want, got)
		got, err = n.store.CountClaimed(m.ctx, namespace)
		want, wantErr = m.model.count(namespace, isClaimed)
		requireOutcome(r, wantErr, err)
		require.Equal(r, want, got)
	}
}

// routes asks what a dispatcher asks between claims.
func (m *machine) routes(r *rapid.T) {
	n := m.node(r)
	routes, err := n.store.PendingRoutes(m.ctx)
	require.NoError(r, err)
	require.Equal(r, orNone(m.model.pendingRoutes(n.now(r, anyTimes))), routes)
	workflows, err := n.store.UnsettledWorkflows(m.ctx)
	require.NoError(r, err)
	require.Equal(r, orNone(m.model.unsettledWorkflows()), workflows)
	at, ok, err := n.store.NextVisible(m.ctx)
	require.NoError(r, err)
	wantAt, wantOK := m.model.nextVisible()
	require.Equal(r, []any{wantAt, wantOK}, []any{at, ok})
}
