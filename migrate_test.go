package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// oldTable is a legacy table.
const oldTable = `CREATE TABLE outbox (
	dispatch_key TEXT PRIMARY KEY, workflow_id TEXT NOT NULL, ordinal INTEGER NOT NULL, activity_type TEXT NOT NULL,
	input BLOB NOT NULL, status TEXT NOT NULL, attempt INTEGER NOT NULL, visible_after TEXT NOT NULL,
	claimed_at TEXT,
	run_id TEXT,
	namespace TEXT,
	task_queue TEXT,
	node TEXT)`

const (
	oldWorkflow = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
	oldInstant  = "2023-05-06T07:08:09.000000000Z"
	oldInput    = `{"content_type":"Json","bytes":[123,125]}`
)

// oldRow returns a statement that inserts a row as the old engine did, with
// these columns given as SQL.
func oldRow(key string, columns map[string]string) string {
	values := map[string]string{
		"dispatch_key": "'" + key + "'", "workflow_id": "'" + oldWorkflow + "'", "ordinal": "1", "activity_type": "'send'",
		"input": "CAST('" + oldInput + "' AS BLOB)", "status": "'pending'", "attempt": "0", "visible_after": "'" + oldInstant + "'",
	}
	for name, value := range columns {
		values[name] = value
	}
	var names, list []string
	for name, value := range values {
		names, list = append(names, name), append(list, value)
	}
	return fmt.Sprintf("INSERT INTO outbox (%s) VALUES (%s)", strings.Join(names, ", "), strings.Join(list, ", "))
}

func makeOldFile(t *testing.T, file string, statements ...string) {
	t.Helper()
	db, err := sql.Open("libsql", "file:"+file)
	require.NoError(t, err)
	for _, statement := range statements {
		rows, err := db.Query(statement)
		require.NoError(t, err, statement)
		for rows.Next() {
			continue
		}
		require.NoError(t, rows.Err(), statement)
		require.NoError(t, rows.Close())
	}
	require.NoError(t, db.Close())
}

func openOld(t *testing.T, clock *outboxtest.Clock, statements ...string) *outbox.Store {
	t.Helper()
	file := filepath.Join(t.TempDir(), "old.db")
	makeOldFile(t, file, statements...)
	store := open(t, "file:"+file, &outbox.Options{Now: clock.Now})
	t.Cleanup(func() { outboxtest.Check(t, store) })
	return store
}

func TestOldFileIsMigratedInPlace(t *testing.T) {
	clock := outboxtest.NewClock()
	run := uuid.New()
	store := openOld(t, clock, oldTable,
		oldRow("plain", nil),
		oldRow("routed", map[string]string{"namespace": "'tenant'", "task_queue": "'mail'", "node": "'n1'", "run_id": "'" + run.String() + "'", "attempt": "3"}),
		oldRow("unpinned", map[string]string{"node": "''", "visible_after": "'2023-05-06T07:08:10.000000000Z'"}),
		oldRow("claimed", map[string]string{"status": "'claimed'", "claimed_at": "'" + oldInstant + "'"}),
		oldRow("timeless", map[string]string{"status": "'claimed'"}),
		oldRow("done", map[string]string{"status": "'done'"}),
	)
	ctx := context.Background()
	at := time.Date(2023, 5, 6, 7, 8, 9, 0, time.UTC)

	got, err := store.Get(ctx, "routed")
	require.NoError(t, err)
	require.Equal(t, outbox.Row{
		ID: 2, DispatchKey: "routed", WorkflowID: uuid.MustParse(oldWorkflow), Ordinal: 1, RunID: uuid.NullUUID{UUID: run, Valid: true},
		Namespace: "tenant", TaskQueue: "mail", Node: "n1", ActivityType: "send",
		Input:  outbox.Payload{ContentType: "application/json", Data: []byte("{}")},
		Status: outbox.Pending, Attempt: 3, VisibleAfter: at, CreatedAt: clock.Now(),
	}, got)

	claimed, err := store.ClaimScoped(ctx, outbox.Scope{Namespace: "default", TaskQueue: "default"}, 9)
	require.NoError(t, err)
	require.Len(t, claimed, 2)
	require.Equal(t, "plain", claimed[0].DispatchKey)
	require.Equal(t, "unpinned", claimed[1].DispatchKey)

	held, err := store.Get(ctx, "claimed")
	require.NoError(t, err)
	require.EqualValues(t, 1, held.Fence)
	stale, err := store.ListStale(ctx, clock.Now(), 9)
	require.NoError(t, err)
	require.Len(t, stale, 1, "a claim without claimed-at is never stale")
	require.NoError(t, store.Complete(ctx, held.Ref()))

	purged, err := store.Purge(ctx, clock.Now().Add(1), 9)
	require.NoError(t, err)
	require.Equal(t, 2, purged, "also the one that was done before")
	duplicates, err := store.Append(ctx, outbox.Row{DispatchKey: "plain", WorkflowID: uuid.New(), ActivityType: "send"})
	require.NoError(t, err)
	require.Equal(t, []string{"plain"}, duplicates)
}

