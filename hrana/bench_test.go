//go:build sqld

package hrana_test

import (
	"bytes"
	"database/sql"
	"os"
	"testing"

	"example.com/outbox/sqlbatch"
	"github.com/stretchr/testify/require"
	_ "github.com/tursodatabase/go-libsql"
)

// BenchmarkSelect is one statement with an argument, beside go-libsql. SERVER may
// name a server that runs already.
func BenchmarkSelect(b *testing.B) {
	url := os.Getenv("SERVER")
	if url == "" {
		url = startServer(b).url()
	}
	for _, driver := range []string{"hrana", "libsql"} {
		b.Run(driver, func(b *testing.B) {
			db, err := sql.Open(driver, url)
			require.NoError(b, err)
			defer db.Close()
			b.ReportAllocs()
			for b.Loop() {
				var n int
				require.NoError(b, db.QueryRow("SELECT ?", 1).Scan(&n))
			}
		})
	}
}

// BenchmarkTransaction is a BEGIN IMMEDIATE, inserts and a COMMIT in one request.
func BenchmarkTransaction(b *testing.B) {
	db := open(b, startServer(b).url())
	_, err := db.Exec("CREATE TABLE t (id INTEGER PRIMARY KEY, payload BLOB)")
	require.NoError(b, err)
	conn, err := db.Conn(b.Context())
	require.NoError(b, err)
	defer conn.Close()
	payload := bytes.Repeat([]byte{0xa5}, 256)
	for _, rows := range []struct {
		name  string
		count int
	}{{"rows=1", 1}, {"rows=100", 100}} {
		b.Run(rows.name, func(b *testing.B) {
			b.ReportAllocs()
			query := "INSERT INTO t (payload) VALUES (?)"
			args := []any{payload}
			for len(args) < rows.count {
				query += ",(?)"
				args = append(args, payload)
			}
			onConn(b, conn, func(c sqlbatch.Conn) {
				for b.Loop() {
					c.Defer("BEGIN IMMEDIATE")
					_, err := c.Batch(b.Context(), []sqlbatch.Step{
						{Query: query, Args: args},
						{Query: "COMMIT", If: sqlbatch.OK(0)},
						{Query: "ROLLBACK", If: sqlbatch.Not(sqlbatch.Autocommit())},
					})
					require.NoError(b, err)
				}
			})
		})
	}
}

// BenchmarkRead reads a hundred rows with a blob of 256 bytes.
func BenchmarkRead(b *testing.B) {
	url := startServer(b).url()
	db := open(b, url)
	_, err := db.Exec(`CREATE TABLE t AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
SELECT i, 'key-' || i AS k, 'topic' AS topic, randomblob(256) AS payload, i * 1000 AS due FROM n`)
	require.NoError(b, err)
	for _, driver := range []string{"hrana", "libsql"} {
		b.Run(driver, func(b *testing.B) {
			db, err := sql.Open(driver, url)
			require.NoError(b, err)
			defer db.Close()
			b.ReportAllocs()
			for b.Loop() {
				rows, err := db.Query("SELECT i, k, topic, payload, due FROM t")
				require.NoError(b, err)
				n := 0
				for rows.Next() {
					var i, due int64
					var k, topic string
					var payload []byte
					require.NoError(b, rows.Scan(&i, &k, &topic, &payload, &due))
					n++
				}
				require.NoError(b, rows.Err())
				require.Equal(b, 100, n)
			}
		})
	}
}
