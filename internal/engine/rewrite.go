package engine

import (
	"context"
	"database/sql"
	"errors"
)

// Rewrite runs fn in an IMMEDIATE transaction of its own with foreign keys off,
// so that a table can be dropped and made again without touching the rows that
// refer to it. They cannot be turned off inside a transaction.
func (db *DB) Rewrite(ctx context.Context, op string, fn func(tx Tx, now string) error) error {
	if err := db.admit(ctx); err != nil {
		return err
	}
	can := db.Can(ctx)
	if _, err := db.line.take(&job{ctx: ctx}); err != nil {
		return db.explain(ctx, op, err)
	}
	defer db.line.pass()
	s := db.newSession(ctx, can)
	defer s.end()
	err := s.do(func() error { return s.rewrite(fn) })
	return db.explain(ctx, op, err)
}

func (s *session) rewrite(fn func(tx Tx, now string) error) error {
	if err := s.begin(deferred); err != nil { // shows that the connection is a healthy one
		return err
	}
	s.open = false
	if err := rollback(s.conn); err != nil {
		return err
	}
	return s.db.withoutForeignKeys(s.ctx, s.conn, func() error {
		err := s.db.retryBusy(s.ctx, func() error { return s.db.beginOn(s.ctx, s.conn, immediate) })
		if err != nil {
			return err
		}
		return s.db.finishOn(s.ctx, s.conn, func() error {
			if enforced, err := foreignKeys(s.ctx, s.conn); err != nil || enforced {
				return errors.Join(err, errors.New("foreign keys cannot be turned off"))
			}
			now, err := s.db.config.Now()
			if err != nil {
				return err
			}
			if err := fn(s.conn, now); err != nil {
				return err
			}
			return s.ctx.Err()
		})
	})
}

// withoutForeignKeys runs work on a connection with foreign keys off. Whatever
// happens, the pool gets back what it gave.
func (db *DB) withoutForeignKeys(ctx context.Context, conn *sql.Conn, work func() error) error {
	enforced, err := foreignKeys(ctx, conn)
	if err != nil {
		return err
	}
	if enforced {
		defer func() {
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
	return work()
}

// foreignKeys reports whether foreign keys are enforced.
func foreignKeys(ctx context.Context, tx Tx) (bool, error) {
	settings, err := Ints(ctx, tx, "PRAGMA foreign_keys")
	return len(settings) > 0 && settings[0] != 0, err
}

func setForeignKeys(ctx context.Context, conn *sql.Conn, to string) error {
	return Query(ctx, conn, "PRAGMA foreign_keys = "+to, nil, func(Row) error { return nil })
}
