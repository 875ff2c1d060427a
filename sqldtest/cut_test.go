//go:build sqld

package sqldtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// cutCall is a call that is cut. Each is made with a row of its own.
type cutCall struct {
	name   string
	status outbox.Status // that the row has before
	text   string        // in the request that is cut; "" for BEGIN IMMEDIATE
	call   func(ctx context.Context, store *outbox.Store, row outbox.Row) error
	after  outbox.Status // that the row has if the call was stored; "" if it is gone
}

var cutCalls = []cutCall{
	{"append", "", "", func(ctx context.Context, store *outbox.Store, row outbox.Row) error {
		_, err := store.Append(ctx, row)
		return err
	}, outbox.Pending},
	{"claim", outbox.Pending, "", func(ctx context.Context, store *outbox.Store, row outbox.Row) error {
		_, err := store.ClaimScoped(ctx, scopeOf(row), 1)
		return err
	}, outbox.Claimed},
	{"claim of all", outbox.Pending, "", func(ctx context.Context, store *outbox.Store, _ outbox.Row) error {
		_, err := store.ClaimExcluding(ctx, 1, uuid.New())
		return err
	}, outbox.Claimed},
	{"complete", outbox.Claimed, "", func(ctx context.Context, store *outbox.Store, row outbox.Row) error {
		return store.Complete(ctx, row.Ref())
	}, outbox.Done},
	{"retry", outbox.Claimed, "", func(ctx context.Context, store *outbox.Store, row outbox.Row) error {
		return store.Retry(ctx, row.Ref(), 1, time.Time{}, errors.New("later"))
	}, outbox.Pending},
	{"fail", outbox.Claimed, "", func(ctx context.Context, store *outbox.Store, row outbox.Row) error {
		return store.Fail(ctx, row.Ref(), errors.New("no"))
	}, outbox.Failed},
	{"cancel", outbox.Claimed, "", func(ctx context.Context, store *outbox.Store, row outbox.Row) error {
		return store.Cancel(ctx, row.Ref())
	}, outbox.Cancelled},
	{"rearm", outbox.Done, "", func(ctx context.Context, store *outbox.Store, row outbox.Row) error {
		return store.Rearm(ctx, row)
	}, outbox.Pending},
	{"rearm stale", outbox.Claimed, "", func(ctx context.Context, store *outbox.Store, _ outbox.Row) error {
		_, err := store.RearmStale(ctx, time.Now().Add(time.Hour), time.Time{}, 100)
		return err
	}, outbox.Pending},
	{"settle", outbox.Pending, "", func(ctx context.Context, store *outbox.Store, row outbox.Row) error {
		_, err := store.SettleWorkflow(ctx, row.WorkflowID)
		return err
	}, outbox.Cancelled},
	{"requeue", outbox.Failed, "", func(ctx context.Context, store *outbox.Store, row outbox.Row) error {
		_, err := store.Requeue(ctx, row.DispatchKey)
		return err
	}, outbox.Pending},
	{"purge", outbox.Done, "", func(ctx context.Context, store *outbox.Store, _ outbox.Row) error {
		_, err := store.Purge(ctx, time.Now().Add(time.Hour), 100)
		return err
	}, ""},
	{"begin of an update", "", "", updateWith, outbox.Pending},
	{"commit of an update", "", `"sql":"COMMIT"`, updateWith, outbox.Pending},
}

func updateWith(ctx context.Context, store *outbox.Store, row outbox.Row) error {
	return store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
		_, err := store.AppendTx(ctx, tx, row)
		return err
	})
}

func scopeOf(row outbox.Row) outbox.Scope {
	return outbox.Scope{Namespace: outbox.DefaultRoute, TaskQueue: row.TaskQueue}
}

// inStatus stores a row of its own in a status.
func inStatus(t testing.TB, store *outbox.Store, status outbox.Status) outbox.Row {
	t.Helper()
	ctx := patiently(t)
	fresh := row(uuid.New(), 0)
	fresh.DispatchKey = outbox.DispatchKey(fresh.WorkflowID, 0)
	fresh.TaskQueue = uuid.NewString()
	fresh.Input.Data = make([]byte, 8000) // beside its row
	if status == "" {
		return fresh
	}
	_, err := store.Append(ctx, fresh)
	require.NoError(t, err)
	if status == outbox.Pending {
		return fresh
	}
	rows, err := store.ClaimScoped(ctx, scopeOf(fresh), 1)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	switch status {
	case outbox.Done:
		require.NoError(t, store.Complete(ctx, rows[0].Ref()))
	case outbox.Failed:
		require.NoError(t, store.Fail(ctx, rows[0].Ref(), errors.New("no")))
	}
	return rows[0]
}

// requireStatus fails the test unless a row has a status; "" is none at all.
func requireStatus(t testing.TB, store *outbox.Store, key string, status outbox.Status, message string) {
	t.Helper()
	state, err := store.State(patiently(t), key)
	if status == "" {
		require.ErrorIs(t, err, outbox.ErrNotFound, message)
		return
	}
	require.NoError(t, err, message)
	require.Equal(t, status, state.Status, message)
}

func TestACallThatIsCutIsStoredAsAWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	list := []fault{{kind: cutRequest}, {kind: halve}}
	for _, after := range []int{0, 1, 17, 120, 200, 400, 600} {
		list = append(list, fault{kind: cutAnswer, after: after})
	}
	for _, fault := range list {
		t.Run(fmt.Sprintf("%v %d", fault.kind, fault.after), func(t *testing.T) {
			t.Parallel()
			server := startServer(t)
			proxy := newProxy(t, server)
			store, witness := openOver(t, "hrana", proxy.url(), nil), openOver(t, "hrana", server.url(), nil)
			outcomes := make(map[string]int)
			for _, cut := range cutCalls {
				row := inStatus(t, store, cut.status)
				text, after := "BEGIN IMMEDIATE", fault.after
				if cut.text != "" {
					text, after = cut.text, min(after, 400) // its answer is a short one
				}
				hit := proxy.strike(fault.kind, text, after)
				err := cut.call(patiently(t), store, row)
				requireHit(t, hit)
				requireOutcome := func(want outbox.Status) { requireStatus(t, witness, row.DispatchKey, want, cut.name) }
				switch {
				case err == nil:
					requireOutcome(cut.after)
				case errors.Is(err, outbox.ErrCommitUnknown):
					state, err := witness.State(patiently(t), row.DispatchKey)
					if stored := err == nil && state.Status == cut.after || err != nil && cut.after == ""; stored {
						outcomes["unknown, and stored"]++
					} else {
						requireOutcome(cut.status)
						outcomes["unknown, and not stored"]++
					}
				default:
					require.True(t, errors.Is(err, outbox.ErrUnavailable) || errors.Is(err, outbox.ErrRolledBack), "%s: %v", cut.name, err)
					requireOutcome(cut.status)
					outcomes["not stored"]++
				}
				require.NoError(t, cut.call(patiently(t), store, row), "%s, repeated", cut.name)
				requireOutcome(cut.after)
				_, err = store.SettleWorkflow(patiently(t), row.WorkflowID)
				require.NoError(t, err)
				_, err = store.Purge(patiently(t), time.Now().Add(time.Hour), 100)
				require.NoError(t, err)
			}
			t.Log(outcomes)
			requireWorks(t, store)
			outboxtest.RequireCounts(t, store, map[outbox.Status]int{outbox.Done: 1})
		})
	}
}
