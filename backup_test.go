package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
)

// docs/operations.md says how to back up a live store, and what not to do.

func TestVacuumIntoBacksUpALiveStore(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	live := filepath.Join(dir, "live.db")
	store := open(t, "file:"+live, nil)
	workflow := uuid.New()
	var appended atomic.Int64
	ended := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		ended <- func() error {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return nil
				default:
				}
				row := row(workflow, i)
				row.Input.Data = make([]byte, 10*i%3000) // some lie beside their rows
				if _, err := store.Append(ctx, row); err != nil {
					return err
				}
				appended.Add(1)
				claimed, err := store.Claim(ctx, i%3)
				if err != nil {
					return err
				}
				for _, row := range claimed {
					if err := store.Complete(ctx, row.Ref()); err != nil {
						return err
					}
				}
			}
		}()
	}()
	db, err := sql.Open("libsql", "file:"+live)
	require.NoError(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	var timeout int // a connection needs its busy wait also to read
	require.NoError(t, db.QueryRowContext(ctx, "PRAGMA busy_timeout = 10000").Scan(&timeout))
	for i := range 5 {
		before := appended.Load()
		file := filepath.Join(dir, fmt.Sprintf("backup-%d.db", i))
		_, err = db.ExecContext(ctx, "VACUUM INTO ?", file)
		require.NoError(t, err)
		backup := open(t, "file:"+file, nil)
		rows, err := backup.List(ctx, outbox.Filter{})
		require.NoError(t, err)
		require.GreaterOrEqual(t, int64(len(rows)), before, "what was answered before the backup began is in it")
		outboxtest.Check(t, backup)
	}
	close(stop)
	require.NoError(t, <-ended)
}

func TestACopyWithoutTheWALIsSilentlyOld(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	live, copied := filepath.Join(dir, "live.db"), filepath.Join(dir, "copy.db")
	store := open(t, "file:"+live, nil)
	_, err := store.Append(ctx, row(uuid.New(), 0))
	require.NoError(t, err)
	text, err := os.ReadFile(live)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(copied, text, 0o600))
	rows, err := open(t, "file:"+copied, nil).List(ctx, outbox.Filter{})
	require.NoError(t, err)
	require.Empty(t, rows)
}

// A restored store is at an earlier point of its life: it hands out fences again
// that were handed out since.
func TestARestoredStoreRepeatsFences(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	live, file := filepath.Join(dir, "live.db"), filepath.Join(dir, "backup.db")
	store := open(t, "file:"+live, nil)
	_, err := store.Append(ctx, row(uuid.New(), 0))
	require.NoError(t, err)
	db, err := sql.Open("libsql", "file:"+live)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", file)
	require.NoError(t, err)

	before, err := store.Claim(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, store.Complete(ctx, before[0].Ref()))
	restored := open(t, "file:"+file, nil)
	after, err := restored.Claim(ctx, 1)
	require.NoError(t, err)
	require.Equal(t, before[0].Ref(), after[0].Ref())
}
