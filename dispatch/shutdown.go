package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"example.com/outbox"
)

// shutdownGrace is how long handlers have to return once their contexts ended.
const shutdownGrace = time.Second

// shutdown waits for running handlers and for their outcomes to be stored.
func (r *run) shutdown() error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for len(r.running()) > 0 {
			<-r.freed
		}
	}()
	if waitFor(ended, r.opts.ShutdownTimeout) {
		return nil
	}
	for _, task := range r.running() {
		task.cancel(ErrShutdown)
	}
	if waitFor(ended, shutdownGrace) {
		return nil
	}
	ctx, stop := context.WithTimeout(r.base, shutdownGrace)
	defer stop()
	var left atomic.Int64
	var all sync.WaitGroup
	for _, task := range r.running() {
		all.Go(func() { // at once, to share commits
			if r.abandon(ctx, task) {
				left.Add(1)
			}
		})
	}
	all.Wait()
	<-ended
	if left.Load() == 0 {
		return nil
	}
	return fmt.Errorf("dispatch: %d handlers or their outcomes were left behind by the shutdown", left.Load())
}

func waitFor(event <-chan struct{}, longest time.Duration) bool {
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-event:
		return true
	case <-timer.C:
		return false
	}
}

// abandon gives a row back whose handler does not return, or tries a last time to
// store what it returned. It reports whether anything is left behind.
func (r *run) abandon(ctx context.Context, t *task) (left bool) {
	t.abandoned.Store(true)
	d := t.decided.Load()
	if left = d == nil; left {
		d = &decision{Returned, func(ctx context.Context) error { return r.giveBack(ctx, t.row) }, time.Since(t.start), ErrShutdown}
	}
	outcome := d.outcome
	if d.store != nil {
		switch err := caught("Store", func() error { return d.store(ctx) }); {
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
