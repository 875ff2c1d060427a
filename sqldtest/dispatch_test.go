//go:build sqld

package sqldtest

import (
	"context"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestDispatcherOfAllRoutesOnAReplicaFindsRowsOfOtherNodes(t *testing.T) {
	server := startServer(t)
	staging, claiming := openReplica(t, server, nil), openReplica(t, server, nil)
	handled := make(chan struct{})
	dispatcher := dispatch.New(claiming, func(context.Context, outbox.Row) error {
		close(handled)
		return nil
	}, &dispatch.Options{AllRoutes: true, PollInterval: 10 * time.Millisecond})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- dispatcher.Run(ctx) }()
	_, err := staging.Append(ctx, row(uuid.New(), 0))
	require.NoError(t, err)
	select {
	case <-handled:
	case <-time.After(10 * time.Second):
		t.Error("the row was not found")
	}
	stop()
	require.NoError(t, <-ended)
}
