package engine

import (
	"cmp"
	"context"
	"errors"
)

// Goroutines that write at once share commits: while one commits, the calls of
// others gather in the line, and the next runs them all in one transaction, each
// inside a savepoint, so that the error of one is nobody else's. A call that
// comes alone is not held up.

// Write runs a call in an IMMEDIATE transaction. If it returns an error, nothing
// is stored, unless that is ErrCommitUnknown.
func (db *DB) Write(ctx context.Context, call *Call) error {
	if err := db.admit(ctx); err != nil {
		return err
	}
	can := db.Can(ctx)
	if can.Batch {
		return db.explain(ctx, call.Op, db.writeBatch(ctx, call))
	}
	j := &job{ctx: ctx}
	if can.Share {
		j.call = call
	}
	mine, err := db.line.take(j)
	if err != nil {
		return db.explain(ctx, call.Op, err)
	}
	if mine {
		j.call = call
		db.lead(j, can)
	}
	if j.panicked != nil {
		panic(j.panicked)
	}
	return db.explain(ctx, call.Op, j.err)
}

// lead runs a job whose turn it is, and those that it takes along.
func (db *DB) lead(j *job, can Abilities) {
	defer db.line.pass()
	group := []*job{j}
	defer func() {
		for _, other := range group[1:] {
			other.serve()
		}
	}()
	var outcomes []error
	err := db.transaction(j.ctx, can, immediate, func(s *session) (err error) {
		if can.Share {
			group = append(group, db.line.gather(mostWeight-j.call.Weight)...)
		}
		if len(group) == 1 {
			return s.do(func() error { return db.run(j.ctx, s.conn, j.call, can) })
		}
		s.ctx = context.Background() // the others rely on it now
		return s.do(func() error {
			outcomes, err = db.runAll(s, group, can)
			return err
		})
	})
	if len(group) == 1 {
		j.err = err
		return
	}
	for i, j := range group {
		switch {
		case j.panicked != nil:
		case err == nil:
			j.err = outcomes[i]
		case errors.Is(err, ErrCommitUnknown), errors.Is(err, ErrBusy):
			j.err = err
			if i < len(outcomes) {
				j.err = cmp.Or(outcomes[i], err)
			}
		default: // it was undone, whoever's fault that was: each on its own
			j.err = j.protect(func() error { return db.runAlone(j, can) })
		}
	}
}

func (db *DB) runAlone(j *job, can Abilities) error {
	return db.transaction(j.ctx, can, immediate, func(s *session) error {
		return s.do(func() error { return db.run(j.ctx, s.conn, j.call, can) })
	})
}

// runAll runs jobs in the transaction of s, and returns the outcome of each,
// which stands if there is no error beside it and the transaction is committed.
func (db *DB) runAll(s *session, group []*job, can Abilities) ([]error, error) {
	outcomes := make([]error, len(group))
	for i := 0; i < len(group); {
		joined, err := db.runJoined(s, group[i:], can)
		if err != nil {
			return nil, err
		}
		if i += joined; joined > 0 {
			continue
		}
		j := group[i]
		outcomes[i] = j.protect(func() error {
			return inSavepoint(j.ctx, s.conn, func() error { return db.run(j.ctx, s.conn, j.call, can) })
		})
		if j.panicked != nil || errors.Is(outcomes[i], errNotUndone) || isBroken(outcomes[i]) {
			s.panicked = s.panicked || j.panicked != nil
			return nil, ErrRolledBack
		}
		i++
	}
	for _, j := range group {
		j.err = ErrCommitUnknown // until it is known
	}
	return outcomes, nil
}

// runJoined runs the first jobs as one call, if several can be joined, and
// returns how many: 0 if they cannot, or if that failed and has been undone.
// Then each is to be run for itself.
func (db *DB) runJoined(s *session, group []*job, can Abilities) (int, error) {
	calls := joinable(group)
	if len(calls) < 2 {
		return 0, nil
	}
	first := group[0]
	err := first.protect(func() error {
		ctx := context.Background() // what others wait for does not end with one of them
		call := calls[0].Join(calls)
		return inSavepoint(ctx, s.conn, func() error { return db.run(ctx, s.conn, call, can) })
	})
	switch {
	case errors.Is(err, errPanicked), errors.Is(err, errNotUndone):
		s.panicked = s.panicked || first.panicked != nil
		first.panicked = nil // on its own, the one at fault will again
		return 0, ErrRolledBack
	case err != nil:
		return 0, nil
	}
	return len(calls), nil
}
