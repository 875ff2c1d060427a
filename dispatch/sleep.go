package dispatch

import (
	"context"
	"errors"
	"time"

	"example.com/outbox"
)

// How the loop sleeps: it asks the watch this often, and in no case looks for
// rows again sooner than briefest.
const (
	watchInterval = 10 * time.Millisecond
	watchRetry    = time.Second // after an error of the watch
	briefest      = time.Millisecond
)

// sleep returns when there may be rows to claim that there were not at the given
// instant, or the poll interval is over, or ctx ends. If rows were left for
// their namespace's limit, a handler that ends ends it too.
func (r *run) sleep(ctx context.Context, since time.Time, limited bool) {
	if r.watch.open(ctx, r) {
		return // it does not tell of what was committed since the claim and before it began
	}
	pause := r.opts.PollInterval
	next, ok, err := r.store.NextVisibleAfter(ctx, since)
	if err != nil && ctx.Err() == nil {
		r.storeError("next visible", err)
	}
	if err == nil && ok {
		pause = min(pause, max(next.Sub(r.opts.Now()), briefest))
	}
	if r.watch.failing() {
		pause = min(pause, watchRetry)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	var freed <-chan struct{}
	if limited {
		freed = r.freed
	}
	var tick <-chan time.Time
	if r.watch.Watch != nil {
		ticker := time.NewTicker(watchInterval)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-tick:
			if !r.watch.changed(ctx, r) {
				continue
			}
		case <-r.staged:
		case <-r.wake:
		case <-freed:
		case <-timer.C:
		case <-ctx.Done():
		}
		return
	}
}

// watch is a store's Watch that is opened again after an error, but not at once.
type watch struct {
	*outbox.Watch
	unsupported bool
	notBefore   time.Time
}

// failing reports whether there is no watch, but may be one later.
func (w *watch) failing() bool { return w.Watch == nil && !w.unsupported }

// open reports whether it has begun a watch.
func (w *watch) open(ctx context.Context, r *run) bool {
	if !w.failing() || time.Now().Before(w.notBefore) {
		return false
	}
	opened, err := r.store.Watch(ctx)
	switch {
	case err == nil:
		w.Watch = opened
	case errors.Is(err, errors.ErrUnsupported):
		w.unsupported = true
	default:
		w.failed(ctx, r, err)
	}
	return w.Watch != nil
}

// changed is true also after an error: then it is not known.
func (w *watch) changed(ctx context.Context, r *run) bool {
	if w.Watch == nil {
		return false
	}
	changed, err := w.Watch.Changed(ctx)
	if err == nil {
		return changed
	}
	w.close()
	w.failed(ctx, r, err)
	return true
}

func (w *watch) failed(ctx context.Context, r *run, err error) {
	if ctx.Err() != nil {
		return
	}
	r.storeError("watch", err)
	w.notBefore = time.Now().Add(watchRetry)
}

func (w *watch) close() {
	if w.Watch != nil {
		w.Watch.Close()
		w.Watch = nil
	}
}
