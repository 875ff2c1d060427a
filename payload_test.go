package outbox_test

import (
	"bytes"
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestTransitionsRewriteNoPayload(t *testing.T) {
	const rows = 200
	for _, size := range []int{8 << 10, 27 << 10} {
		file := filepath.Join(t.TempDir(), "outbox.db")
		store := open(t, "file:"+file, nil)
		ctx := context.Background()
		workflow := uuid.New()
		var staged []outbox.Row
		for i := range rows {
			row := row(workflow, i)
			row.Input.Data = make([]byte, size)
			staged = append(staged, row)
		}
		_, err := store.Append(ctx, staged...)
		require.NoError(t, err)
		other, err := sql.Open("libsql", "file:"+file)
		require.NoError(t, err)
		defer other.Close()
		var busy, pages, moved int
		require.NoError(t, other.QueryRow("PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &moved))
		require.Zero(t, busy)
		require.Zero(t, fileSize(t, file+"-wal"))

		claimed, err := store.Claim(ctx, rows)
		require.NoError(t, err)
		refs := make([]outbox.Ref, rows)
		for i, row := range claimed {
			refs[i] = row.Ref()
		}
		require.NoError(t, store.Complete(ctx, refs...))
		written := fileSize(t, file+"-wal") / rows
		t.Logf("payloads of %d bytes: a claim and a completion write %d bytes a row", size, written)
		require.Less(t, written, int64(1500))
	}
}

func TestVacuumKeepsIDs(t *testing.T) {
	db := openHost(t)
	store := outbox.New(db, nil)
	ctx := context.Background()
	require.NoError(t, store.Migrate(ctx))
	workflow := uuid.New()
	large := row(workflow, 1)
	large.Input.Data = make([]byte, 5000)
	_, err := store.Append(ctx, row(workflow, 0), large)
	require.NoError(t, err)
	require.NoError(t, store.Cancel(ctx, outbox.Ref{DispatchKey: outbox.DispatchKey(workflow, 0)}))
	_, err = store.Purge(ctx, time.Now().Add(time.Hour), 1)
	require.NoError(t, err)
	before, err := store.List(ctx, outbox.Filter{})
	require.NoError(t, err)
	require.EqualValues(t, 2, before[0].ID)
	_, err = db.Exec("VACUUM")
	require.NoError(t, err)
	after, err := store.List(ctx, outbox.Filter{})
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestPayloadOf64MB(t *testing.T) {
	store := open(t, "file:"+filepath.Join(t.TempDir(), "outbox.db"), nil)
	ctx := context.Background()
	large := row(uuid.New(), 0)
	large.Input.Data = bytes.Repeat([]byte("0123456789abcdef"), 4<<20)
	_, err := store.Append(ctx, large, row(uuid.New(), 1))
	require.NoError(t, err)
	rows, err := store.Claim(ctx, 2)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	for _, row := range rows {
		if row.DispatchKey == outbox.DispatchKey(large.WorkflowID, 0) {
			require.True(t, bytes.Equal(large.Input.Data, row.Input.Data))
		}
		require.NoError(t, store.Complete(ctx, row.Ref()))
	}
}
