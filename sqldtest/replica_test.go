//go:build sqld

package sqldtest

import (
	"testing"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestEmbeddedReplica(t *testing.T) {
	outboxtest.Run(t, func(t *testing.T, opts *outbox.Options) *outbox.Store {
		return openReplica(t, startServer(t), opts) // a used one would have to hand over its whole history
	})
}

func TestRowsStagedOnOneNodeAreClaimedOnAnother(t *testing.T) {
	server := startServer(t)
	staging, claiming := openReplica(t, server, nil), openReplica(t, server, nil)
	ctx := t.Context()
	for i := range 10 {
		rows, err := claiming.Claim(ctx, 5)
		require.NoError(t, err)
		require.Empty(t, rows)

		workflow := uuid.New()
		_, err = staging.Append(ctx, row(workflow, i))
		require.NoError(t, err)
		rows, err = claiming.Claim(ctx, 5)
		require.NoError(t, err)
		require.Len(t, rows, 1, "a claim that finds nothing has asked the primary")
		require.NoError(t, claiming.Complete(ctx, rows[0].Ref()))
		require.ErrorIs(t, staging.Cancel(ctx, rows[0].Ref()), outbox.ErrClaimLost)
	}
	outboxtest.Check(t, staging)
}

func TestReplicaReadsOnWhileTheServerIsDown(t *testing.T) {
	server := startServer(t)
	store := openReplica(t, server, nil)
	ctx := t.Context()
	workflow := uuid.New()
	_, err := store.Append(ctx, row(workflow, 0))
	require.NoError(t, err)
	_, err = store.Get(ctx, outbox.DispatchKey(workflow, 0))
	require.NoError(t, err, "a node reads its own writes")
	server.kill()
	_, err = store.Get(ctx, outbox.DispatchKey(workflow, 0))
	require.NoError(t, err)
	_, err = store.Claim(ctx, 1)
	require.ErrorIs(t, err, outbox.ErrUnavailable)
	_, err = store.Append(ctx, row(workflow, 1))
	require.ErrorIs(t, err, outbox.ErrUnavailable)
	server.start()
	rows, err := store.Claim(ctx, 1)
	require.NoError(t, err)
	require.Len(t, rows, 1)
}
