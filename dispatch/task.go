package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
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

	decided   atomic.Pointer[decision] // what the handler's result asks for, once it has returned
	abandoned atomic.Bool              // what the handler returns is of no more use
	ended     atomic.Bool              // the observer is told
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

// start runs a handler for each row.
func (r *run) start(rows []outbox.Row) {
	r.supersede(rows)
	for _, row := range rows {
		t := &task{row: row}
		t.ctx, t.cancel = context.WithCancelCause(r.base)
		t.observed = r.observer.Started(t.ctx, row)
		t.start = time.Now()
		r.mu.Lock()
		r.tasks[t] = struct{}{}
		r.mu.Unlock()
		go r.work(t)
	}
}

// work runs the handler and settles the row by what it returned. A panic is an
// error, and so is a handler that ends its goroutine.
func (r *run) work(t *task) {
	defer t.cancel(nil)
	ctx, stop := t.observed, func() {}
	if r.opts.HandlerTimeout > 0 {
		ctx, stop = context.WithTimeoutCause(ctx, r.opts.HandlerTimeout, ErrHandlerTimeout)
	}
	var (
		err      error
		returned bool
	)
	defer func() {
		took := time.Since(t.start)
		if !returned {
			err = &PanicError{Value: recover(), Stack: debug.Stack()}
		}
		stop()
		outcome, store := r.decide(t, err)
		d := &decision{outcome, store, took, err}
		t.decided.Store(d)
		if outcome, known := r.settle(t, d); known {
			r.end(t, outcome, took, err)
		}
	}()
	err = r.handler(ctx, t.row)
	returned = true
}

// end tells the observer what became of a task and then makes room for another
// row, so that Run does not return before. Only the first call for a task does.
func (r *run) end(t *task, outcome Outcome, took time.Duration, err error) {
	if t.ended.Swap(true) {
		return
	}
	r.observer.Settled(t.observed, t.row, outcome, took, err)
	r.mu.Lock()
	delete(r.tasks, t)
	r.mu.Unlock()
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

// settle stores what was decided, however often the store fails, until the
// shutdown is over. It knows no outcome if abandon has taken that over.
func (r *run) settle(t *task, d *decision) (outcome Outcome, known bool) {
	if d.store == nil {
		return d.outcome, true
	}
	trouble := pauses{first: 20 * time.Millisecond, longest: 5 * time.Second}
	for !t.abandoned.Load() {
		problem := d.store(r.base)
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
func (r *run) decide(t *task, err error) (Outcome, func(context.Context) error) {
	var (
		row       = t.row
		ref       = row.Ref()
		cause     = context.Cause(t.ctx)
		permanent *PermanentError
		retry     *RetryError
	)
	switch {
	case t.lost():
		return Lost, nil
	case err == nil:
		return Completed, func(ctx context.Context) error { return r.store.Complete(ctx, ref) }
	case errors.Is(err, Accepted):
		return OutcomeAccepted, nil
	case errors.Is(cause, ErrShutdown):
		return Returned, func(ctx context.Context) error { return r.giveBack(ctx, row) }
	case errors.As(err, &permanent), int64(row.Attempt)+1 >= int64(r.opts.MaxAttempts):
		return Failed, func(ctx context.Context) error { return r.store.Fail(ctx, ref, err) }
	}
	var pause time.Duration
	if errors.As(err, &retry) {
		pause = retry.After
	} else {
		pause = r.opts.Backoff(row.Attempt)
	}
	var visibleAfter time.Time // now
	if pause > 0 {
		visibleAfter = r.opts.Now().Add(pause)
	}
	return Retried, func(ctx context.Context) error {
		return r.store.Retry(ctx, ref, row.Attempt+1, visibleAfter, err)
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

// abandon gives a row back whose handler does not return, or stores a last time
// what it returned. It reports whether anything is left behind.
func (r *run) abandon(ctx context.Context, t *task) (left bool) {
	t.abandoned.Store(true)
	d := t.decided.Load()
	if left = d == nil; left {
		d = &decision{Returned, func(ctx context.Context) error { return r.giveBack(ctx, t.row) }, time.Since(t.start), ErrShutdown}
	}
	outcome := d.outcome
	if d.store != nil {
		switch err := d.store(ctx); {
		case errors.Is(err, outbox.ErrClaimLost):
			outcome = Lost
		case err != nil:
			r.storeError("settle", err)
			outcome, left = Unknown, true
		}
	}
	r.end(t, outcome, d.took, d.err)
	return left
}

func jitter(most time.Duration) time.Duration { return rand.N(most + 1) }
