package dispatch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"example.com/outbox"
)

// leases are the claims of one Store that this process has handlers for, of all
// its Dispatchers. None of these is ever taken back by this process, however the
// clock jumps: not by a suspend of hours that makes them all look stale at once.
type leases struct {
	store *outbox.Store

	// claiming is held for reading from before a claim until its rows are
	// among the tasks of its run, and for writing while stale claims are taken
	// back: then the tasks are all that the Store has claimed.
	claiming sync.RWMutex

	mu   sync.Mutex
	runs map[*run]struct{}
}

// allLeases has the leases of each Store with a Dispatcher that runs.
var allLeases = struct {
	sync.Mutex
	of map[*outbox.Store]*leases
}{of: make(map[*outbox.Store]*leases)}

// joinLeases adds a run to the leases of its Store, until leave.
func joinLeases(r *run) *leases {
	allLeases.Lock()
	defer allLeases.Unlock()
	l := allLeases.of[r.store]
	if l == nil {
		l = &leases{store: r.store, runs: make(map[*run]struct{})}
		allLeases.of[r.store] = l
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[r] = struct{}{}
	return l
}

func (l *leases) leave(r *run) {
	allLeases.Lock()
	defer allLeases.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if delete(l.runs, r); len(l.runs) == 0 {
		delete(allLeases.of, l.store)
	}
}

// held returns the tasks of all runs whose claims are not known to be lost.
func (l *leases) held() []*task {
	l.mu.Lock()
	defer l.mu.Unlock()
	var tasks []*task
	for r := range l.runs {
		tasks = append(tasks, r.held()...)
	}
	return tasks
}

// errOldLease is returned when a claim looks stale although it has just been
// extended.
var errOldLease = errors.New("dispatch: a claim of this process is older than Options.Lease just after it was extended: " +
	"nothing is taken back (does Options.Now differ from the clock of the Store?)")

// renew extends the claims that are older than an instant. If it returns nil, none
// is: taking back what is older takes back nothing that this process runs, even if
// the clock jumps meanwhile.
func (l *leases) renew(ctx context.Context, olderThan time.Time) error {
	older := func() []*task {
		return slices.DeleteFunc(l.held(), func(t *task) bool { return !t.claimedAt().Before(olderThan) })
	}
	tasks := older()
	if len(tasks) == 0 {
		return nil
	}
	if err := extendTasks(ctx, l.store, tasks); err != nil {
		return err
	}
	if len(older()) > 0 {
		return errOldLease
	}
	return nil
}

// rearmStale takes back claims older than an instant, except this process's own.
func (l *leases) rearmStale(ctx context.Context, olderThan time.Time, limit int) ([]outbox.Row, error) {
	l.claiming.Lock()
	defer l.claiming.Unlock()
	if err := l.renew(ctx, olderThan); err != nil {
		return nil, err
	}
	return l.store.RearmStale(ctx, olderThan, time.Time{}, limit)
}

// extendTasks extends the claims of tasks. A handler whose claim is lost has its
// context ended.
func extendTasks(ctx context.Context, store *outbox.Store, tasks []*task) error {
	refs := make([]outbox.Ref, len(tasks))
	for i, t := range tasks {
		refs[i] = t.row.Ref()
	}
	at := store.Now()
	err := store.Extend(ctx, refs...)
	var lost *outbox.ClaimLostError
	if err != nil && !errors.As(err, &lost) {
		return err
	}
	if after := store.Now(); after.Before(at) { // the clock was set back
		at = after
	}
	for _, t := range tasks {
		if lost != nil && slices.Contains(lost.DispatchKeys, t.row.DispatchKey) {
			t.cancel(outbox.ErrClaimLost) // of no effect on one that has just been settled
		} else {
			t.extended.Store(&at)
		}
	}
	return nil
}

// extendRegularly extends the claims of running handlers three times in a lease,
// so that two may fail, until ctx ends.
func (r *run) extendRegularly(ctx context.Context) {
	usual, soon := max(r.opts.Lease/3, 1), max(r.opts.Lease/12, 1)
	timer := time.NewTimer(usual)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		pause := usual
		if err := caught("Store", func() error { return r.extend(ctx) }); err != nil && ctx.Err() == nil {
			r.storeError("extend", err)
			pause = soon
		}
		timer.Reset(pause)
	}
}

func (r *run) extend(ctx context.Context) error {
	tasks := r.held()
	if len(tasks) == 0 {
		return nil
	}
	return extendTasks(ctx, r.store, tasks)
}

// supersede ends the handlers that still run for rows that were claimed again:
// their claims are lost.
func (r *run) supersede(claimed []*task) {
	tasks := r.running()
	if len(tasks) == len(claimed) { // there are no others
		return
	}
	fences := make(map[string]int64, len(claimed))
	for _, t := range claimed {
		fences[t.row.DispatchKey] = t.row.Fence
	}
	for _, t := range tasks {
		if fence, again := fences[t.row.DispatchKey]; again && fence != t.row.Fence {
			t.cancel(outbox.ErrClaimLost)
		}
	}
}