func TestOldFileMayLackColumns(t *testing.T) {
	for _, lacking := range []string{"claimed_at", "run_id", "namespace", "task_queue", "node", "all"} {
		t.Run(lacking, func(t *testing.T) {
			table := oldTable
			for _, column := range []string{"claimed_at", "run_id", "namespace", "task_queue", "node"} {
				if column == lacking || lacking == "all" {
					table = strings.Replace(table, ",\n\t"+column+" TEXT", "", 1)
				}
			}
			require.NotEqual(t, oldTable, table)
			store := openOld(t, outboxtest.NewClock(), table, oldRow("a", nil))
			rows, err := store.ClaimScoped(context.Background(), outbox.Scope{Namespace: "default", TaskQueue: "default"}, 9)
			require.NoError(t, err)
			require.Len(t, rows, 1)
			require.False(t, rows[0].RunID.Valid)
		})
	}
}

func TestOldRowsThatCannotBeClaimedBecomeDeadLetters(t *testing.T) {
	clock := outboxtest.NewClock()
	loose := strings.NewReplacer(" NOT NULL", "", " PRIMARY KEY", " UNIQUE").Replace(oldTable)
	store := openOld(t, clock, loose,
		oldRow("bad status", map[string]string{"status": "'paused'"}),
		oldRow("no status", map[string]string{"status": "NULL"}),
		oldRow("blob status", map[string]string{"status": "x'00'"}),
		oldRow("bad instant", map[string]string{"visible_after": "'soon'"}),
		oldRow("no instant", map[string]string{"visible_after": "NULL"}),
		oldRow("blob instant", map[string]string{"visible_after": "x'00ff'"}),
		oldRow("off the calendar", map[string]string{"visible_after": "'9999-19-39T29:00:00.000000000Z'"}),
		oldRow("no ordinal", map[string]string{"ordinal": "NULL"}),
		oldRow("x", map[string]string{"dispatch_key": "NULL"}),
		oldRow("good", nil),
		oldRow("short instant", map[string]string{"visible_after": "'2023-05-06T09:08:09+02:00'"}),
		oldRow("upper", map[string]string{"workflow_id": "upper('" + oldWorkflow + "')"}),
		oldRow("done, bad instant", map[string]string{"status": "'done'", "visible_after": "'soon'"}),
		oldRow("bad claim", map[string]string{"status": "'claimed'", "claimed_at": "'a while ago'"}),
		oldRow("claim of a pending row", map[string]string{"claimed_at": "'a while ago'"}),
	)
	ctx := context.Background()
	failed, err := store.List(ctx, outbox.Filter{Status: outbox.Failed})
	require.NoError(t, err)
	require.Len(t, failed, 9)
	for _, row := range failed {
		require.Contains(t, row.LastError, "migration: ", row.DispatchKey)
		require.Equal(t, clock.Now(), row.FinishedAt)
	}
	claimed, err := store.Claim(ctx, 99)
	require.NoError(t, err)
	require.Len(t, claimed, 4)
	for _, row := range claimed {
		require.Equal(t, time.Date(2023, 5, 6, 7, 8, 9, 0, time.UTC), row.VisibleAfter)
	}
	clock.Advance(time.Second)
	stale, err := store.ListStale(ctx, clock.Now(), 99)
	require.NoError(t, err)
	require.Len(t, stale, 5, "a claim of unknown age goes stale in the end")
}

func TestMigrationMovesLargePayloadsAndKeepsWhatTheHostMade(t *testing.T) {
	clock := outboxtest.NewClock()
	numbers := strings.TrimSuffix(strings.Repeat("7,", 3000), ",")
	store := openOld(t, clock, oldTable,
		`CREATE INDEX by_type ON outbox (activity_type)`,
		`CREATE VIEW waiting AS SELECT dispatch_key FROM outbox WHERE status = 'pending'`,
		`CREATE TABLE log (what TEXT)`,
		`CREATE TRIGGER logged AFTER INSERT ON outbox BEGIN INSERT INTO log VALUES (NEW.dispatch_key); END`,
		`CREATE TABLE child (key TEXT REFERENCES outbox (dispatch_key) ON DELETE CASCADE)`,
		oldRow("small", nil),
		oldRow("large", map[string]string{"input": `CAST('{"content_type":"Json","bytes":[` + numbers + `]}' AS BLOB)`}),
		`INSERT INTO child VALUES ('small')`,
		`CREATE TABLE version AS SELECT user_version FROM pragma_user_version`,
	)
	ctx := context.Background()
	number := func(query string) (n int) {
		require.NoError(t, store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
			return tx.QueryRowContext(ctx, query).Scan(&n)
		}))
		return n
	}
	require.Equal(t, 1, number("SELECT count(*) FROM child"), "no row of the host's is touched")
	require.Equal(t, 2, number("SELECT count(*) FROM log"), "and none of its triggers fired")
	require.Equal(t, 1, number("SELECT count(*) FROM outbox_payload"))
	require.Equal(t, number("SELECT user_version FROM version"), number("PRAGMA user_version"))
	require.Equal(t, 2, number("SELECT count(*) FROM waiting"))
	require.Equal(t, 1, number("SELECT count(*) FROM sqlite_master WHERE name = 'by_type' AND tbl_name = 'outbox'"))
	require.Equal(t, 1, number("SELECT count(*) FROM sqlite_master WHERE name = 'waiting' AND sql LIKE '%FROM outbox WHERE%'"))
	rows, err := store.Claim(ctx, 9)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.Len(t, rows[0].Input.Data, 3000)
	_, err = store.Append(ctx, row(uuid.New(), 0))
	require.NoError(t, err)
	require.Equal(t, 3, number("SELECT count(*) FROM log"), "the host's trigger works")
}

