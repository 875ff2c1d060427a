package outbox_test

import (
	"slices"
	"testing"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func FuzzFilterAndScope(f *testing.F) {
	names := []string{"default", "2024-01-01", "a'b", "é", "%"}
	f.Add("pending", "default", []byte(nil), int64(0), 0, "default", "")
	f.Add("failed", "2024-01-01", []byte(faultyWorkflow[:]), int64(2), 1, "a'b", "é")
	f.Add("", "%", []byte(otherWorkflow[:]), int64(-1), -1, "%", "2024-01-01")
	f.Add("paused", "a\x00", []byte(nil), int64(1)<<62, 1<<40, "\xff", "default")
	store, _ := openFuzzed(f)
	var staged []outbox.Row
	for i, name := range names {
		for j, status := range []outbox.Status{outbox.Pending, outbox.Claimed, outbox.Done, outbox.Failed, outbox.Cancelled} {
			row := row([]uuid.UUID{faultyWorkflow, otherWorkflow}[(i+j)%2], 10*i+j)
			row.Namespace, row.TaskQueue, row.Status = name, names[(i+j)%len(names)], status
			if j%2 == 0 {
				row.Node = names[(i+2*j)%len(names)]
			}
			staged = append(staged, row)
		}
	}
	_, err := store.Append(f.Context(), staged...)
	require.NoError(f, err)
	all, err := store.List(f.Context(), outbox.Filter{})
	require.NoError(f, err)
	require.Len(f, all, len(staged))
	for i := range all {
		all[i].Fence = 0
	}

	f.Fuzz(func(t *testing.T, status, namespace string, workflow []byte, after int64, limit int, queue, node string) {
		filter := outbox.Filter{Status: outbox.Status(status), Namespace: namespace, After: after, Limit: limit}
		if len(workflow) > 0 {
			filter.WorkflowID = uuid.NullUUID{UUID: toUUID(workflow), Valid: true}
		}
		got, err := store.List(t.Context(), filter)
		if err != nil {
			require.ErrorIs(t, err, outbox.ErrInvalid)
		} else {
			for i := range got {
				got[i].Fence = 0 // grows with every claim below
			}
			require.Equal(t, matching(all, filter), got)
		}

		inFlight, err := store.CountInFlight(t.Context(), namespace)
		if err != nil {
			require.ErrorIs(t, err, outbox.ErrInvalid)
			return
		}
		live := slices.DeleteFunc(slices.Clone(all), func(row outbox.Row) bool {
			return row.Namespace != namespace || row.Status != outbox.Pending && row.Status != outbox.Claimed
		})
		require.EqualValues(t, len(live), inFlight)

		// What is claimed is given back for the next input.
		scope := outbox.Scope{Namespace: namespace, TaskQueue: queue, Node: node}
		claimed, err := store.ClaimScoped(t.Context(), scope, len(all))
		if err != nil {
			require.ErrorIs(t, err, outbox.ErrInvalid)
			return
		}
		admitted := 0
		for _, row := range all {
			if row.Status == outbox.Pending && scope.Admits(row) {
				admitted++
			}
		}
		require.Len(t, claimed, admitted)
		for _, row := range claimed {
			require.True(t, scope.Admits(row))
			require.NoError(t, store.Retry(t.Context(), row.Ref(), row.Attempt, row.VisibleAfter, nil))
		}
	})
}

// matching is List without a database.
func matching(rows []outbox.Row, filter outbox.Filter) []outbox.Row {
	var matching []outbox.Row
	for _, row := range rows {
		if (filter.Status == "" || filter.Status == row.Status) && (filter.Namespace == "" || filter.Namespace == row.Namespace) &&
			(!filter.WorkflowID.Valid || filter.WorkflowID.UUID == row.WorkflowID) && (filter.After == 0 || row.ID > filter.After) &&
			(filter.Limit == 0 || len(matching) < filter.Limit) {
			matching = append(matching, row)
		}
	}
	return matching
}
