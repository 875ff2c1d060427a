package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// deaf reports whether a call of the driver may go on for long after its
// context has ended: waiting for a server, or for a lock if the host has set
// its driver to wait. On a database that Open set up, calls are short.
func (s *Store) deaf() bool { return s.opened == hostDatabase || s.opened == serverDatabase }

// await runs call. If calls may be deaf to ctx, and it ends, call is left to
// itself and await returns ctx's error; orphaned then gets what call returns.
func await[T any](ctx context.Context, s *Store, call func() (T, error), orphaned func(T, error)) (T, error) {
	if !s.deaf() || ctx.Done() == nil {
		return call()
	}
	type outcome struct {
		value    T
		err      error
		panicked any
	}
	answer := make(chan outcome, 1)
	go func() {
		got := outcome{err: errEndedGoroutine}
		defer func() {
			got.panicked = recover()
			answer <- got
		}()
		got.value, got.err = call()
	}()
	// A panic goes on in the goroutine of the caller.
	passOn := func(got outcome) (T, error) {
		if got.panicked != nil {
			panic(got.panicked)
		}
		return got.value, got.err
	}
	select {
	case got := <-answer:
		return passOn(got)
	case <-ctx.Done():
	}
	select {
	case got := <-answer: // both at once
		return passOn(got)
	default:
	}
	s.widenPool(1)
	go func() {
		got := <-answer
		if orphaned != nil {
			orphaned(got.value, got.err)
		}
		s.widenPool(-1)
	}()
	var zero T
	return zero, fmt.Errorf("%w: %w", ctx.Err(), errAbandoned)
}

// widenPool lets the pool have a connection more for a call that was left to
// itself, since that may never return: a network can swallow an answer, and
// the driver waits for it without end.
func (s *Store) widenPool(by int) {
	if s.opened != serverDatabase {
		return
	}
	s.abandoned.Lock()
	defer s.abandoned.Unlock()
	s.abandoned.calls += by
	s.db.SetMaxOpenConns(maxConnections + s.abandoned.calls)
}

// errEndedGoroutine is for a call that ended the goroutine it ran on.
var errEndedGoroutine = errors.New("outbox: the call ended its goroutine")

var errAbandoned = errors.New("outbox: the driver did not return in time")

// outlive returns a context that ends grace after ctx does.
func outlive(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		return ctx, func() {}
	}
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(grace, cancel)
		context.AfterFunc(longer, func() { timer.Stop() })
	})
	return longer, func() {
		stop()
		cancel()
	}
}
