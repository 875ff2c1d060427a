package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/google/uuid"
)

// dispatchers are loops that claim rows and have them delivered. Each has its
// part of the rows here; that several compete for the same ones is fine too, in
// one process or in many.
func dispatchers(store *outbox.Store, courier *courier, held *hold, progress *progress) []*dispatch.Dispatcher {
	common := dispatch.Options{
		Concurrency:       concurrency,
		Held:              held.workflows,
		MaxAttempts:       maxAttempts,
		Backoff:           dispatch.Exponential(firstBackoff, longestBackoff),
		HandlerTimeout:    patience,
		Lease:             lease,
		ReconcileInterval: leaseCheck,
		ShutdownTimeout:   patience,
		Observer:          progress.observer(),
		Logger:            slog.New(slog.DiscardHandler), // progress tells all of it
	}
	// What runs on a node takes the rows of its route that are pinned to it
	// or to no node.
	node := common
	node.Scopes = []outbox.Scope{subscribers[toSearch].scope}

	// The other takes whatever is pinned to no node, each route in turn.
	general := common
	general.AllRoutes = true

	return []*dispatch.Dispatcher{
		dispatch.New(store, courier.deliver, &node),
		dispatch.New(store, courier.deliver, &general),
	}
}

// hold keeps a workflow from being dispatched until it is released. The program
// keeps the list of holds. The rows stay pending and are passed over, however
// many there are.
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

// release waits, and ends the hold. The loops cannot see that by themselves, so
// they are told to look again.
func (h *hold) release(ctx context.Context, loops []*dispatch.Dispatcher, progress *progress) {
	timer := time.NewTimer(holdFor)
	defer timer.Stop()
	select {
	case <-timer.C:
		progress.note("workflow %s is no longer on hold", h.workflow)
	case <-ctx.Done(): // an earlier run has settled it, or this one is interrupted
	}
	h.at = time.Now()
	close(h.released)
	for _, loop := range loops {
		loop.Wake()
	}
}

// awaitSettled returns when no row is live any more.
func awaitSettled(ctx context.Context, store *outbox.Store) error {
	ticker := time.NewTicker(leaseCheck)
	defer ticker.Stop()
	for {
		live, err := store.UnsettledWorkflows(ctx)
		if err != nil || len(live) == 0 {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// comeBack is what a claimer does that was away for so long that its claim went
// stale, and that does not know it: it delivers the row and settles it. The
// receiver refuses it by the fence, and so does the store.
func comeBack(ctx context.Context, store *outbox.Store, courier *courier, row outbox.Row, progress *progress) error {
	var refusal *statusError
	if err := courier.post(ctx, row); !errors.As(err, &refusal) || !refusal.late() {
		return errors.Join(errors.New("the receiver did not refuse a claim that was lost"), err)
	}
	if err := store.Complete(ctx, row.Ref()); !errors.Is(err, outbox.ErrClaimLost) {
		return errors.Join(errors.New("the store did not refuse a claim that was lost"), err)
	}
	progress.fenced(row)
	return nil
}
