package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// read runs fn, which only reads, outside any transaction. fn may be run again.
func read[T any](ctx context.Context, s *Store, op string, fn func(tx Tx) (T, error)) (T, error) {
	return patiently(ctx, s, op, func() (T, error) { return readOnce(ctx, s, fn) })
}

// readOnce runs fn on a connection of the pool, or on others after it if the
// server has forgotten that one: it forgets all that are idle for 10 seconds.
func readOnce[T any](ctx context.Context, s *Store, fn func(tx Tx) (T, error)) (T, error) {
	var zero T
	for tried := 1; ; tried++ {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return zero, err
		}
		value, err := readOn(conn, fn)
		if err == nil {
			return value, nil
		}
		if !isForgotten(err) || tried == staleAttempts || ctx.Err() != nil {
			return zero, err
		}
	}
}

// readOn gives conn back, or throws it away if it is of no more use.
func readOn[T any](conn *sql.Conn, fn func(tx Tx) (T, error)) (T, error) {
	return using(conn, func() (T, error) {
		value, err := fn(conn)
		if isUnavailable(err) {
			discard(conn)
		}
		return value, err
	})
}

// look is read for finding out whether there is work to do. Over the host's own
// database it reads in a transaction: on an embedded replica a plain read would
// see the local file alone and might miss the work for ever, while a
// transaction asks the primary. It takes no write lock and writes nothing.
func look[T any](ctx context.Context, s *Store, op string, fn func(tx Tx) (T, error)) (T, error) {
	if s.opened != hostDatabase {
		return read(ctx, s, op, fn)
	}
	return patiently(ctx, s, op, func() (T, error) {
		var zero T
		conn, err := s.connectAndBegin(ctx, deferred)
		if err != nil {
			return zero, err
		}
		return using(conn, func() (T, error) {
			ended := false
			defer func() {
				if !ended {
					rollback(conn)
				}
			}()
			value, err := fn(conn)
			if err != nil {
				return zero, err
			}
			err = s.execCommit(ctx, conn) // lets a replica catch up
			ended = err == nil
			return value, err
		})
	})
}

// patiently runs attempt, which only reads, until no lock is in its way.
func patiently[T any](ctx context.Context, s *Store, op string, attempt func() (T, error)) (T, error) {
	var zero T
	if err := s.admit(ctx); err != nil {
		return zero, err
	}
	value, err := await(ctx, s, func() (value T, err error) {
		err = s.retryBusy(ctx, func() error {
			value, err = attempt()
			return err
		})
		return value, err
	}, nil)
	if err != nil {
		return zero, s.explain(ctx, op, err)
	}
	return value, nil
}

// retryBusy repeats attempt while others keep the database locked, until
// BusyTimeout is over or ctx ends.
func (s *Store) retryBusy(ctx context.Context, attempt func() error) error {
	return retryBusy(ctx, s.busyTimeout, attempt)
}

func retryBusy(ctx context.Context, timeout time.Duration, attempt func() error) error {
	const shortest, longest = 100 * time.Microsecond, 10 * time.Millisecond
	start := time.Now() // the driver's own wait counts
	for pause := shortest; ; pause = min(2*pause, longest) {
		err := attempt()
		if err == nil || !isBusy(err) || errors.Is(err, ErrBusy) {
			return err
		}
		left := timeout - time.Since(start)
		if left <= 0 {
			return fmt.Errorf("%w: %w", ErrBusy, err)
		}
		// Waiters that started together must not come back together.
		timer := time.NewTimer(min(left, pause/2+rand.N(pause/2)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}
