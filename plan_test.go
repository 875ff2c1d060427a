package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"path/filepath"
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
	for range 2 { // then all keys are taken
		_, err := store.Append(ctx, append(rows, row(uuid.New(), 99))...)
		must(err)
	}
	must(store.Rearm(ctx, row(held, 0), rows[0]))
	large := row(uuid.New(), 0)
	large.Input.Data = make([]byte, 5000)
	must(store.Rearm(ctx, large))
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
	// One settled row is referred to, and the others can be purged.
	must(store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
		for _, statement := range []string{
			"CREATE TABLE receipt (dispatch TEXT REFERENCES outbox (dispatch_key))", "CREATE INDEX receipt_dispatch ON receipt (dispatch)",
			"INSERT INTO receipt SELECT dispatch_key FROM outbox WHERE finished_at IS NOT NULL LIMIT 1",
		} {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	}))
	_, err = store.Purge(ctx, time.Now().Add(time.Hour), 1<<20)
	require.ErrorIs(t, err, outbox.ErrReferenced, "this driver enforces foreign keys")
	for name, call := range everyCall(store, outbox.Ref{DispatchKey: second[0].DispatchKey}, nil) {
		if name == "Migrate" { // looks at the schema
			continue
		}
		if err := call(ctx); err != nil {
			require.True(t, errors.Is(err, outbox.ErrNotFound) || errors.Is(err, outbox.ErrReferenced) || errors.Is(err, errors.ErrUnsupported), err)
		}
	}
}

// What may be scanned: an index, up to the first row or for what a partial one
// holds; lists that a call has brought; and what a subquery has limited.
var scansAllowed = regexp.MustCompile(`^SCAN ((main\.)?outbox USING (COVERING )?INDEX outbox_(due|route|unsettled|claims)|(ref|name|owner|place|json_each|bad|before|tenant|route|given|\(subquery-\d+\)) ?.*|\d+ CONSTANT ROWS?|CONSTANT ROW)`)

// packed are the columns of a row, too long to be read in a log.
var packed = regexp.MustCompile(`(?s)CAST\(concat_ws.*?AS BLOB\)`)

// step is a line of EXPLAIN QUERY PLAN.
type step struct {
	id, parent int
	what       string
}

// requireNoScan fails the test if a statement walks the table, or sorts what an
// index has in order.
func requireNoScan(t *testing.T, db *sql.DB, query string, args []any) {
	t.Helper()
	rows, err := db.Query("EXPLAIN QUERY PLAN "+query, args...)
	require.NoError(t, err, query)
	defer rows.Close()
	var plan []step
	whole := packed.ReplaceAllString(query, "…")
	for rows.Next() {
		var one step
		var unused int
		require.NoError(t, rows.Scan(&one.id, &one.parent, &unused, &one.what))
		plan = append(plan, one)
		whole += "\n" + one.what
	}
	require.NoError(t, rows.Err())
	for _, one := range plan {
		if strings.HasPrefix(one.what, "SCAN") {
			require.Regexp(t, scansAllowed, one.what, whole)
		}
		require.NotContains(t, one.what, "AUTOMATIC", whole)
		if strings.Contains(one.what, "TEMP B-TREE") { // but what a call has brought, two limited arms, or stale claims of several namespaces
			loop := slices.IndexFunc(plan, func(other step) bool {
				return other.parent == one.parent && (strings.HasPrefix(other.what, "SCAN") || strings.HasPrefix(other.what, "SEARCH"))
			})
			require.Regexp(t, `^SCAN (given|tenant|\(subquery-\d+\))`, plan[loop].what, whole)
		}
	}
	t.Log(whole)
}

func TestNoStatementScansTheTable(t *testing.T) {
	for name, target := range map[string]struct {
		open func(t *testing.T, file string, recorded *recorder) *outbox.Store
		sent []string // some of the statements that are to be seen
	}{
		"Open": {func(t *testing.T, file string, recorded *recorder) *outbox.Store {
			store, err := outbox.Open(t.Context(), registerRecorded(recorded), "file:"+file, silent)
			require.NoError(t, err)
			return store
		}, []string{"WITH before (newest) AS MATERIALIZED"}},
		"New": {func(t *testing.T, file string, recorded *recorder) *outbox.Store {
			return newRecorded(t, file, recorded)
		}, []string{"WITH before (newest) AS MATERIALIZED"}},
		"New, over a database of which nothing is known": {func(t *testing.T, file string, recorded *recorder) *outbox.Store {
			recorded.forbidden = "PRAGMA busy_timeout ="
			return newRecorded(t, file, recorded)
		}, []string{"INSERT INTO main.outbox_payload (id, data) VALUES"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "outbox.db")
			recorded := new(recorder)
			store := target.open(t, file, recorded)
			recorded.forget()
			exercise(t, store)
			plain, err := sql.Open("libsql", "file:"+file)
			require.NoError(t, err)
			defer plain.Close()
			explained := 0
			for query, args := range recorded.seen {
				if !slices.Contains([]string{"SELECT", "WITH", "UPDATE", "DELETE", "INSERT"}, strings.Fields(query)[0]) ||
					strings.Contains(query, "sqlite_master") { // of Purge, for the foreign keys
					continue
				}
				explained++
				values := make([]any, len(args))
				for i, arg := range args {
					values[i] = arg.Value
				}
				requireNoScan(t, plain, query, values)
			}
			require.Greater(t, explained, 35)
			for _, start := range append(target.sent,
				"INSERT INTO main.outbox (", "DELETE FROM main.outbox WHERE id IN", "WITH size (id, bytes)", "SELECT given.key", "WITH RECURSIVE owner", "WITH RECURSIVE route",
			) {
				require.True(t, recorded.sent(start), start)
			}
			for _, part := range []string{"DO NOTHING RETURNING", "DO UPDATE SET status"} {
				require.True(t, slices.ContainsFunc(slices.Collect(maps.Keys(recorded.seen)), func(query string) bool {
					return strings.HasPrefix(query, "INSERT INTO main.outbox (") && strings.Contains(query, part)
				}), part)
			}
			require.NoError(t, store.Close())
		})
	}
}

// newRecorded returns a store over the program's own pool.
func newRecorded(t *testing.T, file string, recorded *recorder) *outbox.Store {
	t.Helper()
	db, err := sql.Open(registerRecorded(recorded), "file:"+file)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	db.SetMaxOpenConns(1)
	store := outbox.New(db, silent)
	require.NoError(t, store.Migrate(t.Context()))
	return store
}

// What goes to a server that takes batches is more than that.
func TestNoStatementOfABatchScansTheTable(t *testing.T) {
	db := openHost(t)
	require.NoError(t, outbox.New(db, nil).Migrate(t.Context()))
	statements := outbox.BatchStatements(row(uuid.New(), 0), row(uuid.New(), 1))
	require.Greater(t, len(statements), 10)
	for _, statement := range statements {
		requireNoScan(t, db, statement.Query, statement.Args)
	}
}
