package outbox

import (
	"context"
	"database/sql"
	"errors"
)

// write runs fn in one IMMEDIATE transaction and commits it: if write returns
// an error, nothing is stored, unless it is ErrCommitUnknown. now is the
// instant at which the write lock was held. weight is how many rows it may
// touch, or so.
func write[T any](ctx context.Context, s *Store, op string, weight int, fn func(tx Tx, now string) (T, error)) (T, error) {
	var zero, value T
	err := writeJob(s, op, &job{ctx: ctx, weight: weight, run: func(tx Tx, now string) (err error) {
		value, err = fn(tx, now)
		return err
	}})
	if err != nil {
		return zero, err
	}
	return value, nil
}

// writeMerged is write for work that may be done together with that of other
// goroutines, and which holds its outcome.
func writeMerged(ctx context.Context, s *Store, op string, weight int, work mergeable) error {
	return writeJob(s, op, &job{ctx: ctx, weight: weight, work: work, run: func(tx Tx, now string) error {
		return work.runAll(ctx, tx, now, []mergeable{work})
	}})
}

func writeJob(s *Store, op string, j *job) error {
	if err := s.admit(j.ctx); err != nil {
		return err
	}
	if s.deaf() {
		return s.explain(j.ctx, op, writeAlone(s, j))
	}
	s.runJob(j)
	if j.panicked != nil {
		panic(j.panicked)
	}
	return s.explain(j.ctx, op, j.err)
}

// writeAlone shares its commit with nobody: it may have to leave a driver to
// itself when ctx ends, and nobody else's call must hang on that.
func writeAlone(s *Store, j *job) error {
	if err := s.takeTurn(j.ctx); err != nil {
		return err
	}
	defer s.turns.pass()
	conn, err := s.begin(j.ctx)
	if err != nil {
		return err
	}
	return s.finishJob(conn, j)
}

// finish runs fn in the transaction that is open on conn, ends it whatever
// happens, and gives conn back.
func finish[T any](ctx context.Context, s *Store, conn *sql.Conn, fn func(tx Tx, now string) (T, error)) (T, error) {
	var zero T
	ended, panicked := false, true
	defer func() {
		if !ended {
			s.abort(ctx, conn, panicked)
		}
	}()
	value, err := await(ctx, s, func() (T, error) {
		return inside(ctx, s, conn, fn)
	}, func(T, error) {
		// Only now, since fn may have sent more until it returned: behind a
		// ROLLBACK that would be stored at once.
		rollback(conn)
		conn.Close()
	})
	panicked = false
	if errors.Is(err, errAbandoned) {
		ended = true
	}
	if err != nil {
		return zero, err
	}
	ended = true
	if err := s.commit(ctx, conn); err != nil {
		return zero, err
	}
	return value, nil
}

// inside runs fn in a transaction whose write lock is held. The transaction may
// be committed if there is no error.
func inside[T any](ctx context.Context, s *Store, tx Tx, fn func(tx Tx, now string) (T, error)) (T, error) {
	var zero T
	now, err := s.instant()
	if err != nil {
		return zero, err
	}
	value, err := fn(tx, now)
	if err == nil {
		err = ctx.Err()
	}
	return value, err
}

// done is the value of a call that has none.
type done struct{}

// takeTurn waits until no other goroutine of this Store writes.
func (s *Store) takeTurn(ctx context.Context) error {
	_, err := s.turns.take(ctx, nil)
	return err
}

// instant is the present as it is stored.
func (s *Store) instant() (string, error) {
	now, ok := encodeInstant(s.now())
	if !ok {
		return "", &InvalidError{Index: -1, Field: "Options.Now", Reason: "returned a year outside 0000-9999"}
	}
	return now, nil
}

// within runs fn inside the caller's transaction and, if fn fails, leaves that
// transaction as it was. On a connection without one it makes one of its own.
func within[T any](ctx context.Context, s *Store, op string, tx Tx, fn func(tx Tx, now string) (T, error)) (T, error) {
	var zero T
	_, inUpdate := tx.(*updateTx)
	if s.closed.Load() && !inUpdate { // a transaction under way ends as it would have
		return zero, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return zero, err
	}
	if err := checkTx(tx); err != nil {
		return zero, err
	}
	if conn, ok := tx.(*sql.Conn); ok {
		err := s.retryBusy(ctx, func() error {
			return s.beginOn(ctx, conn, immediate)
		})
		if err == nil {
			value, err := ownTransaction(ctx, s, conn, fn)
			return value, s.explain(ctx, op, err)
		}
		if !isInTransaction(err) {
			return zero, s.explain(ctx, op, err)
		}
	}
	value, err := savepoint(ctx, s, tx, inUpdate, fn)
	if errors.Is(err, errNotUndone) && inUpdate {
		tx.(*updateTx).giveUp(err)
	}
	if err != nil {
		return zero, s.explain(ctx, op, err)
	}
	return value, nil
}

