package dispatch

import (
	"context"
	"time"
)

// How the loop sleeps: it asks the watch this often, and never looks for rows
// again sooner than briefest.
const (
	watchInterval = 10 * time.Millisecond
	watchRetry    = time.Second // after an error of the watch
	briefest      = time.Millisecond
)

// sleep returns when there may be rows to claim that there were not at the given
// instant, when the poll interval is over, or when ctx ends. If rows were left
// because of their namespace's limit, it also returns when a handler has ended.
func (r *run) sleep(ctx context.Context, since time.Time, limited bool) {
	if r.watch.open(ctx, r) {
		return // it does not see what was committed between the claim and now
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
