package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"example.com/outbox/sqlbatch"
)

// How a transaction begins: one that writes takes the lock at once, one that
// only reads takes none.
const (
	immediate = "BEGIN IMMEDIATE"
	deferred  = "BEGIN"
)

// deferBegin has the statement that begins a transaction travel with the first
// one in it, if the connection takes batches.
func deferBegin(conn *sql.Conn, statement string) (deferred bool) {
	_ = conn.Raw(func(c any) error {
		var batch sqlbatch.Conn
		if batch, deferred = batchConn(c); deferred {
			batch.Defer(statement)
		}
		return nil
	})
	return deferred
}

// inTransaction asks whether a transaction is open on conn. If none is, it
// leaves none. known is false if the connection gave no clear answer.
func inTransaction(conn *sql.Conn) (still, known bool) {
	_ = conn.Raw(func(c any) error {
		batch, ok := batchConn(c)
		known = ok
		still = ok && batch.InTransaction()
		return nil
	})
	if known {
		return still, true
	}
	_, err := conn.ExecContext(context.Background(), deferred)
	if isRemembered(err) { // asked again, it passes the question on
		_, err = conn.ExecContext(context.Background(), deferred)
	}
	if err == nil {
		_ = rollback(conn)
		return false, true
	}
	return isInTransaction(err), isInTransaction(err)
}

// rollback ends a transaction on conn if there is one. A connection that does
// not let it be ended is thrown away, which ends it too; the error says why. One
// that takes batches is thrown away at once: that takes one request as well, and
// not long.
func rollback(conn *sql.Conn) error {
	if deferBegin(conn, "") { // which takes a BEGIN back that was not sent
		if still, _ := inTransaction(conn); still {
			discard(conn)
		}
		return nil
	}
	ended := false
	defer func() {
		if !ended { // also if the driver panicked
			discard(conn)
		}
	}()
	_, err := conn.ExecContext(context.Background(), "ROLLBACK")
	if isNoTransaction(err) {
		err = nil
	}
	ended = err == nil
	return err
}

// discard makes the pool close conn instead of using it again.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}
