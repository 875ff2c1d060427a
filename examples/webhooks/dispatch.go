package main

import (
	"context"
	"fmt"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

// dispatcher is a loop that claims rows and has them delivered.
type dispatcher struct {
	name    string
	store   *outbox.Store
	courier *courier
	claim   func(ctx context.Context, limit int) ([]outbox.Row, error)
	after   <-chan struct{} // when it starts; nil: at once
}

// dispatchers are a loop for each way to claim. That they compete for the same
// rows is fine, in one process or in many: each row is held by one at a time.
func dispatchers(store *outbox.Store, courier *courier, held *hold) []dispatcher {
	return []dispatcher{{
		name: "node", store: store, courier: courier,
		// What runs on a node takes the rows of its route that are pinned to
		// it or to no node.
		claim: func(ctx context.Context, limit int) ([]outbox.Row, error) {
			return store.ClaimScopedExcluding(ctx, subscribers[toSearch].scope, limit, held.workflows()...)
		},
	}, {
		name: "general", store: store, courier: courier,
		// The rows of held workflows cost nothing: they are passed over,
		// however many there are, and stay pending.
		claim: func(ctx context.Context, limit int) ([]outbox.Row, error) {
			return store.ClaimExcluding(ctx, limit, held.workflows()...)
		},
	}, {
		name: "helper", store: store, courier: courier,
		// A plain Claim takes any row. It knows of no holds, so this loop
		// waits until there is none.
		claim: store.Claim,
		after: held.released,
	}}
}

// run dispatches until drained is closed, ctx ends or the store fails.
func (d dispatcher) run(ctx context.Context, drained <-chan struct{}) error {
	if d.after != nil {
		select {
		case <-d.after:
		case <-drained:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		select {
		case <-drained:
			return nil
		default:
		}
		rows, err := d.claim(ctx, batchSize)
		if err != nil {
			return fmt.Errorf("dispatcher %s: %w", d.name, err)
		}
		if len(rows) == 0 {
			if err := d.idle(ctx, drained); err != nil {
				return fmt.Errorf("dispatcher %s: %w", d.name, err)
			}
			continue
		}
		// The loop waits for the whole batch, so a request that hangs makes
		// it hang. Its other rows are delivered all the same, and another
		// loop takes over what it does not get done.
		var batch errgroup.Group
		for _, row := range rows {
			batch.Go(func() error { return d.courier.deliver(ctx, row) })
		}
		if err := batch.Wait(); err != nil {
			return fmt.Errorf("dispatcher %s: %w", d.name, err)
		}
	}
}

// idle waits until the next row falls due. There may be sooner something to do
// (rows are staged and claims go stale), and there may not be then (the row is
// held, or another's), so it waits neither long nor not at all. Asking again
// costs little: a claim that finds nothing takes no lock and writes nothing.
func (d dispatcher) idle(ctx context.Context, drained <-chan struct{}) error {
	const shortest, longest = 10 * time.Millisecond, 50 * time.Millisecond
	pause := longest
	next, ok, err := d.store.NextVisible(ctx)
	if err != nil {
		return err
	}
	if ok {
		pause = min(max(time.Until(next), shortest), longest)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-drained:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// hold keeps a workflow from being dispatched until it is released. Holds are
// the host's affair: the store is told of them with each claim.
type hold struct {
	workflow uuid.UUID
	released chan struct{} // closed when it is
	at       time.Time     // when that was; not to be read before
}

func newHold(workflow uuid.UUID) *hold {
	return &hold{workflow: workflow, released: make(chan struct{})}
}

// workflows are those on hold now.
func (h *hold) workflows() []uuid.UUID {
	select {
	case <-h.released:
		return nil
	default:
		return []uuid.UUID{h.workflow}
	}
}

// release waits, and ends the hold.
func (h *hold) release(ctx context.Context, drained <-chan struct{}, progress *progress) error {
	timer := time.NewTimer(holdFor)
	defer timer.Stop()
	select {
	case <-timer.C:
		progress.note("workflow %s is no longer on hold", h.workflow)
	case <-drained: // it was settled by an earlier run
	case <-ctx.Done():
		return ctx.Err()
	}
	h.at = time.Now()
	close(h.released)
	return nil
}
