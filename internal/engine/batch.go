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
		go db.leadBatch(j)
		if !j.wait() {
			return fmt.Errorf("%w: %w", ErrCommitUnknown, ctx.Err())
		}
	}
	if j.panicked != nil {
		panic(j.panicked)
	}
	if reason := ctx.Err(); reason != nil && isEnded(j.err) && !errors.Is(j.err, reason) {
		return fmt.Errorf("%w: %w", reason, j.err) // the request's own context was cancelled for it
	}
	return j.err
}

// leadBatch sends the call of a job whose turn it is, and those that gathered
// behind it, and sees to what their answers ask for. It runs on a goroutine of its
// own, on which others may rely when the first has left.
func (db *DB) leadBatch(first *job) {
	group := []*job{first}
	passed, served := false, false
	pass := func() {
		if !passed {
			passed = true
			db.line.pass()
		}
	}
	serve := func() {
		if !served {
			served = true
			for _, j := range group {
				j.serve()
			}
		}
	}
	defer pass()
	defer serve() // also if a call ends the goroutine
	if !first.call.Whole {
		group = append(group, db.line.gather(mostWeight-first.call.Weight)...)
	}
	ctx, cancel := whileAny(group)
	defer cancel()
	committed := db.sendGroup(ctx, group)
	if db.queued.conn == nil {
		pass()
	}
	for _, u := range committed {
		db.conclude(ctx, u)
	}
	serve()
	if !passed {
		db.queued.rest()
	}
}

// whileAny returns a context that ends once those of all jobs have.
func whileAny(group []*job) (context.Context, context.CancelFunc) {
	if len(group) == 1 {
		return group[0].ctx, func() {}
	}
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
		if j.err = j.ctx.Err(); j.err == nil {
			j.err = errEndedGoroutine // if nothing else becomes of it
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
				alone := &unit{call: j.call, jobs: []*job{j}}
				if err := db.sendPatiently(ctx, []*unit{alone}); err != nil {
					alone.settle(err)
				} else {
					committed = append(committed, alone)
				}
			}
		case err != nil:
			u.settle(err)
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
		err := db.sendWhole(ctx, u)
		if err == nil {
			u.settle(nil)
		}
		return err
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
	for _, u := range units {
		u.settle(nil) // unless it turns out otherwise: what could end the goroutine has not
	}
	conn, err := db.pool.Conn(ctx)
	if err != nil {
		return err
	}
	kept := false
	defer func() {
		if !kept {
			conn.Close()
		}
	}()
	var results []sqlbatch.Result
	err = conn.Raw(func(c any) (err error) {
		batch, ok := batchConn(c)
		if !ok {
			return errors.ErrUnsupported
		}
		defer db.witness().recovered(&err) // others rely on this goroutine
		results, err = batch.Batch(ctx, request.steps)
		return err
	})
	if isBroken(err) {
		discard(conn)
	}
	switch {
	case err == nil && len(results) != len(request.steps):
		return fmt.Errorf("%w: %d results for %d steps", ErrCommitUnknown, len(results), len(request.steps))
	case err == nil:
		kept = db.queued.keep(conn, request.waited(results))
		return request.read(results)
	case sqlbatch.NothingDone(err):
		if request.shared() && !isBusy(err) && !isUnavailable(err) && !isEnded(err) {
			return errApart // what one of them asks for may be at fault
		}
		return err
	case sqlbatch.Lost(err), isEnded(err), isBroken(err):
		return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
	case request.shared():
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
		u.settle(fmt.Errorf("%w: %w", ErrCommitUnknown, err))
	}
}
