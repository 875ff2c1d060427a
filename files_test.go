package outbox_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// makeStoreFile makes a file of a store with rows of several pages.
func makeStoreFile(t *testing.T, file string) []byte {
	t.Helper()
	store, err := outbox.Open(t.Context(), "libsql", "file:"+file, nil)
	require.NoError(t, err)
	var rows []outbox.Row
	for i := range 100 {
		row := row(uuid.New(), i)
		row.Input.Data = make([]byte, i*30)
		rows = append(rows, row)
	}
	_, err = store.Append(t.Context(), rows...)
	require.NoError(t, err)
	require.NoError(t, store.Close())
	eventually(t, func() bool { return len(filesIn(t, filepath.Dir(file))) == 1 }, "the file is closed")
	return filesIn(t, filepath.Dir(file))[filepath.Base(file)]
}

// filesIn returns the files of a folder.
func filesIn(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	files := map[string][]byte{}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if os.IsNotExist(err) || entry.IsDir() { // a journal that the driver is just deleting
			continue
		}
		require.NoError(t, err)
		files[entry.Name()] = content
	}
	return files
}

func TestFileThatIsNoStoreIsRefusedAndLeftAsItIs(t *testing.T) {
	truncated := func(length int) func(t *testing.T, file string) {
		return func(t *testing.T, file string) {
			require.NoError(t, os.WriteFile(file, makeStoreFile(t, file)[:length], 0o600))
		}
	}
	for _, test := range []struct {
		name       string
		make       func(t *testing.T, file string)
		parameters string
		want       error
	}{
		{"a text", func(t *testing.T, file string) {
			require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("these are my notes, not a database\n", 100)), 0o600))
		}, "", outbox.ErrCorrupt},
		{"cut inside its header", truncated(50), "", outbox.ErrCorrupt},
		{"cut after its header", truncated(100), "", outbox.ErrCorrupt},
		{"cut after a page", truncated(4096), "", outbox.ErrCorrupt},
		{"cut inside a page", truncated(6000), "", outbox.ErrCorrupt},
		{"overwritten", func(t *testing.T, file string) {
			content := makeStoreFile(t, file)
			copy(content[4096:], strings.Repeat("\xab", len(content)-4096))
			require.NoError(t, os.WriteFile(file, content, 0o600))
		}, "", outbox.ErrCorrupt},
		{"of a format yet to come", func(t *testing.T, file string) {
			content := makeStoreFile(t, file)
			content[18], content[19] = 9, 9
			require.NoError(t, os.WriteFile(file, content, 0o600))
		}, "", outbox.ErrCorrupt},
		{"a folder", func(t *testing.T, file string) { require.NoError(t, os.Mkdir(file, 0o700)) }, "", outbox.ErrUnavailable},
		{"missing, and not to be made", func(*testing.T, string) {}, "?mode=ro", outbox.ErrUnavailable},
		{"empty, and not to be written", func(t *testing.T, file string) {
			require.NoError(t, os.WriteFile(file, nil, 0o600))
		}, "?mode=ro", outbox.ErrReadOnly},
		{"old, and not to be written", func(t *testing.T, file string) {
			makeOldFile(t, file, oldTable, oldRow("a", nil))
		}, "?mode=ro", outbox.ErrReadOnly},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "outbox.db")
			test.make(t, file)
			before := filesIn(t, filepath.Dir(file))
			_, err := outbox.Open(t.Context(), "libsql", "file:"+file+test.parameters, nil)
			require.ErrorIs(t, err, test.want)
			eventually(t, func() bool { // the driver closes files on its own time
				return slices.Equal(slices.Sorted(maps.Keys(filesIn(t, filepath.Dir(file)))), slices.Sorted(maps.Keys(before)))
			}, "nothing is left beside it")
			require.Equal(t, before, filesIn(t, filepath.Dir(file)))
		})
	}
}

func TestMissingFolderIsNotMade(t *testing.T) {
	dir := t.TempDir()
	_, err := outbox.Open(t.Context(), "libsql", "file:"+filepath.Join(dir, "no", "such.db"), nil)
	require.ErrorIs(t, err, outbox.ErrUnavailable)
	require.NoDirExists(t, filepath.Join(dir, "no"))
}

func TestReadOnlyFileCanBeRead(t *testing.T) {
	for parameters, mode := range map[string]os.FileMode{"?mode=ro": 0o600, "": 0o400} {
		if mode == 0o400 && os.Geteuid() == 0 {
			continue // root may write it
		}
		file := filepath.Join(t.TempDir(), "outbox.db")
		before := makeStoreFile(t, file)
		require.NoError(t, os.Chmod(file, mode))
		store, err := outbox.Open(t.Context(), "libsql", "file:"+file+parameters, nil)
		require.NoError(t, err)
		rows, err := store.List(t.Context(), outbox.Filter{})
		require.NoError(t, err)
		require.Len(t, rows, 100)
		for name, call := range writes(store, rows[0].Ref()) {
			if name != "Update" && name != "RearmStale" { // which have nothing to write here
				require.ErrorIs(t, call(t.Context()), outbox.ErrReadOnly, name)
			}
		}
		require.NoError(t, store.Close())
		after, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, before, after)
	}
}

func TestDamageInsideAFileIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "outbox.db")
	content := makeStoreFile(t, file)
	const sound = 15 * 4096 // the schema is, so it can be opened
	copy(content[sound:], strings.Repeat("\xab", len(content)-sound))
	require.NoError(t, os.WriteFile(file, content, 0o600))
	store, err := outbox.Open(t.Context(), "libsql", "file:"+file, nil)
	require.NoError(t, err)
	defer store.Close()
	_, err = store.Claim(t.Context(), 1000)
	require.ErrorIs(t, err, outbox.ErrCorrupt)
}

func TestFullDatabaseTakesNothingHalfAndGoesOnWhenThereIsRoom(t *testing.T) {
	db := openHost(t)
	db.SetMaxOpenConns(1) // the limit is one of the connection's
	ctx := t.Context()
	store := outbox.New(db, nil)
	require.NoError(t, store.Migrate(ctx))
	limit := func(pages int) {
		t.Helper()
		var got int
		require.NoError(t, db.QueryRow("PRAGMA max_page_count = "+strconv.Itoa(pages)).Scan(&got))
		require.Equal(t, pages, got)
	}
	limit(60)
	stored, err := fillUp(store)
	require.ErrorIs(t, err, outbox.ErrFull)
	rows, err := store.List(ctx, outbox.Filter{})
	require.NoError(t, err)
	require.Len(t, rows, stored)
	outboxtest.Check(t, store)
	limit(100)
	_, err = store.Append(ctx, row(uuid.New(), 0))
	require.NoError(t, err)
	outboxtest.Check(t, store)
}

// fillUp appends pairs of rows until that fails, and returns how many rows it has
// stored.
func fillUp(store *outbox.Store) (stored int, err error) {
	for ; err == nil; stored += 2 {
		workflow := uuid.New()
		_, err = store.Append(context.Background(), row(workflow, 0), large(row(workflow, 1)))
	}
	return stored - 2, err
}

// fillFile appends to a file that may not grow any further at some point, and
// goes on once it may.
func fillFile(args []string, _ *bufio.Scanner, out io.Writer) error {
	store, err := outbox.Open(context.Background(), "libsql", args[0], nil)
	if err != nil {
		return err
	}
	defer store.Close()
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 300_000, Max: limit.Max}); err != nil {
		return err
	}
	stored, err := fillUp(store)
	if !errors.Is(err, outbox.ErrUnavailable) && !errors.Is(err, outbox.ErrCommitUnknown) {
		return fmt.Errorf("filled up: %w", err)
	}
	rows, listErr := store.List(context.Background(), outbox.Filter{})
	if listErr != nil {
		return listErr
	}
	if len(rows) != stored && (!errors.Is(err, outbox.ErrCommitUnknown) || len(rows) != stored+2) {
		return fmt.Errorf("%d rows of %d are there: %w", len(rows), stored, err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	if _, err := store.Append(context.Background(), row(uuid.New(), 0)); err != nil {
		return err
	}
	fmt.Fprintln(out, len(rows)+1)
	return nil
}

func TestFileThatCannotGrowTakesNothingHalfAndGoesOnWhenItCan(t *testing.T) {
	file := "file:" + filepath.Join(t.TempDir(), "outbox.db")
	filler := startChild(t, "fill", file)
	require.True(t, filler.out.Scan())
	stored, err := strconv.Atoi(filler.out.Text())
	require.NoError(t, err)
	require.Greater(t, stored, 1)
	filler.finish()
	outboxtest.RequireCounts(t, open(t, file, nil), map[outbox.Status]int{outbox.Pending: stored})
}

func TestStoreWhoseFileIsDeletedGoesOnWithItAndANewOneStartsEmpty(t *testing.T) {
	file := filepath.Join(t.TempDir(), "outbox.db")
	store := open(t, "file:"+file, nil)
	ctx := t.Context()
	_, err := store.Append(ctx, row(uuid.New(), 0))
	require.NoError(t, err)
	for name := range filesIn(t, filepath.Dir(file)) {
		require.NoError(t, os.Remove(filepath.Join(filepath.Dir(file), name)))
	}
	_, err = store.Append(ctx, row(uuid.New(), 0))
	require.NoError(t, err)
	outboxtest.RequireCounts(t, store, map[outbox.Status]int{outbox.Pending: 2})
	other := open(t, "file:"+file, nil)
	outboxtest.RequireCounts(t, other, nil)
	_, err = other.Append(ctx, row(uuid.New(), 0))
	require.NoError(t, err)
	outboxtest.RequireCounts(t, other, map[outbox.Status]int{outbox.Pending: 1})
}
