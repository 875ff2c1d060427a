//go:build sqld

package sqldtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// eachDriver runs a test over all drivers.
func eachDriver(t *testing.T, test func(t *testing.T, driver string)) {
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) { test(t, driver) })
	}
}

// patience is more than any call needs that does not hang: a server may keep
// the lock of a connection that was cut for 10 seconds.
const patience = 40 * time.Second

func patiently(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// requireTyped fails the test unless err is one that a caller can tell.
func requireTyped(t testing.TB, err error) {
	t.Helper()
	if !typed(err) {
		require.Fail(t, "an error that no caller can tell", "%v", err)
	}
}

func typed(err error) bool {
	for _, kind := range []error{
		outbox.ErrBusy, outbox.ErrUnavailable, outbox.ErrRolledBack, outbox.ErrCommitUnknown, outbox.ErrTooLarge,
		context.DeadlineExceeded, context.Canceled,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// requireWorks fails the test unless the store does all its work, at the first
// attempt.
func requireWorks(t testing.TB, store *outbox.Store) {
	t.Helper()
	ctx := patiently(t)
	fresh := row(uuid.New(), 0)
	fresh.TaskQueue = uuid.NewString()
	duplicates, err := store.Append(ctx, fresh)
	require.NoError(t, err)
	require.Empty(t, duplicates)
	_, err = store.CountInFlight(ctx, outbox.DefaultRoute)
	require.NoError(t, err)
	rows, err := store.ClaimScoped(ctx, outbox.Scope{Namespace: outbox.DefaultRoute, TaskQueue: fresh.TaskQueue}, 1)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.NoError(t, store.Complete(ctx, rows[0].Ref()))
	outboxtest.Check(t, store)
}

func requireStored(t testing.TB, store *outbox.Store, stored bool, rows ...outbox.Row) {
	t.Helper()
	for _, row := range rows {
		_, err := store.State(patiently(t), outbox.DispatchKey(row.WorkflowID, row.Ordinal))
		if stored {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, outbox.ErrNotFound)
		}
	}
}

// keysOf are the keys of rows that have none of their own.
func keysOf(rows ...outbox.Row) (keys []string) {
	for _, row := range rows {
		keys = append(keys, outbox.DispatchKey(row.WorkflowID, row.Ordinal))
	}
	return keys
}

func requireHit(t testing.TB, hit <-chan struct{}) {
	t.Helper()
	select {
	case <-hit:
	default:
		require.Fail(t, "no request had the text that the fault waits for")
	}
}

// faults are a request that is cut, and answers that are cut in several places:
// within their parts and between them.
func faults() []fault {
	list := []fault{{kind: cutRequest}}
	for _, after := range []int{0, 240, 350, 420, 700} {
		list = append(list, fault{kind: cutAnswer, after: after})
	}
	return list
}

// calls are one of each kind, with a row that is claimed.
func calls(store *outbox.Store, claimed outbox.Ref) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"append": func(ctx context.Context) error {
			_, err := store.Append(ctx, row(uuid.New(), 0))
			return err
		},
		"claim": func(ctx context.Context) error {
			_, err := store.Claim(ctx, 1)
			return err
		},
		"extend": func(ctx context.Context) error { return store.Extend(ctx, claimed) },
		"update": func(ctx context.Context) error {
			return store.Update(ctx, func(context.Context, outbox.Tx) error { return nil })
		},
		"count": func(ctx context.Context) error {
			_, err := store.CountInFlight(ctx, outbox.DefaultRoute)
			return err
		},
		"get": func(ctx context.Context) error {
			_, err := store.Get(ctx, claimed.DispatchKey)
			return err
		},
		"rearm stale": func(ctx context.Context) error {
			_, err := store.RearmStale(ctx, time.Unix(0, 0), time.Time{}, 1)
			return err
		},
	}
}

// claimedRow returns a ref of a row that the store has claimed.
func claimedRow(t testing.TB, store *outbox.Store) outbox.Ref {
	t.Helper()
	_, err := store.Append(patiently(t), row(uuid.New(), 0))
	require.NoError(t, err)
	rows, err := store.Claim(patiently(t), 1)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	return rows[0].Ref()
}

// returnsInTime runs call with a deadline that will pass, and fails the test if
// it does not return soon after.
func returnsInTime(t testing.TB, call func(context.Context) error) error {
	t.Helper()
	const deadline, margin = 300 * time.Millisecond, 5 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	returned := make(chan error, 1)
	go func() { returned <- call(ctx) }()
	select {
	case err := <-returned:
		return err
	case <-time.After(deadline + margin):
		require.Fail(t, "a call hangs past its deadline")
		return nil
	}
}
