package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"example.com/outbox/sqlbatch"
)

// On a server that takes batches a call is one request: its BEGIN IMMEDIATE and
// its COMMIT travel with its statements. One request of a DB is under way at a
// time, since the server runs one transaction at a time anyhow; calls that arrive
// during it share the next, each in a savepoint.

// writeBatch runs a call in its turn, or has another goroutine run it with its
// own. A call whose context ends while its request is under way returns
// ErrCommitUnknown: nobody can call a request back.
func (db *DB) writeBatch(ctx context.Context, call *Call) error {
	j := &job{ctx: ctx, call: call, impatient: true}
	mine, err := db.line.take(j)
	if err != nil {
		return err
	}
	if mine {
		j.come = make(chan struct{})
		if ctx.Done() == nil {
			db.leadBatch(j)
		} else {
			go db.leadBatch(j) // which others may rely on when ctx has ended
		}
		if !j.wait() {
			return fmt.Errorf("%w: %w", ErrCommitUnknown, ctx.Err())
		}
	}
	if j.panicked != nil {
		panic(j.panicked)
	}
	return j.err
}

// leadBatch sends the call of a job whose turn it is, and those that gathered
// behind it, and sees to what their answers ask for.
func (db *DB) leadBatch(first *job) {
	group := []*job{first}
	defer func() {
		for _, j := range group {
			j.serve()
		}
	}()
	if !first.call.Whole {
		group = append(group, db.line.gather(mostWeight-first.call.Weight)...)
	}
	ctx, cancel := whileAny(group)
	defer cancel()
	committed := func() (committed []*unit) {
		defer db.line.pass()
		return db.sendGroup(ctx, group)
	}()
	for _, u := range committed {
		db.conclude(ctx, u)
	}
}

// whileAny returns a context that ends once those of all jobs have.
func whileAny(group []*job) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(group[0].ctx))
	go func() {
		for _, j := range group {
			select {
			case <-j.ctx.Done():
			case <-ctx.Done():
				return
			}
		}
		cancel()
	}()
	return ctx, cancel
}

// sendGroup runs the calls of jobs, together if it can, and returns those that
// are committed and have still to be concluded.
func (db *DB) sendGroup(ctx context.Context, group []*job) []*unit {
	alive := make([]*job, 0, len(group))
	for _, j := range group {
		j.err = j.ctx.Err()
		if j.err == nil {
			alive = append(alive, j)
		}
	}
	if len(alive) == 0 {
		return nil
	}
	units := unitsOf(alive)
	err := db.sendPatiently(ctx, units)
	var committed []*unit
	for _, u := range units {
		switch {
		case errors.Is(err, errApart) || err == nil && u.apart:
			for _, j := range u.jobs {
				j.err = nil
				alone := &unit{call: j.call, jobs: []*job{j}}
				if err := db.sendPatiently(ctx, []*unit{alone}); err != nil {
					alone.fail(err)
				} else {
					committed = append(committed, alone)
				}
			}
		case err != nil:
			u.fail(err)
		default:
			committed = append(committed, u)
		}
	}
	return committed
}

// sendPatiently sends units in one request, again while others keep the
// database locked.
func (db *DB) sendPatiently(ctx context.Context, units []*unit) error {
	if len(units) == 1 && (units[0].call.Whole || units[0].tooLarge()) {
		u := units[0]
		u.concluded = true
		return db.sendWhole(ctx, u)
	}
	return db.retryBusy(ctx, func() error { return db.sendOnce(ctx, units) })
}

// sendWhole runs a call that takes several requests in one transaction.
func (db *DB) sendWhole(ctx context.Context, u *unit) error {
	return u.protect(func() error {
		return db.transaction(ctx, batchAbilities, immediate, func(s *session) error {
			return s.first(ctx, func(*sql.Conn) error { return db.run(ctx, s.conn, u.call, batchAbilities) })
		})
	})
}

// sendOnce sends units in one request.
func (db *DB) sendOnce(ctx context.Context, units []*unit) (err error) {
	request := newRequest(units)
	if err := request.plan(db); err != nil {
		return err
	}
	conn, err := db.pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var results []sqlbatch.Result
	err = conn.Raw(func(c any) error {
		batch, ok := batchConn(c)
		if !ok {
			return errors.ErrUnsupported
		}
		var err error
		results, err = batch.Batch(ctx, request.steps)
		return err
	})
	switch {
	case err == nil:
		return request.read(results)
	case sqlbatch.NothingDone(err):
		return err
	case sqlbatch.Lost(err), isEnded(err):
		return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
	case len(units) > 1:
		return errApart
	}
	return err
}

// conclude runs what is left of a call whose plan was committed.
func (db *DB) conclude(ctx context.Context, u *unit) {
	if u.concluded || u.call.Then == nil {
		return
	}
	err := u.protect(func() error {
		conn, err := db.pool.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		return u.call.Then(ctx, conn, u.now)
	})
	if err != nil {
		u.fail(fmt.Errorf("%w: %w", ErrCommitUnknown, err))
	}
}
