package outbox_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestUndecodableRowsAreLogged(t *testing.T) {
	var log bytes.Buffer
	store := open(t, ":memory:", &outbox.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	ctx := context.Background()
	_, err := store.Append(ctx, row(uuid.New(), 0))
	require.NoError(t, err)
	require.NoError(t, store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE outbox SET attempt = -1")
		return err
	}))
	rows, err := store.Claim(ctx, 1)
	require.NoError(t, err)
	require.Empty(t, rows)
	require.Contains(t, log.String(), "cannot be decoded")
	require.Contains(t, log.String(), "attempt")
}
