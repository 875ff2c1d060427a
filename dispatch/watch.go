package dispatch

import (
	"context"
	"errors"
	"time"

	"example.com/outbox"
)

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
