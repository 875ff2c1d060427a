package outbox_test

import (
	"context"
	"testing"
	"time"

	"example.com/outbox"
	"github.com/stretchr/testify/require"
)

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
