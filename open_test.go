package outbox_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func fileSize(t *testing.T, dataSourceName string) int64 {
	t.Helper()
	info, err := os.Stat(strings.TrimPrefix(dataSourceName, "file:"))
	if os.IsNotExist(err) {
		return 0
	}
	require.NoError(t, err)
	return info.Size()
}

// pragma reads a setting on the connection of an Update.
func pragma(t *testing.T, store *outbox.Store, name string) (value string) {
	t.Helper()
	require.NoError(t, store.Update(context.Background(), func(ctx context.Context, tx outbox.Tx) error {
		return tx.QueryRowContext(ctx, "PRAGMA "+name).Scan(&value)
	}))
	return value
}

func TestOpenSetsUpFiles(t *testing.T) {
	dir := t.TempDir()
	full := open(t, "file:"+filepath.Join(dir, "full.db"), nil)
	require.Equal(t, "wal", pragma(t, full, "journal_mode"))
	require.Equal(t, "2", pragma(t, full, "synchronous"))
	normal := open(t, "file:"+filepath.Join(dir, "normal.db"), &outbox.Options{Synchronous: outbox.Normal})
	require.Equal(t, "wal", pragma(t, normal, "journal_mode"))
	require.Equal(t, "1", pragma(t, normal, "synchronous"))
}

func TestInMemoryDatabasesShareNothingUnlessNamed(t *testing.T) {
	ctx := context.Background()
	for _, name := range []string{":memory:", "file::memory:", "file::memory:?cache=shared", "file:x?mode=memory"} {
		one, two := open(t, name, nil), open(t, name, nil)
		_, err := one.Append(ctx, row(uuid.New(), 0))
		require.NoError(t, err)
		outboxtest.RequireCounts(t, one, map[outbox.Status]int{outbox.Pending: 1})
		outboxtest.RequireCounts(t, two, nil)
	}
	shared := "file:shared-" + uuid.NewString() + "?mode=memory&cache=shared"
	one := open(t, shared, nil)
	_, err := one.Append(ctx, row(uuid.New(), 0))
	require.NoError(t, err)
	outboxtest.RequireCounts(t, open(t, shared, nil), map[outbox.Status]int{outbox.Pending: 1})
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, entry := range entries {
		require.NotContains(t, entry.Name(), "memory", "no file is made")
	}
}

func TestStoresThatShareAMemoryDatabaseWaitForEachOther(t *testing.T) {
	name := "file:shared-" + uuid.NewString() + "?mode=memory&cache=shared"
	stores := []*outbox.Store{open(t, name, nil), open(t, name, nil)}
	results := make(chan error, 4)
	for i := range cap(results) {
		go func() { results <- appendAndComplete(stores[i%2], 100, func(outbox.Row) {}) }()
	}
	for range cap(results) {
		require.NoError(t, <-results)
	}
	outboxtest.RequireCounts(t, stores[0], map[outbox.Status]int{outbox.Done: 400})
}

