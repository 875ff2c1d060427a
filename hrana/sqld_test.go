//go:build sqld

package hrana_test

import (
	"context"
	"database/sql"
	"math"
	"testing"
	"time"

	"example.com/outbox/sqlbatch"
	"github.com/stretchr/testify/require"
)

// onConn calls f with the batches of a connection.
func onConn(t testing.TB, conn *sql.Conn, f func(sqlbatch.Conn)) {
	t.Helper()
	require.NoError(t, conn.Raw(func(c any) error {
		f(c.(sqlbatch.Conn))
		return nil
	}))
}

func connOf(t testing.TB, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func count(t testing.TB, db *sql.DB, query string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow(query).Scan(&n))
	return n
}

func TestValuesComeBackAsTheyWere(t *testing.T) {
	db := open(t, startServer(t).url())
	for _, value := range []any{
		nil, int64(0), int64(math.MaxInt64), int64(math.MinInt64), int64(1<<53 + 1), int64(999_999_999_999_999_999),
		1.5, -1e300, 5e-324, 1.0, math.Copysign(0, -1), math.MaxFloat64,
		"", "x", "2024-01-01", "2024-01-01T00:00:05.000000000Z", "quote \" backslash \\ newline \n tab \t bell \a del \x7f é \u2028 😀 </script>",
		[]byte{}, []byte{0}, []byte{0, 255}, []byte("abc"), []byte("abcd"),
	} {
		var got any
		require.NoError(t, db.QueryRow("SELECT ?", value).Scan(&got))
		require.Equal(t, value, got)
		require.NoError(t, db.QueryRow("SELECT :v", sql.Named("v", value)).Scan(&got))
		require.Equal(t, value, got)
	}
	var got any
	require.NoError(t, db.QueryRow("SELECT ?", true).Scan(&got))
	require.Equal(t, int64(1), got)
	require.NoError(t, db.QueryRow("SELECT ?", time.Date(2024, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))).Scan(&got))
	require.Equal(t, "2024-01-02T02:04:05.000000000Z", got)
	var infinite float64
	require.NoError(t, db.QueryRow("SELECT 9e999").Scan(&infinite))
	require.True(t, math.IsNaN(infinite))
}

func TestExecQueryAndTransactions(t *testing.T) {
	db := open(t, startServer(t).url()+"?txlock=immediate")
	_, err := db.Exec("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT UNIQUE)")
	require.NoError(t, err)
	result, err := db.Exec("INSERT INTO t (name) VALUES (?), (?)", "a", "b")
	require.NoError(t, err)
	affected, _ := result.RowsAffected()
	last, _ := result.LastInsertId()
	require.Equal(t, []int64{2, 2}, []int64{affected, last})

	_, err = db.Exec("INSERT INTO t (name) VALUES (?)", "a")
	require.Equal(t, sqlbatch.CodeConstraint, sqlbatch.Code(err))
	require.ErrorContains(t, err, "UNIQUE constraint failed: t.name")

	tx, err := db.Begin()
	require.NoError(t, err)
	_, err = tx.Exec("INSERT INTO t (name) VALUES ('c')")
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	tx, err = db.Begin()
	require.NoError(t, err)
	_, err = tx.Exec("INSERT INTO t (name) VALUES ('d')")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.Equal(t, 3, count(t, db, "SELECT count(*) FROM t"))

	statement, err := db.Prepare("SELECT name FROM t WHERE id > ? ORDER BY id")
	require.NoError(t, err)
	rows, err := statement.Query(1)
	require.NoError(t, err)
	types, err := rows.ColumnTypes()
	require.NoError(t, err)
	require.Equal(t, "TEXT", types[0].DatabaseTypeName())
	var names []string
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(t, rows.Err())
	require.Equal(t, []string{"b", "d"}, names)
	require.NoError(t, statement.Close())
}

func TestABatchIsOneTransaction(t *testing.T) {
	db := open(t, startServer(t).url())
	_, err := db.Exec("CREATE TABLE t (id INTEGER PRIMARY KEY)")
	require.NoError(t, err)
	steps := func(id int) []sqlbatch.Step {
		return []sqlbatch.Step{
			{Query: "BEGIN IMMEDIATE"},
			{Query: "INSERT INTO t VALUES (?)", Args: []any{id}, If: sqlbatch.OK(0)},
			{Query: "INSERT INTO t VALUES (?) RETURNING id", Args: []any{id + 1}, If: sqlbatch.OK(1)},
			{Query: "COMMIT", If: sqlbatch.OK(2)},
			{Query: "ROLLBACK", If: sqlbatch.Not(sqlbatch.Autocommit())},
		}
	}
	onConn(t, connOf(t, db), func(c sqlbatch.Conn) {
		results, err := c.Batch(context.Background(), steps(1))
		require.NoError(t, err)
		require.Len(t, results, 5)
		for i, r := range results {
			require.NoError(t, r.Err)
			require.Equal(t, i < 4, r.Ran)
		}
		require.Equal(t, int64(2), results[2].Rows[0][0])
		require.False(t, c.InTransaction())

		results, err = c.Batch(context.Background(), steps(2))
		require.NoError(t, err)
		require.Equal(t, sqlbatch.CodeConstraint, sqlbatch.Code(results[1].Err))
		require.False(t, results[2].Ran)
		require.False(t, results[3].Ran)
		require.True(t, results[4].Ran)
		require.NoError(t, results[4].Err)
		require.False(t, c.InTransaction())
	})
	require.Equal(t, 2, count(t, db, "SELECT count(*) FROM t"))
}

func TestADeferredQueryTravelsInFront(t *testing.T) {
	db := open(t, startServer(t).url())
	_, err := db.Exec("CREATE TABLE t (id INTEGER PRIMARY KEY)")
	require.NoError(t, err)
	conn := connOf(t, db)
	onConn(t, conn, func(c sqlbatch.Conn) { c.Defer("BEGIN IMMEDIATE") })
	_, err = conn.ExecContext(t.Context(), "INSERT INTO t VALUES (?)", 1)
	require.NoError(t, err)
	onConn(t, conn, func(c sqlbatch.Conn) { require.True(t, c.InTransaction()) })
	_, err = conn.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	require.Equal(t, 0, count(t, db, "SELECT count(*) FROM t"))

	onConn(t, conn, func(c sqlbatch.Conn) {
		c.Defer("BEGIN NONSENSE")
		_, err := c.Batch(t.Context(), []sqlbatch.Step{{Query: "INSERT INTO t VALUES (1)"}})
		require.Error(t, err)
		require.True(t, sqlbatch.NothingDone(err))
		_, err = c.Batch(t.Context(), []sqlbatch.Step{{Query: "INSERT INTO t VALUES (1)"}})
		require.Error(t, err) // it is still in front
		c.Defer("BEGIN IMMEDIATE")
		results, err := c.Batch(t.Context(), []sqlbatch.Step{
			{Query: "INSERT INTO t VALUES (1)"},
			{Query: "INSERT INTO t VALUES (1)", If: sqlbatch.OK(0)},
			{Query: "COMMIT", If: sqlbatch.Not(sqlbatch.OK(1))},
		})
		require.NoError(t, err)
		require.Error(t, results[1].Err)
		require.True(t, results[2].Ran)
		require.False(t, c.InTransaction())
	})
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM t"))
}
