package outbox_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestOpenSetsUpFiles(t *testing.T) {
	dir := t.TempDir()
	full := open(t, "file:"+filepath.Join(dir, "full.db"), nil)
	require.Equal(t, "wal", pragma(t, full, "journal_mode"))
	require.Equal(t, "2", pragma(t, full, "synchronous"))
	normal := open(t, "file:"+filepath.Join(dir, "normal.db"), &outbox.Options{Synchronous: outbox.Normal})
	require.Equal(t, "wal", pragma(t, normal, "journal_mode"))
	require.Equal(t, "1", pragma(t, normal, "synchronous"))
}

func TestOpenRefusesBadArguments(t *testing.T) {
	ctx := context.Background()
	_, err := outbox.Open(ctx, "libsql", "", nil)
	require.ErrorIs(t, err, outbox.ErrInvalid)
	_, err = outbox.Open(ctx, "libsql", ":memory:", &outbox.Options{Synchronous: 7})
	require.ErrorIs(t, err, outbox.ErrInvalid)
	_, err = outbox.Open(ctx, "no such driver", ":memory:", nil)
	require.Error(t, err)
	_, err = outbox.Open(ctx, "libsql", "gopher://x", nil)
	require.Error(t, err)
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = outbox.Open(cancelled, "libsql", ":memory:", nil)
	require.ErrorIs(t, err, context.Canceled)
}

// openOnce opens a file and closes it.
func openOnce(args []string, in *bufio.Scanner, _ io.Writer) error {
	in.Scan() // all at once
	store, err := outbox.Open(context.Background(), "libsql", args[0], nil)
	if err != nil {
		return err
	}
	return store.Close()
}

func TestManyMayOpenAtOnce(t *testing.T) {
	for _, name := range []string{"a new file", "an old file"} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "outbox.db")
			if name == "an old file" {
				makeOldFile(t, file, oldTable, oldRow("a", nil))
			}
			var openers []*child
			for range 4 {
				openers = append(openers, startChild(t, "open", "file:"+file))
			}
			for _, opener := range openers {
				_, err := io.WriteString(opener.in, "go\n")
				require.NoError(t, err)
			}
			results := make(chan error, 8)
			for range 8 {
				go func() {
					store, err := outbox.Open(context.Background(), "libsql", "file:"+file, nil)
					if err == nil {
						err = store.Close()
					}
					results <- err
				}()
			}
			for range 8 {
				require.NoError(t, <-results)
			}
			for _, opener := range openers {
				opener.finish()
			}
			store := open(t, "file:"+file, nil)
			_, err := store.Append(context.Background(), row(uuid.New(), 0))
			require.NoError(t, err)
			outboxtest.Check(t, store)
		})
	}
}

func TestNewDoesNoWorkAndCloseClosesWhatOpenOpened(t *testing.T) {
	db, recorded := openRecorded(t)
	store := outbox.New(db, nil)
	require.Empty(t, recorded.seen)
	require.Zero(t, db.Stats().OpenConnections)
	require.NoError(t, store.Close())
	require.NoError(t, db.Ping())

	file := filepath.Join(t.TempDir(), "outbox.db")
	opened, err := outbox.Open(context.Background(), "libsql", "file:"+file, nil)
	require.NoError(t, err)
	_, err = opened.Append(context.Background(), row(uuid.New(), 0))
	require.NoError(t, err)
	require.FileExists(t, file+"-wal")
	require.NoError(t, opened.Close())
	eventually(t, func() bool {
		_, err := os.Stat(file + "-wal")
		return os.IsNotExist(err)
	}, "the last connection of the file is closed")
}

func TestNothingToDoAndBadInputOpenNoTransaction(t *testing.T) {
	db, recorded := openRecorded(t)
	store := outbox.New(db, nil)
	ctx := context.Background()
	require.NoError(t, store.Migrate(ctx))
	clear(recorded.seen)
	bad := row(uuid.New(), 0)
	bad.ActivityType = ""
	_, err := store.Append(ctx)
	require.NoError(t, err)
	_, err = store.Append(ctx, row(uuid.New(), 0), bad)
	require.ErrorIs(t, err, outbox.ErrInvalid)
	require.NoError(t, store.Rearm(ctx))
	require.ErrorIs(t, store.Rearm(ctx, bad), outbox.ErrInvalid)
	for _, limit := range []int{0, -1} {
		_, _ = store.Claim(ctx, limit)
		_, _ = store.ClaimScoped(ctx, outbox.Scope{}, limit)
		_, _ = store.RearmStale(ctx, time.Now(), time.Now(), limit)
		_, _ = store.Purge(ctx, time.Now(), limit)
	}
	for _, refs := range [][]outbox.Ref{nil, {{DispatchKey: "a\x00"}}} {
		_ = store.Complete(ctx, refs...)
		_ = store.Cancel(ctx, refs...)
		_ = store.Extend(ctx, refs...)
	}
	_, _ = store.Requeue(ctx)
	_, _ = store.Requeue(ctx, "a\xff")
	require.Empty(t, recorded.seen)
}
