package outbox_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// exercise makes every call of the API at least once, with work to do.
func exercise(t *testing.T, store *outbox.Store) {
	t.Helper()
	ctx := context.Background()
	workflow, held := uuid.New(), uuid.New()
	scope := outbox.Scope{Namespace: "default", TaskQueue: "default", Node: "n1"}
	var rows []outbox.Row
	for i := range 40 {
		row := row(workflow, i)
		row.Input.Data = make([]byte, i*100)
		if i%2 == 0 {
			row.Node = "n1"
		}
		rows = append(rows, row)
	}
	must := func(err error) {
		t.Helper()
		require.NoError(t, err)
	}
	_, err := store.Append(ctx, rows...)
	must(err)
	must(store.Rearm(ctx, row(held, 0), rows[0]))
	first, err := store.Claim(ctx, 5)
	must(err)
	_, err = store.ClaimExcluding(ctx, 5, held)
	must(err)
	second, err := store.ClaimScoped(ctx, scope, 5)
	must(err)
	_, err = store.ClaimScopedExcluding(ctx, scope, 5, held)
	must(err)
	must(store.Extend(ctx, first[0].Ref()))
	must(store.Complete(ctx, first[0].Ref(), first[1].Ref()))
	require.ErrorIs(t, store.Complete(ctx, outbox.Ref{DispatchKey: first[0].DispatchKey, Fence: 9}), outbox.ErrClaimLost)
	must(store.Retry(ctx, first[2].Ref(), 1, time.Time{}, nil))
	must(store.Fail(ctx, first[3].Ref(), nil))
	must(store.Cancel(ctx, first[4].Ref()))
	_, err = store.Requeue(ctx, first[3].DispatchKey)
	must(err)
	must(store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE outbox SET attempt = -1 WHERE dispatch_key = ?", first[3].DispatchKey)
		return err
	}))
	_, err = store.Claim(ctx, 100) // buries it
	must(err)
	_, err = store.ListStale(ctx, time.Now().Add(time.Hour), 5)
	must(err)
	_, err = store.RearmStale(ctx, time.Now().Add(time.Hour), time.Time{}, 5)
	must(err)
	_, err = store.Get(ctx, second[0].DispatchKey)
	must(err)
	_, err = store.State(ctx, second[0].DispatchKey)
	must(err)
	for _, status := range []outbox.Status{"", outbox.Pending, outbox.Failed} {
		_, err = store.List(ctx, outbox.Filter{Status: status, Namespace: "default", WorkflowID: uuid.NullUUID{UUID: workflow, Valid: true}, After: 1, Limit: 9})
		must(err)
		_, err = store.List(ctx, outbox.Filter{Status: status})
		must(err)
	}
	_, err = store.CountInFlight(ctx, "default")
	must(err)
	_, err = store.CountClaimed(ctx, "default")
	must(err)
	_, err = store.CountClaimedByNamespace(ctx, "default", "other")
	must(err)
	_, err = store.PendingRoutes(ctx)
	must(err)
	_, err = store.UnsettledWorkflows(ctx)
	must(err)
	_, _, err = store.NextVisible(ctx)
	must(err)
	_, err = store.SettleWorkflow(ctx, workflow)
	must(err)
	_, err = store.Purge(ctx, time.Now().Add(time.Hour), 10)
	must(err)
}

// No statement may walk the table, and none may sort what an index has in
// order. A SCAN of an index is one of these: they stop at the first row, or
// answer with what a partial index holds.
var scansAllowed = regexp.MustCompile(`^SCAN ((main\.)?outbox USING (COVERING )?INDEX outbox_(due|route|unsettled)|(ref|name|owner|place|json_each|bad|before|route|given|\(subquery-\d+\)) ?.*|\d+ CONSTANT ROWS?|CONSTANT ROW)`)

// columns are the packed columns, too long to be read in a log.
var columns = regexp.MustCompile(`(?s)CAST\(concat_ws.*?AS BLOB\)`)

func TestNoStatementScansTheTable(t *testing.T) {
	db, recorded := openRecorded(t)
	store := outbox.New(db, nil)
	ctx := context.Background()
	require.NoError(t, store.Migrate(ctx))
	clear(recorded.seen)
	exercise(t, store)

	explained := 0
	for query, args := range recorded.seen {
		verb, _, _ := strings.Cut(strings.TrimSpace(query), " ")
		if !slices.Contains([]string{"SELECT", "WITH", "UPDATE", "DELETE", "INSERT"}, strings.Fields(verb)[0]) {
			continue
		}
		explained++
		var values []any
		for _, arg := range args {
			values = append(values, arg.Value)
		}
		rows, err := db.QueryContext(ctx, "EXPLAIN QUERY PLAN "+query, values...)
		require.NoError(t, err)
		var plan []string
		for rows.Next() {
			var id, parent, unused int
			var detail string
			require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
			plan = append(plan, detail)
		}
		require.NoError(t, rows.Err())
		whole := columns.ReplaceAllString(query, "…") + "\n" + strings.Join(plan, "\n")
		for _, step := range plan {
			if strings.HasPrefix(step, "SCAN") {
				require.Regexp(t, scansAllowed, step, whole)
			}
			require.NotContains(t, step, "AUTOMATIC", whole)
		}
		if strings.Contains(query, "ORDER BY") && !strings.Contains(query, "UNION ALL") {
			require.NotContains(t, strings.Join(plan, "\n"), "TEMP B-TREE", whole)
		}
		t.Log(whole)
	}
	require.Greater(t, explained, 25)
}