func TestWALShrinksAgainAfterALongReader(t *testing.T) {
	file := filepath.Join(t.TempDir(), "outbox.db")
	store := open(t, "file:"+file, &outbox.Options{Synchronous: outbox.Normal})
	reader, err := sql.Open("libsql", "file:"+file)
	require.NoError(t, err)
	defer reader.Close()
	ctx := context.Background()
	conn, err := reader.Conn(ctx)
	require.NoError(t, err)
	_, err = conn.ExecContext(ctx, "BEGIN")
	require.NoError(t, err)
	var n int
	require.NoError(t, conn.QueryRowContext(ctx, "SELECT count(*) FROM outbox").Scan(&n))
	const limit = 20 << 20
	large := row(uuid.New(), 0)
	large.Input.Data = make([]byte, 1<<20)
	for i := range 64 {
		large.Ordinal = uint64(i)
		_, err := store.Append(ctx, large)
		require.NoError(t, err)
	}
	require.Greater(t, fileSize(t, file+"-wal"), int64(3*limit))
	_, err = conn.ExecContext(ctx, "COMMIT")
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	for i := range 200 {
		_, err := store.Append(ctx, row(uuid.New(), i))
		require.NoError(t, err)
	}
	require.LessOrEqual(t, fileSize(t, file+"-wal"), int64(limit))
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

func TestForeignAndNewerDatabasesAreLeftAsTheyAre(t *testing.T) {
	ctx := context.Background()
	for name, test := range map[string]struct {
		ddl  []string
		want error
	}{
		"a table of another shape":        {[]string{"CREATE TABLE outbox (id INTEGER PRIMARY KEY, message TEXT)", "INSERT INTO outbox VALUES (1, 'x')"}, outbox.ErrForeignTable},
		"a view":                          {[]string{"CREATE TABLE t (dispatch_key)", "CREATE VIEW outbox AS SELECT * FROM t"}, outbox.ErrForeignTable},
		"an old table with more":          {[]string{strings.Replace(oldTable, "node TEXT", "node TEXT, tenant TEXT", 1)}, outbox.ErrForeignTable},
		"a payload table":                 {[]string{"CREATE TABLE outbox_payload (x)"}, outbox.ErrForeignTable},
		"a version table":                 {[]string{"CREATE TABLE outbox_schema (x)"}, outbox.ErrForeignTable},
		"an index of one of ours":         {[]string{"CREATE TABLE t (x)", "CREATE INDEX outbox_due ON t (x)"}, outbox.ErrForeignTable},
		"an old table of other types":     {[]string{strings.Replace(oldTable, "ordinal INTEGER", "ordinal TEXT", 1)}, outbox.ErrForeignTable},
		"an old table with keys twice":    {[]string{strings.Replace(oldTable, " PRIMARY KEY", "", 1), oldRow("a", nil), oldRow("a", nil)}, outbox.ErrForeignTable},
		"an old table beside another":     {[]string{oldTable, "CREATE TABLE outbox_migrating (x)"}, outbox.ErrForeignTable},
		"a foreign key without a column":  {[]string{oldTable, "CREATE TABLE child (k TEXT REFERENCES outbox)"}, outbox.ErrForeignTable},
		"a newer schema with more to say": {[]string{"CREATE TABLE outbox_schema (version INTEGER NOT NULL, note TEXT)", "INSERT INTO outbox_schema VALUES (2, 'x')"}, outbox.ErrNewerSchema},
		"a newer schema":                  {[]string{"CREATE TABLE outbox_schema (version INTEGER NOT NULL)", "INSERT INTO outbox_schema VALUES (2)"}, outbox.ErrNewerSchema},
		"a newer schema with table":       {[]string{"CREATE TABLE outbox (other)", "CREATE TABLE outbox_schema (version INTEGER NOT NULL)", "INSERT INTO outbox_schema VALUES (99)"}, outbox.ErrNewerSchema},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "foreign.db")
			db, err := sql.Open("libsql", "file:"+file)
			require.NoError(t, err)
			for _, statement := range test.ddl {
				_, err := db.Exec(statement)
				require.NoError(t, err)
			}
			require.NoError(t, db.Close())
			before, err := os.ReadFile(file)
			require.NoError(t, err)

			_, err = outbox.Open(ctx, "libsql", "file:"+file, nil)
			require.ErrorIs(t, err, test.want)
			after, err := os.ReadFile(file)
			require.NoError(t, err)
			require.True(t, bytes.Equal(before, after), "the file is unchanged")
			eventually(t, func() bool { // the driver closes files on its own time
				files, err := filepath.Glob(file + "*")
				return err == nil && len(files) == 1
			}, "no journal is left")

			db, err = sql.Open("libsql", "file:"+file)
			require.NoError(t, err)
			defer db.Close()
			require.ErrorIs(t, outbox.New(db, nil).Migrate(ctx), test.want)
		})
	}
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

func TestHostMayRunTheSchemaItself(t *testing.T) {
	db := openHost(t)
	for range 2 {
		for statement := range strings.SplitSeq(strings.TrimSpace(outbox.Schema()), ";\n\n") {
			_, err := db.Exec(statement)
			require.NoError(t, err, statement)
		}
	}
	store := outbox.New(db, nil)
	ctx := context.Background()
	_, err := store.Append(ctx, row(uuid.New(), 0))
	require.NoError(t, err)
	require.NoError(t, store.Migrate(ctx))
	outboxtest.Check(t, store)
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

func TestMigrateMendsWhatIsMissing(t *testing.T) {
	file := "file:" + filepath.Join(t.TempDir(), "outbox.db")
	store := open(t, file, nil)
	ctx := context.Background()
	require.NoError(t, store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
		_, err := tx.ExecContext(ctx, "DROP INDEX outbox_due")
		return err
	}))
	_, err := store.Claim(ctx, 1)
	require.Error(t, err)
	require.NoError(t, store.Migrate(ctx))
	_, err = store.Claim(ctx, 1)
	require.NoError(t, err)
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
