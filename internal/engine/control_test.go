package engine

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	_ "github.com/tursodatabase/go-libsql"
)

// otherEnds are statements that end a transaction, or reach outside of it, in
// ways that are not looked for in their text.
var otherEnds = regexp.MustCompile(`(?i)attach|vacuum|pragma|or\s*rollback|raise|load_extension`)

func FuzzStatementThatEndsATransaction(f *testing.F) {
	for _, text := range []string{
		"COMMIT", "end transaction", "ROLLBACK", "ROLLBACK TO a", "rollback transaction to savepoint a", "BEGIN IMMEDIATE", "SELECT 1", "RELEASE a",
		" ;; /* x */ -- y\n COMMIT", "\ufeffCOMMIT", "/* unclosed", "EXPLAIN COMMIT", "EXPLAIN QUERY PLAN SELECT 1", "SELECT ';' ; COMMIT", `SELECT "a;b"`,
		"CREATE TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; END", "CREATE TEMP TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; END; COMMIT",
		"INSERT INTO t VALUES ('--'); COMMIT", "SELECT [a;b]", "SAVEPOINT a", "(COMMIT)", "COMMIT;", "\vCOMMIT", "\x1cCOMMIT", "CREATE TABLE a (b)",
	} {
		f.Add(text)
	}
	db, err := sql.Open("libsql", ":memory:")
	require.NoError(f, err)
	db.SetMaxOpenConns(1)
	f.Cleanup(func() { require.NoError(f, db.Close()) })
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, conn.Close()) })
	_, err = conn.ExecContext(ctx, "CREATE TABLE t (x)")
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, text string) {
		ends := endsTransaction(text)
		if otherEnds.MatchString(text) || strings.Contains(text, "\x00") {
			return
		}
		for _, statement := range []string{"BEGIN", "SAVEPOINT a"} {
			_, err := conn.ExecContext(ctx, statement)
			require.NoError(t, err)
		}
		// The driver runs the first statement alone.
		_, failed := conn.ExecContext(ctx, text)
		_, err := conn.ExecContext(ctx, "BEGIN")
		within := isInTransaction(err)
		_, err = conn.ExecContext(ctx, "ROLLBACK")
		require.NoError(t, err)
		told := fmt.Sprintf("%q: %v", text, failed)
		if !within {
			require.True(t, ends, told)
		} else if failed == nil && !strings.Contains(text, ";") {
			require.False(t, ends, told)
		}
	})
}
