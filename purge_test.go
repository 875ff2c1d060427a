package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/outbox"
)

func TestPurgeKeepsWhatAnotherTableRefersTo(t *testing.T) {
	for _, clause := range []string{"", "DEFERRABLE INITIALLY DEFERRED"} {
		ctx := context.Background()
		db, err := sql.Open("libsql", ":memory:")
		require.NoError(t, err)
		defer db.Close()
		db.SetMaxOpenConns(1)
		_, err = db.Exec("PRAGMA foreign_keys = ON")
		require.NoError(t, err)
		store := outbox.New(db, nil)
		require.NoError(t, store.Migrate(ctx))
		_, err = db.Exec(`CREATE TABLE "the receipts" (dispatch TEXT REFERENCES outbox (dispatch_key) ` + clause + `)`)
		require.NoError(t, err)
		_, err = db.Exec(`CREATE TABLE gone (dispatch TEXT REFERENCES outbox (dispatch_key) ON DELETE CASCADE)`)
		require.NoError(t, err)
		workflow := uuid.New()
		for i := range 5 {
			r := row(workflow, i)
			r.Status = outbox.Done
			r.FinishedAt = time.Now().Add(-time.Hour)
			_, err = store.Append(ctx, r)
			require.NoError(t, err)
		}
		for _, i := range []uint64{0, 3} {
			_, err = db.Exec(`INSERT INTO "the receipts" VALUES (?)`, outbox.DispatchKey(workflow, i))
			require.NoError(t, err)
		}
		_, err = db.Exec(`INSERT INTO gone VALUES (?)`, outbox.DispatchKey(workflow, 1))
		require.NoError(t, err)
		purged, err := store.Purge(ctx, time.Now(), 10)
		require.Equal(t, 3, purged)
		var referenced *outbox.ReferencedError
		require.True(t, errors.As(err, &referenced), "%v", err)
		require.Equal(t, []string{outbox.DispatchKey(workflow, 0), outbox.DispatchKey(workflow, 3)}, referenced.DispatchKeys)
		_, err = db.Exec(`DELETE FROM "the receipts"`)
		require.NoError(t, err)
		purged, err = store.Purge(ctx, time.Now(), 10)
		require.NoError(t, err)
		require.Equal(t, 2, purged)
	}
}
