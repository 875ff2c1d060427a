package engine

import (
	"context"

	"example.com/outbox/sqlbatch"
)

// Read runs fn, which only reads, outside any transaction, on a connection of
// its own. fn may be run again.
func Read[T any](ctx context.Context, db *DB, op string, fn func(tx Tx) (T, error)) (T, error) {
	return read(ctx, db, op, false, fn)
}

// Look is Read for finding out whether there is work to do. Where a plain read
// may miss work, it reads in a transaction, which takes no write lock and writes
// nothing.
func Look[T any](ctx context.Context, db *DB, op string, fn func(tx Tx) (T, error)) (T, error) {
	return read(ctx, db, op, true, fn)
}

func read[T any](ctx context.Context, db *DB, op string, fresh bool, fn func(tx Tx) (T, error)) (T, error) {
	var zero, value T
	if err := db.admit(ctx); err != nil {
		return zero, err
	}
	can := db.Can(ctx)
	s := db.newSession(ctx, can)
	defer s.end()
	err := s.do(func() error {
		return db.retryBusy(ctx, func() error {
			return s.readAgain(fresh && can.Lags, func() (err error) {
				value, err = fn(s.conn)
				return err
			})
		})
	})
	if err != nil {
		return zero, db.explain(ctx, op, err)
	}
	return value, nil
}

// readAgain runs fn on a connection of the pool, or on others after it if the
// server has forgotten that one, as it does with all that are idle for 10
// seconds, or if its answer was lost.
func (s *session) readAgain(inTransaction bool, fn func() error) error {
	for times := 1; ; times++ {
		err := s.readOnce(inTransaction, fn)
		if err == nil || !isForgotten(err) && !sqlbatch.Lost(err) || s.tried(times, err) {
			return err
		}
	}
}

func (s *session) readOnce(inTransaction bool, fn func() error) (err error) {
	if inTransaction {
		err = s.begin(deferred)
	} else {
		s.conn, err = s.db.pool.Conn(s.ctx)
	}
	if err != nil {
		return err
	}
	if err = fn(); err == nil && inTransaction {
		err = s.db.sendCommit(context.WithoutCancel(s.ctx), s.conn) // lets a replica catch up
		s.open = err != nil
	}
	if isUnavailable(err) {
		discard(s.conn)
	}
	s.release()
	return err
}
