package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"example.com/outbox"
)

// task is a claimed row while it is handled and settled.
type task struct {
	row      outbox.Row
	ctx      context.Context // ends when the claim is lost or the shutdown is over
	cancel   context.CancelCauseFunc
	observed context.Context // what Observer.Started made of ctx: the handler's
	start    time.Time

	extended  atomic.Pointer[time.Time] // when it was last extended, at the earliest
	decided   atomic.Pointer[decision]  // what the handler's result asks for, once it has returned
	abandoned atomic.Bool               // what the handler returns is of no more use
	ended     atomic.Bool               // the observer is told
}

// decision is what is to become of a row.
type decision struct {
	outcome Outcome
	store   func(context.Context) error // nil: nothing is to be stored
	took    time.Duration               // by the handler
	err     error                       // of the handler
}

// lost reports whether the claim is known to be lost.
func (t *task) lost() bool { return errors.Is(context.Cause(t.ctx), outbox.ErrClaimLost) }

// claimedAt is the row's instant in the store, or one before it.
func (t *task) claimedAt() time.Time {
	if at := t.extended.Load(); at != nil {
		return *at
	}
	return t.row.ClaimedAt
}

// hold makes tasks of rows: from now on their claims are extended.
func (r *run) hold(rows []outbox.Row) []*task {
	tasks := make([]*task, len(rows))
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, row := range rows {
		t := &task{row: row}
		t.ctx, t.cancel = context.WithCancelCause(r.base)
		r.tasks[t] = struct{}{}
		tasks[i] = t
	}
	return tasks
}

// start runs a handler for each task.
func (r *run) start(tasks []*task) {
	r.supersede(tasks)
	for _, t := range tasks {
		t.observed = r.observer.Started(t.ctx, t.row)
		t.start = time.Now()
		go r.work(t)
	}
}

// work runs the handler and settles the row by what it returned. A panic is an
// error, and so is a handler that ends its goroutine: what is deferred runs all the
// same.
func (r *run) work(t *task) {
	defer t.cancel(nil)
	ctx, stop := t.observed, func() {}
	if r.opts.HandlerTimeout > 0 {
		ctx, stop = context.WithTimeoutCause(ctx, r.opts.HandlerTimeout, ErrHandlerTimeout)
	}
	var (
		err     error
		took    time.Duration
		verdict = verdict{err: &brokenError{text: "dispatch: an error whose method ended the goroutine", kind: "unknown"}}
	)
	defer func() { r.settle(t, verdict, took) }()
	defer func() {
		took = time.Since(t.start)
		stop()
		verdict = judge(err)
	}()
	catch("", &err, func() error { return r.handler(ctx, t.row) })
}

// settle stores what a handler's result asks for.
func (r *run) settle(t *task, v verdict, took time.Duration) {
	outcome, store := r.decide(t, v)
	d := &decision{outcome, store, took, v.err}
	t.decided.Store(d)
	if outcome, known := r.storeDecision(t, d); known {
		r.end(t, outcome, took, v.err)
	}
}

// end tells the observer what became of a task and then makes room for another
// row, so that Run does not return before. Only the first call for a task does.
func (r *run) end(t *task, outcome Outcome, took time.Duration, err error) {
	if t.ended.Swap(true) {
		return
	}
	defer func() {
		r.mu.Lock()
		delete(r.tasks, t)
		r.mu.Unlock()
		r.handlers.release(1)
		select {
		case r.freed <- struct{}{}:
		default:
		}
	}()
	r.observer.Settled(t.observed, t.row, outcome, took, err)
}

// storeDecision stores what was decided, however often the store fails, until the
// shutdown is over. It knows no outcome if abandon has taken that over.
func (r *run) storeDecision(t *task, d *decision) (outcome Outcome, known bool) {
	if d.store == nil {
		return d.outcome, true
	}
	trouble := pauses{first: 20 * time.Millisecond, longest: 5 * time.Second}
	for !t.abandoned.Load() {
		problem := caught("Store", func() error { return d.store(r.base) })
		switch {
		case problem == nil:
			r.logSettled(t.row, d.outcome, d.err)
			return d.outcome, true
		case errors.Is(problem, outbox.ErrClaimLost):
			r.opts.Logger.Warn("dispatch: claim lost", "dispatch_key", t.row.DispatchKey, "fence", t.row.Fence)
			return Lost, true
		}
		r.storeError("settle", problem)
		if errors.Is(problem, outbox.ErrClosed) || errors.Is(problem, outbox.ErrInvalid) || r.base.Err() != nil {
			return Unknown, true
		}
		trouble.wait(r.base)
	}
	return Unknown, false
}

func (r *run) logSettled(row outbox.Row, outcome Outcome, err error) {
	level := slog.LevelDebug
	if outcome == Failed {
		level = slog.LevelWarn
	}
	r.opts.Logger.Log(r.base, level, "dispatch: settled", "outcome", outcome, "dispatch_key", row.DispatchKey,
		"attempt", row.Attempt, "error", err)
}

// decide returns what is to become of a row, and the call that stores it.
func (r *run) decide(t *task, v verdict) (Outcome, func(context.Context) error) {
	row, ref := t.row, t.row.Ref()
	switch {
	case t.lost():
		return Lost, nil
	case v.err == nil:
		return Completed, func(ctx context.Context) error { return r.store.Complete(ctx, ref) }
	case v.accepted:
		return OutcomeAccepted, nil
	case errors.Is(context.Cause(t.ctx), ErrShutdown):
		return Returned, func(ctx context.Context) error { return r.giveBack(ctx, row) }
	case v.permanent, int64(row.Attempt)+1 >= int64(r.opts.MaxAttempts):
		return Failed, func(ctx context.Context) error { return r.store.Fail(ctx, ref, v.err) }
	}
	var pause time.Duration
	if v.retry != nil {
		pause = v.retry.After
	} else {
		pause = r.opts.Backoff(row.Attempt)
	}
	var visibleAfter time.Time // now
	if pause > 0 {
		visibleAfter = r.opts.Now().Add(pause)
	}
	return Retried, func(ctx context.Context) error {
		return r.store.Retry(ctx, ref, row.Attempt+1, visibleAfter, v.err)
	}
}

// giveBack makes a row pending as it was before it was claimed.
func (r *run) giveBack(ctx context.Context, row outbox.Row) error {
	var cause error
	if row.LastError != "" {
		cause = errors.New(row.LastError)
	}
	return r.store.Retry(ctx, row.Ref(), row.Attempt, row.VisibleAfter, cause)
}
