package dispatch

import (
	"context"
	"errors"
	"time"

	"example.com/outbox"
)

// dispatch claims and starts rows until ctx ends.
func (r *run) dispatch(ctx context.Context) {
	defer r.handlers.rest()
	trouble := pauses{first: 50 * time.Millisecond, longest: 10 * time.Second}
	shared := r.opts.Pool != nil
	for look := shared; ctx.Err() == nil; {
		var found claimed
		now := r.opts.Now()
		err := caught("Store", func() error {
			if look {
				// A store that has nothing due, or does not answer, must not
				// keep handlers from others while it finds that out.
				if due, err := r.anyDue(ctx); err != nil || !due {
					return err
				}
			}
			return r.claimAndStart(ctx, &found)
		})
		if err != nil || !found.more {
			r.handlers.rest()
		}
		if err == nil && !found.more {
			err = caught("Store", func() error { r.sleep(ctx, now, found.limited); return nil })
		}
		look = shared && (err != nil || !found.more)
		switch {
		case err == nil:
			trouble.over()
		case isClosed(err):
			r.stop(errStoreClosed)
		case ctx.Err() == nil:
			r.storeError(operationOf(err), err)
			trouble.wait(ctx)
		}
	}
}

// operationOf tells what a claim failed at.
func operationOf(err error) string {
	var asked *askError
	if errors.As(err, &asked) {
		return "held"
	}
	return "claim"
}

// claimAndStart claims rows for the handlers that it gets and starts them.
func (r *run) claimAndStart(ctx context.Context, found *claimed) error {
	free := r.handlers.acquire(ctx)
	if free == 0 {
		return nil // ctx has ended
	}
	err := caught("Store", func() error { return r.claim(ctx, free, found) })
	r.handlers.release(free - len(found.tasks))
	if len(found.tasks) > 0 {
		rows := make([]outbox.Row, len(found.tasks))
		for i, t := range found.tasks {
			rows[i] = t.row
		}
		r.observer.Claimed(rows)
		r.start(found.tasks)
	}
	return err
}

// anyDue reports whether a row is due, whatever its route and whether it is held.
func (r *run) anyDue(ctx context.Context) (bool, error) {
	due := func() (bool, error) {
		next, ok, err := r.store.NextVisible(ctx)
		return ok && !next.After(r.opts.Now()), err
	}
	if yes, err := due(); err != nil || yes {
		return yes, err
	}
	if err := r.refresh(ctx); err != nil {
		return false, err
	}
	return due()
}

// refresh brings an embedded replica up to date, as any call does that looks for
// work and asks the primary. This one finds none: nothing was claimed before 1970.
func (r *run) refresh(ctx context.Context) error {
	_, err := r.store.RearmStale(ctx, time.Unix(0, 0), time.Time{}, 1)
	return err
}