// ownTransaction runs fn in the transaction that was begun on a connection of
// the host's, and ends it.
func ownTransaction[T any](ctx context.Context, s *Store, conn *sql.Conn, fn func(tx Tx, now string) (T, error)) (T, error) {
	var zero T
	ended := false
	defer func() {
		if !ended {
			rollback(conn)
		}
	}()
	value, err := inside(ctx, s, conn, fn)
	if err != nil {
		return zero, err
	}
	ended = true
	if err := s.sendCommit(ctx, conn); err != nil {
		return zero, err
	}
	return value, nil
}

// wholeTx is the host's transaction, in which a statement that was begun is not
// interrupted when its context ends: SQLite answers an interrupted write by
// undoing the whole transaction, and what the host sends after that would be
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

// checkTx refuses what cannot be a transaction. A *sql.DB has the methods of a
// Tx, but would spread the statements over its connections.
func checkTx(tx Tx) error {
	reason := ""
	switch tx := tx.(type) {
	case nil:
		reason = "is nil"
	case *sql.Tx:
		if tx == nil {
			reason = "is nil"
		}
	case *sql.Conn:
		if tx == nil {
			reason = "is nil"
		}
	case *sql.DB:
		reason = "is a *sql.DB, which is no transaction"
	}
	if reason != "" {
		return &InvalidError{Index: -1, Field: "tx", Reason: reason}
	}
	return nil
}

// writeSchema is write with foreign keys off, so that a table can be dropped
// and made anew without touching the rows that refer to it. They cannot be
// turned off inside a transaction.
func (s *Store) writeSchema(ctx context.Context, op string, fn func(tx Tx, now string) error) error {
	if err := s.takeTurn(ctx); err != nil {
		return err
	}
	defer s.turns.pass()
	_, err := await(ctx, s, func() (done, error) {
		return done{}, s.writeWithoutForeignKeys(ctx, fn)
	}, nil)
	return s.explain(ctx, op, err)
}

func (s *Store) writeWithoutForeignKeys(ctx context.Context, fn func(tx Tx, now string) error) error {
	conn, err := s.connectAndBegin(ctx, deferred) // shows that it is a healthy one
	if err != nil {
		return err
	}
	_, err = using(conn, func() (done, error) {
		if err := rollback(conn); err != nil {
			return done{}, err
		}
		return done{}, s.writeOnWithoutForeignKeys(ctx, conn, fn)
	})
	return err
}

func (s *Store) writeOnWithoutForeignKeys(ctx context.Context, conn *sql.Conn, fn func(tx Tx, now string) error) error {
	enforced, err := foreignKeys(ctx, conn)
	if err != nil {
		return err
	}
	if enforced {
		defer func() { // whatever happened, the pool gets back what it gave
			on := context.WithoutCancel(ctx)
			err := setForeignKeys(on, conn, "ON")
			if enforced, again := foreignKeys(on, conn); err != nil || again != nil || !enforced {
				discard(conn)
			}
		}()
		if err := setForeignKeys(ctx, conn, "OFF"); err != nil {
			return err
		}
	}
	err = s.retryBusy(ctx, func() error { return s.beginOn(ctx, conn, immediate) })
	if err != nil {
		return err
	}
	_, err = ownTransaction(ctx, s, conn, func(tx Tx, now string) (done, error) {
		if enforced, err := foreignKeys(ctx, tx); err != nil || enforced {
			return done{}, errors.Join(err, errors.New("foreign keys cannot be turned off"))
		}
		return done{}, fn(tx, now)
	})
	return err
}

// foreignKeys reports whether foreign keys are enforced.
func foreignKeys(ctx context.Context, tx Tx) (bool, error) {
	settings, err := queryInts(ctx, tx, "PRAGMA foreign_keys")
	return len(settings) > 0 && settings[0] != 0, err
}

func setForeignKeys(ctx context.Context, conn *sql.Conn, to string) error {
	return query(ctx, conn, "PRAGMA foreign_keys = "+to, nil, func(*sql.Rows) error { return nil })
}
