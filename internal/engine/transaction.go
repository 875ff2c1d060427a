package engine

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"example.com/outbox/sqlbatch"
)

// transaction runs work in a transaction on a connection of the pool, and
// commits it if work returns nil and the context of the session has not ended.
// Otherwise, and also if work panics or ends its goroutine, nothing is stored.
// work makes its calls of the driver by do.
func (db *DB) transaction(ctx context.Context, can Abilities, statement string, work func(s *session) error) error {
	s := db.newSession(ctx, can)
	defer s.end()
	if err := s.do(func() error { return s.begin(statement) }); err != nil {
		return err
	}
	if err := work(s); err != nil {
		return err
	}
	if err := s.ctx.Err(); err != nil {
		return err
	}
	return s.commit()
}

// begin gets a connection and begins a transaction on it. It mends a connection
// that was given back to the pool inside a transaction, and replaces one that a
// server has forgotten.
func (s *session) begin(statement string) error {
	for times := 1; ; times++ {
		conn := s.db.contention.take()
		if conn == nil {
			var err error
			if conn, err = s.db.pool.Conn(s.ctx); err != nil {
				return err
			}
		}
		s.conn, s.open = conn, true
		if s.can.Batch {
			s.unbegun = deferBegin(conn, statement)
			return nil
		}
		err := s.db.retryBusy(s.ctx, func() error { return s.db.beginOn(s.ctx, conn, statement) })
		if err == nil {
			return nil
		}
		s.open = !isBusy(err)
		s.release() // the ROLLBACK throws a connection away that is past mending
		if isBusy(err) || s.tried(times, err) {
			return err
		}
	}
}

// first makes a call of the driver which may be the first in the transaction,
// and then may have to wait for the lock.
func (s *session) first(ctx context.Context, call func(conn *sql.Conn) error) error {
	return s.doWithin(ctx, func() error {
		if !s.unbegun {
			return call(s.conn)
		}
		var failed error
		err := s.db.retryBusy(ctx, func() error {
			failed = call(s.conn)
			if s.unbegun = sqlbatch.NothingDone(failed) && !begun(s.conn); s.unbegun {
				return failed
			}
			return nil // what was begun is not to be done twice
		})
		return cmp.Or(err, failed)
	})
}

// begun reports whether a transaction is open on a connection that takes batches,
// whose BEGIN may have succeeded although the statement behind it was refused.
func begun(conn *sql.Conn) bool {
	open, known := inTransaction(conn)
	return known && open
}

func (db *DB) beginOn(ctx context.Context, conn *sql.Conn, statement string) error {
	start := time.Now()
	if _, err := conn.ExecContext(ctx, statement); err != nil {
		return err
	}
	db.contention.noteBegin(time.Since(start))
	if !db.shared {
		return nil
	}
	// In a shared cache a reader of another pool can lock a table within this
	// transaction still. Writes that change nothing lock them first.
	for _, table := range db.config.Tables {
		if _, err := conn.ExecContext(ctx, "DELETE FROM main."+table+" WHERE FALSE"); isBusy(err) {
			_ = rollback(conn)
			return err
		}
	}
	return nil
}

// commit ends the transaction.
func (s *session) commit() error {
	ctx := s.ctx
	patient, stop := outlive(ctx, commitGrace)
	defer stop()
	s.ctx = patient
	err := s.do(func() error {
		err := s.db.commitOn(ctx, s.patience(ctx, patient), s.conn)
		s.open = false
		if err == nil && s.db.contention.keep(s.conn, &s.db.closed) {
			s.conn = nil
		}
		s.release()
		return err
	})
	if errors.Is(err, errLeft) {
		return fmt.Errorf("%w: %w", ErrCommitUnknown, ctx.Err())
	}
	return err
}

// patience is the context of a COMMIT. Where the driver is told it the request is
// aborted when that ends; elsewhere a COMMIT that was begun is not interrupted.
func (s *session) patience(ctx, patient context.Context) context.Context {
	if s.can.Batch {
		return patient
	}
	return context.WithoutCancel(ctx)
}

// commitOn commits or undoes the transaction on conn. A reader in
// rollback-journal mode may hold the COMMIT up; then it is sent again until ctx
// ends.
func (db *DB) commitOn(ctx, patient context.Context, conn *sql.Conn) error {
	err := db.retryBusy(ctx, func() error { return db.sendCommit(patient, conn) })
	if err == nil {
		return nil
	}
	switch {
	case sqlbatch.Lost(err):
		discard(conn)
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w: %w", ErrCommitUnknown, ctx.Err(), err) // err is of the context that outlived it
		}
		return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
	case isNoTransaction(err):
		return ErrRolledBack
	case isTimedOut(err), isExpired(err):
		discard(conn)
		return fmt.Errorf("%w: %w", ErrRolledBack, err)
	case isUnsent(err):
		discard(conn)
		return err
	}
	if still, known := inTransaction(conn); still {
		_ = rollback(conn)
		return err
	} else if known && isFull(err) {
		return err // SQLite has undone it
	}
	discard(conn)
	return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
}

func (db *DB) sendCommit(ctx context.Context, conn *sql.Conn) error {
	if db.contention.present() {
		return Query(ctx, conn, "COMMIT", nil, func(Row) error { return nil })
	}
	start := time.Now()
	_, err := conn.ExecContext(ctx, "COMMIT")
	if err == nil {
		db.contention.noteCommit(time.Since(start))
	}
	return err
}
