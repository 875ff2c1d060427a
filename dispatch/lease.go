package dispatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"example.com/outbox"
)

// extendClaims extends the claims of running handlers three times in a lease,
// so that two may fail, until ctx ends.
func (r *run) extendClaims(ctx context.Context) {
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
		if !r.extend(ctx) {
			pause = soon
		}
		timer.Reset(pause)
	}
}

// extend reports whether the store did it. Handlers whose claims are lost are
// told so.
func (r *run) extend(ctx context.Context) bool {
	tasks := slices.DeleteFunc(r.running(), (*task).lost) // an answer names keys, which a later claim may share
	if len(tasks) == 0 {
		return true
	}
	refs := make([]outbox.Ref, len(tasks))
	for i, task := range tasks {
		refs[i] = task.row.Ref()
	}
	err := r.store.Extend(ctx, refs...)
	var lost *outbox.ClaimLostError
	switch {
	case err == nil || ctx.Err() != nil:
		return true
	case !errors.As(err, &lost):
		r.storeError("extend", err)
		return false
	}
	for _, task := range tasks {
		if slices.Contains(lost.DispatchKeys, task.row.DispatchKey) {
			task.cancel(outbox.ErrClaimLost) // of no effect on one that has just been settled
		}
	}
	return true
}

// supersede ends the handlers that still run for rows that are claimed anew: it
// was not without losing their claims.
func (r *run) supersede(rows []outbox.Row) {
	tasks := r.running()
	if len(tasks) == 0 {
		return
	}
	keys := make(map[string]bool, len(rows))
	for _, row := range rows {
		keys[row.DispatchKey] = true
	}
	for _, task := range tasks {
		if keys[task.row.DispatchKey] {
			task.cancel(outbox.ErrClaimLost)
		}
	}
}
