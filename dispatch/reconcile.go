package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
)

// reconcileRegularly looks for stale claims until ctx ends.
func (r *run) reconcileRegularly(ctx context.Context) {
	ticker := time.NewTicker(r.opts.ReconcileInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			r.reconcile(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// stalePage is how many stale rows, with their payloads, are looked at at once.
const stalePage = 100

// reconcile settles the rows of workflows that have ended and takes stale claims
// back. An error ends it until the next time.
func (r *run) reconcile(ctx context.Context) {
	err := caught("Store", func() error {
		if err := r.settleEnded(ctx); err != nil {
			return err
		}
		olderThan := r.opts.Now().Add(-r.opts.Lease)
		for more := true; more && ctx.Err() == nil; {
			var err error
			if more, err = r.recover(ctx, olderThan); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		r.storeError("reconcile", err)
	}
}

// settleEnded asks about all live workflows, until it has succeeded once in a Run.
func (r *run) settleEnded(ctx context.Context) error {
	if r.opts.Terminal == nil || r.asked {
		return nil
	}
	workflows, err := r.store.UnsettledWorkflows(ctx)
	if err != nil {
		return err
	}
	failed := 0
	for _, workflow := range workflows {
		if _, problem := r.settleIfEnded(ctx, workflow); problem != nil {
			err = problem // the others are asked about all the same
			failed++
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	r.asked = failed == 0
	if failed > 1 {
		err = fmt.Errorf("%w, and so of %d others", err, failed-1)
	}
	return err
}

func (r *run) settleIfEnded(ctx context.Context, workflow uuid.UUID) (ended bool, err error) {
	if ended, err = r.opts.Terminal(ctx, workflow); err != nil {
		return false, fmt.Errorf("whether workflow %s has ended: %w", workflow, err)
	}
	if !ended {
		return false, nil
	}
	keys, err := r.store.SettleWorkflow(ctx, workflow)
	if err == nil && len(keys) > 0 {
		r.opts.Logger.Info("dispatch: rows of an ended workflow settled", "workflow_id", workflow, "rows", len(keys))
	}
	return true, err
}

// recover takes back a page of stale claims, the oldest first. It first asks about
// all their workflows; if one question fails, nothing is taken back. It reports
// whether there may be another page: not if this one is unchanged, which would
// come again.
func (r *run) recover(ctx context.Context, olderThan time.Time) (more bool, err error) {
	if err := r.leases.renew(ctx, olderThan); err != nil {
		return false, err
	}
	stale, olderThan, more, err := r.listStale(ctx, olderThan)
	if err != nil || len(stale) == 0 {
		return false, err
	}
	ended := make(map[uuid.UUID]bool)
	if r.opts.Terminal != nil {
		for _, row := range stale {
			if _, asked := ended[row.WorkflowID]; asked {
				continue
			}
			if ended[row.WorkflowID], err = r.opts.Terminal(ctx, row.WorkflowID); err != nil {
				return false, fmt.Errorf("whether workflow %s has ended: %w", row.WorkflowID, err)
			}
		}
	}
	settled, buried := make(map[string]bool), 0
	for _, row := range stale {
		switch {
		case settled[row.DispatchKey]:
		case ended[row.WorkflowID]:
			keys, err := r.store.SettleWorkflow(ctx, row.WorkflowID)
			if err != nil {
				return false, err
			}
			for _, key := range keys {
				settled[key] = true
			}
		case row.Fence-int64(row.Attempt) > int64(r.opts.MaxClaims):
			if err := r.buryKiller(ctx, row); err != nil {
				return false, err
			}
			buried++
		}
		if settled[row.DispatchKey] {
			r.observer.Recovered(row, Cancelled)
		}
	}
	rearmed, err := r.leases.rearmStale(ctx, olderThan, len(stale))
	for _, row := range rearmed {
		r.opts.Logger.Warn("dispatch: stale claim taken back", "dispatch_key", row.DispatchKey, "fence", row.Fence)
		r.observer.Recovered(row, Returned)
	}
	return more && (len(rearmed) > 0 || len(settled) > 0 || buried > 0), err
}

// buryKiller makes a dead letter of a row, unless it has been settled, claimed by
// another or extended meanwhile: Terminal may have taken long.
func (r *run) buryKiller(ctx context.Context, row outbox.Row) error {
	switch now, err := r.store.Get(ctx, row.DispatchKey); {
	case errors.Is(err, outbox.ErrNotFound):
		return nil
	case err != nil:
		return err
	case now.Status != outbox.Claimed || !now.ClaimedAt.Equal(row.ClaimedAt):
		return nil
	}
	cause := fmt.Errorf("dispatch: claimed %d times without being settled", row.Fence-int64(row.Attempt))
	err := r.store.Fail(ctx, row.Ref(), cause)
	switch {
	case errors.Is(err, outbox.ErrClaimLost):
		return nil
	case err != nil:
		return err
	}
	r.opts.Logger.Warn("dispatch: dead letter", "dispatch_key", row.DispatchKey, "error", cause)
	r.observer.Recovered(row, Failed)
	return nil
}

// listStale returns a page of rows, and an instant such that these are all the
// rows with an older claim: taking back what is older takes back none that are not
// in the page.
func (r *run) listStale(ctx context.Context, olderThan time.Time) (stale []outbox.Row, before time.Time, more bool, err error) {
	for limit := stalePage; ; limit *= 2 {
		stale, err = r.store.ListStale(ctx, olderThan, limit)
		if err != nil || len(stale) < limit {
			return stale, olderThan, false, err
		}
		n := len(stale)
		for n > 0 && stale[n-1].ClaimedAt.IsZero() {
			n-- // it is damaged and has no instant
		}
		if n == 0 {
			continue
		}
		last := stale[n-1].ClaimedAt
		for n > 0 && stale[n-1].ClaimedAt.Equal(last) {
			n-- // others of that instant may be beyond the page
		}
		if n > 0 {
			return stale[:n], last, true, nil
		}
	}
}
