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

// Dispatcher claims the rows of a store and has a handler run for each. Several
// may share a store or a database: a row is held by one at a time.
type Dispatcher struct {
	store    *outbox.Store
	handler  Handler
	opts     Options
	observer Observer

	running atomic.Bool
	wake    chan struct{}
}

// New returns a Dispatcher that does nothing until Run.
func New(store *outbox.Store, handler Handler, opts *Options) *Dispatcher {
	if opts == nil {
		opts = &Options{}
	}
	return &Dispatcher{
		store:    store,
		handler:  handler,
		opts:     opts.withDefaults(store),
		observer: opts.Observer.withDefaults(),
		wake:     make(chan struct{}, 1),
	}
}

// Wake makes the loop look for rows now, for what it cannot see by itself: a
// workflow that is held no longer, a limit that was raised. It does not wait.
func (d *Dispatcher) Wake() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Run dispatches until ctx ends, and returns nil then. Errors of the store are
// logged, observed, and waited out; only a store that was closed ends Run, with
// outbox.ErrClosed.
//
// When ctx has ended nothing more is claimed. Running handlers have
// ShutdownTimeout to finish, and their outcomes are stored. Then their contexts
// end, with ErrShutdown as the cause; what is not finished within another second
// goes back to pending without spending an attempt. If handlers have not
// returned even then, Run leaves them to themselves, ignores what they return,
// and says so in its error.
//
// A Dispatcher can run again after Run has returned, but not twice at once.
func (d *Dispatcher) Run(ctx context.Context) error {
	if d.handler == nil {
		return errors.New("dispatch: the handler is nil")
	}
	if !d.running.CompareAndSwap(false, true) {
		return errors.New("dispatch: the dispatcher is running already")
	}
	defer d.running.Store(false)

	staged, unsubscribe := d.store.Subscribe()
	defer unsubscribe()
	r := &run{
		Dispatcher: d,
		staged:     staged,
		freed:      make(chan struct{}, 1),
		tasks:      make(map[*task]struct{}),
	}
	defer r.watch.close()
	// What was begun is finished although ctx has ended: claims are extended
	// and outcomes stored until over.
	var over context.CancelFunc
	r.base, over = context.WithCancel(context.WithoutCancel(ctx))
	defer over()

	var loops sync.WaitGroup
	defer loops.Wait()
	defer over()
	loops.Go(func() { r.extendClaims(r.base) })

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r.reconcile(ctx) // before the first claim: rows of ended workflows must not go out
	loops.Go(func() { r.reconcileRegularly(ctx) })
	err := r.dispatch(ctx)
	stop()
	return errors.Join(err, r.shutdown())
}

// run is the state of one Run.
type run struct {
	*Dispatcher
	base   context.Context // of handlers and of what stores their outcomes
	staged <-chan struct{} // the store has committed rows
	freed  chan struct{}   // a handler has ended
	watch  watch           // of the goroutine that claims
	routes rotation        // likewise

	mu    sync.Mutex
	tasks map[*task]struct{} // rows that are claimed and not settled yet

	asked bool // about the workflows that were live at the start
}

// dispatch claims and starts rows until ctx ends or the store is closed.
func (r *run) dispatch(ctx context.Context) error {
	trouble := pauses{first: 50 * time.Millisecond, longest: 10 * time.Second}
	for ctx.Err() == nil {
		free := r.free()
		if free == 0 {
			select {
			case <-r.freed:
			case <-ctx.Done():
			}
			continue
		}
		now := r.opts.Now()
		found, err := r.claim(ctx, free)
		if len(found.rows) > 0 {
			r.observer.Claimed(found.rows)
			r.start(found.rows)
		}
		switch {
		case err == nil:
			trouble.over()
			if !found.more {
				r.sleep(ctx, now, found.limited)
			}
		case errors.Is(err, outbox.ErrClosed):
			return err
		case ctx.Err() == nil:
			r.storeError("claim", err)
			trouble.wait(ctx)
		}
	}
	return nil
}

func (r *run) free() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.opts.Concurrency-len(r.tasks), 0)
}

func (r *run) storeError(operation string, err error) {
	r.opts.Logger.Warn("dispatch: store", "operation", operation, "error", err)
	r.observer.StoreError(operation, err)
}

// shutdownGrace is how long handlers have to return once their contexts ended.
const shutdownGrace = time.Second

// shutdown waits for running handlers and what stores their outcomes.
func (r *run) shutdown() error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for r.free() < r.opts.Concurrency {
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

func (r *run) running() []*task {
	r.mu.Lock()
	defer r.mu.Unlock()
	tasks := make([]*task, 0, len(r.tasks))
	for task := range r.tasks {
		tasks = append(tasks, task)
	}
	return tasks
}

// pauses are the waits between tries at something that fails.
type pauses struct{ first, longest, next time.Duration }

// wait waits longer each time, but not for longer than ctx lasts.
func (p *pauses) wait(ctx context.Context) {
	p.next = min(max(2*p.next, p.first), p.longest)
	timer := time.NewTimer(p.next/2 + jitter(p.next/2))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (p *pauses) over() { p.next = 0 }
