//go:build sqld

package hrana_test

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"encoding/base64"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/outbox/hrana"
	"example.com/outbox/sqlbatch"
	"github.com/stretchr/testify/require"
)

func withTable(t testing.TB, s *server) *sql.DB {
	t.Helper()
	db := open(t, s.url()+"?txlock=immediate")
	_, err := db.Exec("CREATE TABLE t (id INTEGER PRIMARY KEY)")
	require.NoError(t, err)
	return db
}

func begin(t testing.TB, db *sql.DB, query string) *sql.Tx {
	t.Helper()
	tx, err := db.Begin()
	require.NoError(t, err)
	_, err = tx.Exec(query)
	require.NoError(t, err)
	return tx
}

func TestWhatAStatementCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	db := withTable(t, startServer(t))
	for _, test := range []struct {
		code  string
		query string
		args  []any
	}{
		{"ARGS_INVALID", "SELECT ?, ?", []any{1}},
		{"ARGS_INVALID", "SELECT ?", []any{1, 2}},
		{"ARGS_INVALID", "SELECT :a", []any{sql.Named("b", 1)}},
		{"ARGS_INVALID", "SELECT :a", []any{sql.Named("a", 1), sql.Named("b", 1)}},
		{"ARGS_INVALID", "SELECT :a, :b", []any{sql.Named("a", 1)}},
		{"ARGS_INVALID", "SELECT :a, ?", []any{sql.Named("a", 1), 1}},
		{"ARGS_INVALID", "SELECT ?", []any{"a\x00b"}},
		{"ARGS_INVALID", "SELECT ?", []any{"\xff"}},
		{"ARGS_INVALID", "SELECT '\x00'", nil},
		{"ARGS_INVALID", "SELECT ?", []any{math.NaN()}},
		{"ARGS_INVALID", "SELECT ?", []any{math.Inf(-1)}},
		{"ARGS_INVALID", "SELECT ?", []any{uint64(math.MaxUint64)}},
		{"ARGS_INVALID", "SELECT ?", []any{struct{}{}}},
		{"ARGS_INVALID", "SELECT ?", []any{time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}},
		{"ARGS_INVALID", "SELECT ?", []any{make([]byte, 6_000_000)}},
		{"UNSUPPORTED", "SELECT ?", []any{sql.Out{}}},
		{"SQL_MANY_STATEMENTS", "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)", nil},
		{"SQL_NO_STATEMENT", " -- nothing", nil},
		{"SQL_PARSE_ERROR", "SELEC 1", nil},
	} {
		_, err := db.Exec(test.query, test.args...)
		require.Equal(t, test.code, sqlbatch.Code(err), "%s: %v", test.query, err)
		require.True(t, sqlbatch.NothingDone(err), test.query)
	}
	_, err := db.Exec("INSERT INTO nowhere VALUES (1)")
	require.Equal(t, "SQLITE_UNKNOWN", sqlbatch.Code(err))
	require.False(t, sqlbatch.NothingDone(err))
	require.False(t, sqlbatch.Lost(err))
	require.Equal(t, 0, count(t, db, "SELECT count(*) FROM t"))

	// What is too much for the server to tell was done, for all one knows.
	_, err = db.Query("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT zeroblob(4000000) FROM n")
	require.Equal(t, sqlbatch.CodeResponseTooLarge, sqlbatch.Code(err))
	require.True(t, sqlbatch.Lost(err))
	_, err = db.Query("SELECT CAST(x'ff' AS TEXT)")
	require.Equal(t, sqlbatch.CodeServerFailed, sqlbatch.Code(err))
	require.True(t, sqlbatch.Lost(err))

	for _, opts := range []*sql.TxOptions{{ReadOnly: true}, {Isolation: sql.LevelReadCommitted}} {
		_, err = db.BeginTx(t.Context(), opts)
		require.Equal(t, sqlbatch.CodeUnsupported, sqlbatch.Code(err))
	}
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
}

