package outbox_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/outbox"
)

// atOnce makes calls that all wait for their turn before the first is served,
// in the order given, and returns their errors. What is done meanwhile, is done
// when all of them wait.
func atOnce(t *testing.T, store *outbox.Store, calls []func() error, meanwhile func()) []error {
	t.Helper()
	errs := make([]error, len(calls))
	var all sync.WaitGroup
	require.NoError(t, store.Update(context.Background(), func(context.Context, outbox.Tx) error {
		for i, call := range calls {
			all.Go(func() { errs[i] = call() })
			require.Eventually(t, func() bool { return store.Waiting() == i+1 }, time.Minute, time.Millisecond)
		}
		meanwhile()
		return nil
	}))
	all.Wait()
	return errs
}

// ticking is a clock that never tells the same instant twice, so that rows
// with equal instants were written by one statement.
func ticking() func() time.Time {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var ticks atomic.Int64
	return func() time.Time { return start.Add(time.Duration(ticks.Add(1)) * time.Millisecond) }
}

func instantsOf(t *testing.T, store *outbox.Store, of func(outbox.Row) time.Time) map[time.Time]int {
	t.Helper()
	rows, err := store.List(context.Background(), outbox.Filter{})
	require.NoError(t, err)
	instants := map[time.Time]int{}
	for _, row := range rows {
		instants[of(row)]++
	}
	return instants
}

func keyed(keys ...string) []outbox.Row {
	workflow := uuid.New()
	rows := make([]outbox.Row, len(keys))
	for i, key := range keys {
		rows[i] = row(workflow, i)
		rows[i].DispatchKey = key
	}
	return rows
}

func TestAppendsAtOnceShareAStatementAndKeepTheirOutcomes(t *testing.T) {
	for name, refused := range map[string]bool{"all are stored": false, "one is refused": true} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			store := open(t, ":memory:", &outbox.Options{Now: ticking()})
			require.NoError(t, store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
				_, err := tx.ExecContext(ctx, `CREATE TRIGGER refuse BEFORE INSERT ON outbox WHEN NEW.activity_type = 'refused'
					BEGIN SELECT RAISE(ABORT, 'refused'); END`)
				return err
			}))
			_, err := store.Append(ctx, keyed("old")...)
			require.NoError(t, err)
			old, err := store.Get(ctx, "old")
			require.NoError(t, err)

			given := [][]outbox.Row{keyed("a", "b"), keyed("b", "old", "c"), keyed("d"), keyed("a", "old"), keyed("e")}
			if refused {
				given[2][0].ActivityType = "refused"
			}
			duplicates := make([][]string, len(given))
			calls := make([]func() error, len(given))
			for i, rows := range given {
				calls[i] = func() (err error) {
					duplicates[i], err = store.Append(ctx, rows...)
					return err
				}
			}
			errs := atOnce(t, store, calls, func() {})
			require.Equal(t, [][]string{nil, {"b", "old"}, nil, {"a", "old"}, nil}, duplicates)
			stored := map[string]outbox.Row{"old": old}
			for i, err := range errs {
				if refused && i == 2 {
					require.ErrorContains(t, err, "refused")
					continue
				}
				require.NoError(t, err)
				for _, row := range given[i] {
					if _, known := stored[row.DispatchKey]; !known {
						stored[row.DispatchKey] = row
					}
				}
			}
			rows, err := store.List(ctx, outbox.Filter{})
			require.NoError(t, err)
			require.Len(t, rows, len(stored))
			for _, row := range rows {
				require.Equal(t, stored[row.DispatchKey].WorkflowID, row.WorkflowID, "the first to bring %s stores it", row.DispatchKey)
			}
			if !refused {
				require.Len(t, instantsOf(t, store, func(row outbox.Row) time.Time { return row.CreatedAt }), 2, "one statement beside that of old")
			}
		})
	}
}

func TestTransitionsAtOnceShareAStatementAndKeepTheirOutcomes(t *testing.T) {
	ctx := context.Background()
	store := open(t, ":memory:", &outbox.Options{Now: ticking()})
	_, err := store.Append(ctx, keyed("a", "b", "c", "d")...)
	require.NoError(t, err)
	rows, err := store.Claim(ctx, 4)
	require.NoError(t, err)
	refs := map[string]outbox.Ref{}
	for _, row := range rows {
		refs[row.DispatchKey] = row.Ref()
	}
	late := outbox.Ref{DispatchKey: "c", Fence: 7}
	canceled, cancel := context.WithCancel(ctx)
	var calls []func() error
	for _, of := range [][]outbox.Ref{{refs["a"]}, {refs["b"], late}, {refs["a"]}, {late}, {{DispatchKey: "absent"}}} {
		calls = append(calls, func() error { return store.Complete(ctx, of...) })
	}
	calls = append(calls, func() error { return store.Complete(canceled, refs["d"]) })
	errs := atOnce(t, store, calls, func() {
		cancel()
		require.Eventually(t, func() bool { return store.Waiting() == len(calls)-1 }, time.Minute, time.Millisecond)
	})

	require.NoError(t, errs[0])
	require.NoError(t, errs[2], "the same claim may complete its row twice")
	require.NoError(t, errs[4], "an absent key without a fence is nothing to do")
	for _, i := range []int{1, 3} {
		var lost *outbox.ClaimLostError
		require.ErrorAs(t, errs[i], &lost)
		require.Equal(t, []string{"c"}, lost.DispatchKeys)
	}
	require.ErrorIs(t, errs[5], context.Canceled)
	for key, status := range map[string]outbox.Status{"a": outbox.Done, "b": outbox.Done, "c": outbox.Claimed, "d": outbox.Claimed} {
		state, err := store.State(ctx, key)
		require.NoError(t, err)
		require.Equal(t, status, state.Status, key)
	}
	require.Len(t, instantsOf(t, store, func(row outbox.Row) time.Time { return row.FinishedAt }), 2, "one statement, and rows that are not finished")
}