func TestForeignKeysOfTheHostStillHoldAfterMigration(t *testing.T) {
	store := openOld(t, outboxtest.NewClock(),
		strings.Replace(oldTable, "node TEXT)", "node TEXT, UNIQUE (workflow_id, ordinal))", 1),
		`CREATE TABLE by_key (k TEXT REFERENCES outbox (dispatch_key) ON DELETE CASCADE)`,
		`CREATE TABLE by_place (w TEXT, o INTEGER, FOREIGN KEY (w, o) REFERENCES outbox (workflow_id, ordinal) ON DELETE CASCADE)`,
		oldRow("a", nil),
		`INSERT INTO by_key VALUES ('a')`,
		`INSERT INTO by_place VALUES ('`+oldWorkflow+`', 1)`)
	ctx := context.Background()
	_, err := store.Append(ctx, outbox.Row{WorkflowID: uuid.New(), ActivityType: "send"})
	require.NoError(t, err)
	count := func(table string) (n int) {
		require.NoError(t, store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
			return tx.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n)
		}))
		return n
	}
	require.Equal(t, 1, count("by_key"))
	require.Equal(t, 1, count("by_place"))
	require.NoError(t, store.Complete(ctx, outbox.Ref{DispatchKey: "a"}))
	n, err := store.Purge(ctx, time.Now().AddDate(100, 0, 0), 9)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Zero(t, count("by_key"))
	require.Zero(t, count("by_place"))
}

func TestMigrationThatFailsAtAnyStatementLeavesTheFileAsItWas(t *testing.T) {
	dir := t.TempDir()
	for n := 1; ; n++ {
		file := filepath.Join(dir, fmt.Sprintf("old-%d.db", n))
		makeOldFile(t, file, oldTable, oldRow("a", nil), oldRow("b", map[string]string{"visible_after": "'soon'"}),
			`CREATE TABLE child (k TEXT REFERENCES outbox (dispatch_key) ON DELETE CASCADE)`, `INSERT INTO child VALUES ('a')`,
			`CREATE INDEX by_type ON outbox (activity_type)`, `PRAGMA user_version = 7`)
		db, recorded := openRecordedFile(t, file)
		before := dump(t, db)
		recorded.arm(n, refused, nil)
		err := outbox.New(db, nil).Migrate(context.Background())
		failed := recorded.disarm()
		var children, enforced int
		require.NoError(t, db.QueryRow("SELECT count(*) FROM child").Scan(&children))
		require.NoError(t, db.QueryRow("PRAGMA foreign_keys").Scan(&enforced))
		require.Equal(t, 1, children, "statement %d", n)
		require.Equal(t, 1, enforced, "statement %d", n)
		if err != nil {
			require.True(t, failed)
			require.Equal(t, before, dump(t, db), "statement %d", n)
			continue
		}
		outboxtest.Check(t, outbox.New(db, nil))
		var version int
		require.NoError(t, db.QueryRow("PRAGMA user_version").Scan(&version))
		require.Equal(t, 7, version)
		if !failed { // it took fewer statements
			require.Greater(t, n, 30)
			return
		}
	}
}

// dump returns the schema of a database and the keys in table outbox.
func dump(t *testing.T, db *sql.DB) (lines []string) {
	t.Helper()
	rows, err := db.Query("SELECT CAST(type || ' ' || name || ' ' || ifnull(sql, '') AS BLOB) FROM sqlite_master UNION ALL SELECT CAST(dispatch_key AS BLOB) FROM outbox")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var line []byte
		require.NoError(t, rows.Scan(&line))
		lines = append(lines, string(line))
	}
	require.NoError(t, rows.Err())
	return lines
}

func TestOldTableWithoutRowIDs(t *testing.T) {
	store := openOld(t, outboxtest.NewClock(), oldTable+" WITHOUT ROWID",
		oldRow("b", map[string]string{"ordinal": "1"}), oldRow("a", map[string]string{"ordinal": "2"}))
	rows, err := store.List(context.Background(), outbox.Filter{})
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.Equal(t, "b", rows[0].DispatchKey)
}