func TestABatchOfWhichTheServerRefusesAStepDoesNothing(t *testing.T) {
	t.Parallel()
	db := withTable(t, startServer(t))
	conn := connOf(t, db)
	insert := sqlbatch.Step{Query: "INSERT INTO t VALUES (1)"}
	onConn(t, conn, func(c sqlbatch.Conn) {
		for _, step := range []sqlbatch.Step{
			{Query: "INSER"},
			{Query: ""},
			{Query: "SELECT ?", Args: []any{"\x00"}},
			{Query: "SELECT 1", If: sqlbatch.OK(1)},
			{Query: "SELECT 1", If: sqlbatch.OK(-1)},
			{Query: "SELECT 1", If: sqlbatch.And(sqlbatch.OK(0), sqlbatch.Not(sqlbatch.OK(7)))},
			{Query: "SELECT 1", If: sqlbatch.Condition{Kind: sqlbatch.KindNot}},
			{Query: "SELECT 1", If: sqlbatch.Condition{Kind: 99}},
		} {
			_, err := c.Batch(t.Context(), []sqlbatch.Step{insert, step})
			require.True(t, sqlbatch.NothingDone(err), "%+v: %v", step, err)
		}
		results, err := c.Batch(t.Context(), []sqlbatch.Step{
			{Query: "SELECT ?, ?", Args: []any{1}},
			{Query: "SELECT 1", If: sqlbatch.Or(sqlbatch.OK(0), sqlbatch.Autocommit())},
			{Query: "SELECT 2", If: sqlbatch.Or()},
			{Query: "SELECT 3", If: sqlbatch.And()},
			{Query: "SELECT 4", If: sqlbatch.Not(sqlbatch.Condition{})},
			{Query: "SELECT :n", Args: []any{sql.Named("n", "named")}, If: sqlbatch.Not(sqlbatch.OK(4))},
		})
		require.NoError(t, err)
		require.Equal(t, sqlbatch.CodeArgsInvalid, sqlbatch.Code(results[0].Err))
		ran := make([]bool, len(results))
		for i, r := range results {
			ran[i] = r.Ran
		}
		require.Equal(t, []bool{true, true, false, true, false, true}, ran)
		require.Equal(t, "named", results[5].Rows[0][0])
		results, err = c.Batch(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, results)
	})
	require.Equal(t, 0, count(t, db, "SELECT count(*) FROM t"))
}

func TestAServerKilledWithinATransaction(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	db := withTable(t, s)
	tx := begin(t, db, "INSERT INTO t VALUES (1)")
	s.kill()
	// Another connection. The first one may still be on its way into the grave.
	_, _ = db.Exec("INSERT INTO t VALUES (2)")
	_, err := db.Exec("INSERT INTO t VALUES (2)")
	require.Equal(t, sqlbatch.CodeConnectionFailed, sqlbatch.Code(err))
	require.True(t, sqlbatch.NothingDone(err))
	s.start()
	err = tx.Commit()
	require.Equal(t, sqlbatch.CodeStreamUnknown, sqlbatch.Code(err), err)
	require.True(t, sqlbatch.NothingDone(err))
	require.Equal(t, 0, count(t, db, "SELECT count(*) FROM t"))

	// Connections that were idle go on as if nothing had been.
	s.kill()
	s.start()
	_, err = db.Exec("INSERT INTO t VALUES (3)")
	require.NoError(t, err)
}

