package main

import (
	"context"
	"fmt"
	"time"

	"example.com/outbox"
)

// recoverClaims makes every row that is claimed pending again. Called before
// the first claim of a run, it finds those that a dead process left behind.
func recoverClaims(ctx context.Context, store *outbox.Store, progress *progress) error {
	now, recovered := time.Now(), 0
	for {
		rows, err := store.RearmStale(ctx, now, now, pageSize)
		if err != nil {
			return fmt.Errorf("recover claims: %w", err)
		}
		recovered += len(rows)
		if len(rows) < pageSize {
			break
		}
	}
	progress.recovered(recovered)
	return nil
}

// janitor makes claims that went stale pending again, and finds out when there
// is nothing left to do.
type janitor struct {
	store    *outbox.Store
	progress *progress
	staged   <-chan struct{} // closed when nothing more is staged
	drained  chan struct{}   // closed by the janitor when every row is settled
}

func (j *janitor) run(ctx context.Context) error {
	ticker := time.NewTicker(leaseCheck)
	defer ticker.Stop()
	for {
		if err := j.rearm(ctx); err != nil {
			return fmt.Errorf("janitor: %w", err)
		}
		drained, err := j.done(ctx)
		if err != nil {
			return fmt.Errorf("janitor: %w", err)
		}
		if drained {
			close(j.drained)
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rearm does not know whether a claimer is dead or only slow, and need not: if
// it comes back, its fence is that of a claim that no longer holds the row.
// Until another has claimed it the slow one may still settle it.
func (j *janitor) rearm(ctx context.Context) error {
	rows, err := j.store.RearmStale(ctx, time.Now().Add(-lease), time.Time{}, pageSize)
	if err != nil {
		return err
	}
	for _, row := range rows {
		j.progress.rearmed(row)
	}
	return nil
}

// done reports whether everything is staged and settled.
func (j *janitor) done(ctx context.Context) (bool, error) {
	select {
	case <-j.staged:
	default:
		return false, nil
	}
	live, err := j.store.UnsettledWorkflows(ctx)
	return len(live) == 0, err
}
