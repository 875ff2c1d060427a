package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// errNotUndone is for a call after which the transaction may not be as it was
// before: it has ended, or the driver did not say that it was undone.
var errNotUndone = errors.New("the call could not be undone")

// inSavepoint runs work in a transaction that goes on after it. What work has
// done is undone if it fails or panics, or else the error is errNotUndone.
func inSavepoint(ctx context.Context, tx Tx, work func() error) (err error) {
	end := context.WithoutCancel(ctx)
	if _, err := tx.ExecContext(ctx, "SAVEPOINT outbox_call"); err != nil {
		return err
	}
	released := false
	defer func() {
		if released {
			return
		}
		_, undo := tx.ExecContext(end, "ROLLBACK TO outbox_call")
		if undo == nil {
			_, undo = tx.ExecContext(end, "RELEASE outbox_call")
		}
		if undo != nil && err != nil {
			err = fmt.Errorf("%w: %w", errNotUndone, err)
		}
	}()
	if err := work(); err != nil {
		return err
	}
	if _, err := tx.ExecContext(end, "RELEASE outbox_call"); err != nil && !wasReleased(end, tx) {
		return err
	}
	released = true
	return nil
}

// wasReleased reports whether the savepoint is gone and the transaction goes on:
// the answer to its RELEASE was lost. If it is still there, this goes back to it.
func wasReleased(ctx context.Context, tx Tx) bool {
	if _, err := tx.ExecContext(ctx, "ROLLBACK TO outbox_call"); !isNoSuchSavepoint(err) {
		return false
	}
	_, err := tx.ExecContext(ctx, deferred)
	if err == nil { // it had ended
		_, _ = tx.ExecContext(ctx, "ROLLBACK")
	}
	return isInTransaction(err)
}

// wholeTx is a transaction of the program's, in which a statement that was begun
// is not interrupted when its context ends: SQLite answers an interrupted write by
// undoing the whole transaction, and what the program sends after that would be
// stored at once. (The Tx of Update notices it and refuses.)
type wholeTx struct{ Tx }

func (t wholeTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return t.Tx.ExecContext(context.WithoutCancel(ctx), query, args...)
}

func (t wholeTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return t.Tx.QueryContext(context.WithoutCancel(ctx), query, args...)
}

// WriteIn runs a call inside a transaction of the program's and, if the call
// fails, leaves that as it was. On a connection without one it makes one of its
// own.
func (db *DB) WriteIn(ctx context.Context, tx Tx, call *Call) error {
	update, inUpdate := tx.(*UpdateTx)
	if db.closed.Load() && !inUpdate { // a transaction under way ends as it would have
		return ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if reason := unfit(tx); reason != "" {
		return db.config.Invalid("tx", reason)
	}
	can := db.oneAtATime()
	if conn, ok := tx.(*sql.Conn); ok {
		err := db.retryBusy(ctx, func() error { return db.beginOn(ctx, conn, immediate) })
		if err == nil {
			return db.explainIn(ctx, call.Op, db.finishOn(ctx, conn, func() error { return db.run(ctx, conn, call, can) }))
		}
		if !isInTransaction(err) {
			return db.explainIn(ctx, call.Op, err)
		}
	}
	if !inUpdate {
		tx = wholeTx{tx}
	}
	err := inSavepoint(ctx, tx, func() error {
		if !inUpdate {
			// The transaction may be a deferred one. A write that changes
			// nothing takes its lock before the clock is read.
			err := db.retryBusy(ctx, func() error {
				_, err := tx.ExecContext(ctx, "DELETE FROM main."+db.config.LockTable+" WHERE FALSE")
				return err
			})
			if err != nil {
				return err
			}
		}
		return db.run(ctx, tx, call, can)
	})
	if inUpdate && errors.Is(err, errNotUndone) {
		update.giveUp(err)
	}
	return db.explainIn(ctx, call.Op, err)
}

// explainIn is explain for a transaction of the program's, whose connection it
// may have given back itself.
func (db *DB) explainIn(ctx context.Context, op string, err error) error {
	if isConnClosed(err) && !db.closed.Load() {
		return &OpError{op, err}
	}
	return db.explain(ctx, op, err)
}

// unfit says why tx cannot be a transaction. A *sql.DB has the methods of a Tx,
// but would spread the statements over its connections.
func unfit(tx Tx) string {
	switch tx := tx.(type) {
	case nil:
		return "is nil"
	case *sql.Tx:
		if tx == nil {
			return "is nil"
		}
	case *sql.Conn:
		if tx == nil {
			return "is nil"
		}
	case *sql.DB:
		return "is a *sql.DB, which is no transaction"
	}
	return ""
}

// finishOn runs work in the transaction that was begun on a connection of the
// program's, and ends it.
func (db *DB) finishOn(ctx context.Context, conn *sql.Conn, work func() error) error {
	ended := false
	defer func() {
		if !ended {
			_ = rollback(conn)
		}
	}()
	if err := work(); err != nil {
		return err
	}
	ended = true
	return db.commitOn(ctx, context.WithoutCancel(ctx), conn)
}
