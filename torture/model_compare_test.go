package torture

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"example.com/outbox"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// requireOutcome fails the sequence unless an error means what the model's does.
func requireOutcome(r *rapid.T, want, got error) {
	r.Helper()
	var lost, gotLost *outbox.ClaimLostError
	where, invalid := isInvalid(want)
	switch {
	case want == nil:
		require.NoError(r, got)
	case errors.Is(want, errForbidden), errors.Is(want, errFatal):
		require.ErrorContains(r, got, want.Error())
	case invalid:
		gotWhere, ok := isInvalid(got)
		require.True(r, ok, "%v: got %v", want, got)
		require.Equal(r, where.Index, gotWhere.Index)
		require.Equal(r, where.DispatchKey, gotWhere.DispatchKey)
		require.Equal(r, where.Field, gotWhere.Field)
		require.NotEmpty(r, gotWhere.Reason)
	case errors.As(want, &lost):
		require.ErrorIs(r, got, outbox.ErrClaimLost)
		require.True(r, errors.As(got, &gotLost))
		require.Equal(r, lost.DispatchKeys, gotLost.DispatchKeys)
	default:
		require.ErrorIs(r, got, want)
	}
}

// requireRows fails the sequence unless the rows are the same in every field.
func requireRows(r *rapid.T, want, got []outbox.Row) {
	r.Helper()
	if len(want)+len(got) > 0 && !reflect.DeepEqual(want, got) {
		require.Equal(r, show(want), show(got))
		r.Fatalf("rows differ in what is not shown:\n%#v\n%#v", want, got)
	}
}

// show describes rows, without the bytes of their payloads.
func show(rows []outbox.Row) []string {
	lines := []string{}
	for _, row := range rows {
		lines = append(lines, fmt.Sprintf(
			"%s: id %d, workflow %v:%d, run %v, route %q %q %q, type %q, input %q %d bytes %.4x, %s attempt %d, visible %s, claimed %s, fence %d, error %s, created %s, finished %s",
			brief(row.DispatchKey), row.ID, row.WorkflowID, row.Ordinal, row.RunID, row.Namespace, row.TaskQueue, row.Node, row.ActivityType,
			row.Input.ContentType, len(row.Input.Data), sha256.Sum256(row.Input.Data), row.Status, row.Attempt, when(row.VisibleAfter), when(row.ClaimedAt),
			row.Fence, brief(row.LastError), when(row.CreatedAt), when(row.FinishedAt)))
	}
	return lines
}

func when(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Format(time.RFC3339Nano)
}

// brief quotes a text without flooding the output.
func brief(text string) string {
	const shown = 60
	if len(text) <= shown {
		return strconv.Quote(text)
	}
	return fmt.Sprintf("%q… (%d bytes, %.4x)", text[:shown], len(text), sha256.Sum256([]byte(text)))
}

func keysOf(rows []outbox.Row) []string {
	keys := []string{}
	for _, row := range rows {
		keys = append(keys, row.DispatchKey)
	}
	return keys
}

// orNone makes an empty list equal to none.
func orNone[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}