func TestAStreamThatWasIdleForTooLong(t *testing.T) {
	t.Parallel()
	db := withTable(t, startServer(t))
	tx := begin(t, db, "INSERT INTO t VALUES (1)")
	time.Sleep(11 * time.Second) // the server's limit is 10 s
	_, err := tx.Exec("INSERT INTO t VALUES (2)")
	require.Equal(t, sqlbatch.CodeStreamExpired, sqlbatch.Code(err), err)
	require.True(t, sqlbatch.NothingDone(err))
	_, err = tx.Exec("INSERT INTO t VALUES (2)")
	require.Equal(t, sqlbatch.CodeStreamExpired, sqlbatch.Code(err), err)
	require.Equal(t, sqlbatch.CodeStreamExpired, sqlbatch.Code(tx.Commit()))
	require.Equal(t, 0, count(t, db, "SELECT count(*) FROM t"))

	db.SetMaxOpenConns(1)
	require.NoError(t, db.Ping())
	time.Sleep(11 * time.Second)
	_, err = db.Exec("INSERT INTO t VALUES (3)")
	require.NoError(t, err)
}

func TestATransactionThatKeepsOthersWaitingEnds(t *testing.T) {
	t.Parallel()
	db := withTable(t, startServer(t))
	slow := begin(t, db, "INSERT INTO t VALUES (1)")
	quick := begin(t, db, "INSERT INTO t VALUES (2)") // waits for 5 s
	_, err := slow.Exec("INSERT INTO t VALUES (3)")
	require.Equal(t, sqlbatch.CodeTransactionTimeout, sqlbatch.Code(err), err)
	require.True(t, sqlbatch.NothingDone(err))
	_, err = slow.Exec("INSERT INTO t VALUES (3)") // the server would take it
	require.Equal(t, sqlbatch.CodeNoTransaction, sqlbatch.Code(err), err)
	require.NoError(t, slow.Rollback())
	require.NoError(t, quick.Commit())
	require.Equal(t, 2, count(t, db, "SELECT sum(id) FROM t"))

	// COMMIT as the next one.
	slow = begin(t, db, "INSERT INTO t VALUES (4)")
	quick = begin(t, db, "INSERT INTO t VALUES (5)")
	err = slow.Commit()
	require.Equal(t, sqlbatch.CodeTransactionTimeout, sqlbatch.Code(err), err)
	require.True(t, sqlbatch.NothingDone(err))
	require.NoError(t, quick.Commit())
	require.Equal(t, 7, count(t, db, "SELECT sum(id) FROM t"))
}

func TestATriggerThatRollsBackEndsTheTransaction(t *testing.T) {
	t.Parallel()
	db := withTable(t, startServer(t))
	_, err := db.Exec("CREATE TRIGGER no BEFORE INSERT ON t WHEN new.id = 13 BEGIN SELECT RAISE(ROLLBACK, 'never'); END")
	require.NoError(t, err)
	tx := begin(t, db, "INSERT INTO t VALUES (1)")
	_, err = tx.Exec("INSERT INTO t VALUES (13)")
	require.Equal(t, sqlbatch.CodeConstraint, sqlbatch.Code(err))
	_, err = tx.Exec("INSERT INTO t VALUES (2)")
	require.Equal(t, sqlbatch.CodeNoTransaction, sqlbatch.Code(err))
	require.Equal(t, sqlbatch.CodeNoTransaction, sqlbatch.Code(tx.Commit()))
	require.Equal(t, 0, count(t, db, "SELECT count(*) FROM t"))
}

func TestAContextEndsTheWaitForTheLock(t *testing.T) {
	t.Parallel()
	db := withTable(t, startServer(t))
	holder := begin(t, db, "INSERT INTO t VALUES (1)")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := db.BeginTx(ctx, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, sqlbatch.Lost(err))
	require.Less(t, time.Since(began), 4*time.Second) // the server would have waited for 5 s
	require.NoError(t, holder.Commit())
	// The one that was given up gets the lock on the server, and is ended there.
	require.Eventually(t, func() bool {
		_, err := db.Exec("INSERT INTO t VALUES (2)")
		return err == nil
	}, time.Minute, time.Millisecond)
	require.Equal(t, 2, count(t, db, "SELECT count(*) FROM t"))
}

