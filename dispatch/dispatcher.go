package dispatch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"example.com/outbox"
)

// Dispatcher claims the rows of a store and runs a handler for each. Several may
// share a store or a database: a row is held by one at a time.
type Dispatcher struct {
	store    *outbox.Store
	handler  Handler
	opts     Options // whose functions can be called and do not panic
	observer Observer
	trouble  *troubles

	running atomic.Bool
	wake    chan struct{}
}

// New returns a Dispatcher that does nothing until Run.
func New(store *outbox.Store, handler Handler, opts *Options) *Dispatcher {
	if opts == nil {
		opts = &Options{}
	}
	d := &Dispatcher{store: store, handler: handler, opts: opts.withDefaults(), wake: make(chan struct{}, 1)}
	d.trouble = newTroubles(d.opts.Logger)
	d.opts = guard{d.trouble}.options(d.opts, store)
	d.observer = d.opts.Observer
	return d
}

// Wake makes the loop look for rows now, after a change that it cannot see: a
// workflow is no longer held, a limit was raised. It does not wait.
func (d *Dispatcher) Wake() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Run dispatches until ctx ends, and then returns nil. Errors of the store are
// logged, told to the Observer and waited out. Only a store that was closed ends
// Run, with outbox.ErrClosed.
//
// When ctx has ended, nothing more is claimed. Running handlers have
// ShutdownTimeout to finish, and their outcomes are stored. Then their contexts
// end, with ErrShutdown as the cause. The rows of handlers that do not return
// within another second become pending again, without an attempt spent; Run
// ignores what those handlers return later, and its error says how many there are.
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
	defer d.trouble.flush()

	staged, unsubscribe := d.store.Subscribe()
	defer unsubscribe()
	r := &run{
		Dispatcher: d,
		staged:     staged,
		freed:      make(chan struct{}, 1),
		tasks:      make(map[*task]struct{}),
	}
	defer r.watch.close()
	r.leases = joinLeases(r)
	defer r.leases.leave(r)
	pool := d.opts.Pool
	if pool == nil {
		pool = ownPool(d.opts.Concurrency)
	}
	r.handlers = pool.join(d.opts.Concurrency)

	ctx, r.stop = context.WithCancelCause(ctx)
	defer r.stop(nil)
	// What was begun is finished although ctx has ended: claims are extended
	// and outcomes stored until over.
	var over context.CancelFunc
	r.base, over = context.WithCancel(context.WithoutCancel(ctx))
	defer over()

	var loops sync.WaitGroup
	defer loops.Wait()
	defer over()
	loops.Go(func() { r.extendRegularly(r.base) })

	r.reconcile(ctx) // before the first claim: rows of ended workflows must not go out
	loops.Go(func() { r.reconcileRegularly(ctx) })
	r.dispatch(ctx)
	r.stop(nil)
	err := r.shutdown()
	if errors.Is(context.Cause(ctx), errStoreClosed) {
		err = errors.Join(outbox.ErrClosed, err)
	}
	return err
}

// run is the state of one Run.
type run struct {
	*Dispatcher
	base     context.Context // of handlers and of what stores their outcomes
	stop     context.CancelCauseFunc
	staged   <-chan struct{} // the store has committed rows
	freed    chan struct{}   // a handler has ended
	handlers *member         // its part of the pool
	leases   *leases
	watch    watch    // used by the goroutine that claims, alone
	routes   rotation // used by it, alone

	mu    sync.Mutex
	tasks map[*task]struct{} // rows that are claimed and not settled yet

	asked bool // about the workflows that were live at the start
}

// errStoreClosed is why a run ends whose store was closed.
var errStoreClosed = errors.New("dispatch: the store was closed")

// storeError logs and tells an error of the store, or of a function that was
// asked. A closed store ends the run.
func (r *run) storeError(operation string, err error) {
	r.trouble.warn(operation, err)
	r.observer.StoreError(operation, err)
	if isClosed(err) {
		r.stop(errStoreClosed)
	}
}

// isClosed reports whether err says that the run's own store is closed.
func isClosed(err error) bool {
	var asked *askError
	return errors.Is(err, outbox.ErrClosed) && !errors.As(err, &asked)
}

// running returns the tasks that are not settled yet.
func (r *run) running() []*task {
	r.mu.Lock()
	defer r.mu.Unlock()
	tasks := make([]*task, 0, len(r.tasks))
	for task := range r.tasks {
		tasks = append(tasks, task)
	}
	return tasks
}

// held returns those whose claims are not known to be lost: an answer of the
// store names keys, which a later claim may share.
func (r *run) held() []*task {
	tasks := r.running()
	kept := tasks[:0]
	for _, t := range tasks {
		if !t.lost() {
			kept = append(kept, t)
		}
	}
	return kept
}