func TestClosingAConnectionInsideATransactionFreesTheLock(t *testing.T) {
	t.Parallel()
	db := withTable(t, startServer(t))
	conn := connOf(t, db)
	_, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), "INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // less than the server would wait
	defer cancel()
	_, err = db.ExecContext(ctx, "INSERT INTO t VALUES (2)")
	require.NoError(t, err)
	require.Equal(t, 2, count(t, db, "SELECT sum(id) FROM t"))
}

func TestAServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	db := withTable(t, s)
	var conns []*sql.Conn
	for range 8 {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, conn.PingContext(t.Context()))
		conns = append(conns, conn)
	}
	db.SetMaxIdleConns(8)
	for _, conn := range conns {
		require.NoError(t, conn.Close())
	}
	s.freeze()
	var err error
	for err == nil { // the signal takes its time
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err = db.ExecContext(ctx, "SELECT 1")
		cancel()
	}
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, sqlbatch.Lost(err))
	began := time.Now()
	require.NoError(t, db.Close())
	require.Less(t, time.Since(began), 6*time.Second) // one farewell is waited for, not eight
	s.thaw()
}

func TestStreamsAreClosed(t *testing.T) {
	t.Parallel()
	db := withTable(t, startServer(t, "--max-concurrent-connections", "4"))
	db.SetMaxIdleConns(0)
	for range 50 {
		require.NoError(t, db.Ping())
	}
	db.SetMaxIdleConns(100)
	var refused error
	for range 10 {
		conn := connOf(t, db)
		if refused = conn.PingContext(t.Context()); refused != nil {
			break
		}
	}
	var e *hrana.Error
	require.ErrorAs(t, refused, &e)
	require.Equal(t, 429, e.Status(), refused)
	require.True(t, e.NothingDone())
}

func TestManyGoroutinesShareAPool(t *testing.T) {
	t.Parallel()
	db := withTable(t, startServer(t))
	db.SetMaxOpenConns(4) // more than a few that wait for the lock wear the server out
	_, err := db.Exec("INSERT INTO t VALUES (0)")
	require.NoError(t, err)
	var wg sync.WaitGroup
	errs := make(chan error, 16)
	for range 16 {
		wg.Go(func() {
			for range 20 {
				err := increment(t.Context(), db)
				for sqlbatch.Code(err) == sqlbatch.CodeBusy && sqlbatch.NothingDone(err) {
					err = increment(t.Context(), db)
				}
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, 320, count(t, db, "SELECT id FROM t"))
}

func increment(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(c any) error {
		c.(sqlbatch.Conn).Defer("BEGIN IMMEDIATE")
		results, err := c.(sqlbatch.Conn).Batch(ctx, []sqlbatch.Step{
			{Query: "UPDATE t SET id = id + 1"},
			{Query: "COMMIT", If: sqlbatch.OK(0)},
			{Query: "ROLLBACK", If: sqlbatch.Not(sqlbatch.Autocommit())},
		})
		if err != nil {
			return err
		}
		return errors.Join(results[0].Err, results[1].Err, results[2].Err)
	})
}

func TestTokens(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte(base64.RawURLEncoding.EncodeToString(public)), 0o600))
	s := startServer(t, "--auth-jwt-key-file", file)
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"EdDSA","typ":"JWT"}`)) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(`{"exp":9999999999}`))
	token := text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(private, []byte(text)))

	require.NoError(t, open(t, s.url()+"?authToken="+token).Ping())
	c, err := hrana.NewConnector(s.url()+"?authToken=old", &hrana.Options{Token: hrana.Secret(token)})
	require.NoError(t, err)
	db := sql.OpenDB(c)
	defer db.Close()
	require.NoError(t, db.Ping())
	for _, wrong := range []string{"", "?authToken=" + strings.ToUpper(token), "?authToken=x"} {
		err := open(t, s.url()+wrong).Ping()
		var e *hrana.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, 401, e.Status())
		require.True(t, e.NothingDone())
		require.NotContains(t, err.Error(), strings.ToUpper(token))
		t.Log(err)
	}
}
