package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/google/uuid"
)

// engine runs workflows. Whatever happens to one is a transaction of its
// history and of the rows that are dispatched, or no longer, because of it.
type engine struct {
	store       *outbox.Store
	dispatcher  *dispatch.Dispatcher
	definitions map[string]definition
	activities  map[string]dispatch.Handler

	mu      sync.Mutex         // guards what follows
	held    map[uuid.UUID]bool // the workflows that are paused, as their histories say
	changed chan struct{}      // closed when anything has happened
}

// newEngine returns an engine whose dispatcher is yet to be run. With a database
// that another engine has left, call recover first.
func newEngine(ctx context.Context, store *outbox.Store, definitions map[string]definition, activities map[string]dispatch.Handler) (*engine, error) {
	e := &engine{
		store: store, definitions: definitions, activities: activities,
		held: make(map[uuid.UUID]bool), changed: make(chan struct{}),
	}
	e.dispatcher = dispatch.New(store, e.handle, &dispatch.Options{
		Held:    e.heldNow,
		Backoff: dispatch.Exponential(50*time.Millisecond, time.Minute),
	})
	return e, store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
		_, err := tx.ExecContext(ctx, historyTable)
		return err
	})
}

// recover goes on where an engine that died has ended: what the histories say is
// under way becomes pending, and claims of the dead are lost. It returns how many
// dispatches that are. No other engine may be at work on the database.
func (e *engine) recover(ctx context.Context) (rearmed int, err error) {
	live, err := e.store.UnsettledWorkflows(ctx)
	for _, id := range live {
		err = errors.Join(err, e.update(ctx, id, func(ctx context.Context, tx outbox.Tx, w *workflow) error {
			e.hold(id, w.held)
			rearmed += len(w.open)
			return e.store.RearmTx(ctx, tx, w.dispatches()...)
		}))
	}
	return rearmed, err
}

// start starts a workflow, unless it was started before.
func (e *engine) start(ctx context.Context, id uuid.UUID, name string) error {
	return e.update(ctx, id, func(ctx context.Context, tx outbox.Tx, w *workflow) error {
		if len(w.history) > 0 {
			return nil
		}
		return e.goOn(ctx, tx, w, started, name)
	})
}

// goOn records an event and fans out the next step, if the one before is done.
// If there is none, the workflow continues as new or ends.
func (e *engine) goOn(ctx context.Context, tx outbox.Tx, w *workflow, what, detail string) error {
	if err := w.record(ctx, tx, what, detail); err != nil || len(w.open) > 0 {
		return err
	}
	definition, ok := e.definitions[w.name]
	if !ok {
		return fmt.Errorf("no workflow is called %q", w.name)
	}
	for _, step := range definition.steps {
		if w.seen[step[0]] {
			continue
		}
		for _, activity := range step {
			if err := w.record(ctx, tx, scheduled, activity); err != nil {
				return err
			}
		}
		_, err := e.store.AppendTx(ctx, tx, w.dispatches()...)
		return err
	}
	if w.runs < definition.runs {
		return e.goOn(ctx, tx, w, started, w.name)
	}
	return w.record(ctx, tx, ended, "")
}

// handle runs the activity of a row. One that has given its work to somebody
// else returns dispatch.Accepted; then completeByKey is called later. One that
// fails for good is a dead letter: its workflow waits until that is requeued.
func (e *engine) handle(ctx context.Context, row outbox.Row) error {
	run, ok := e.activities[row.ActivityType]
	if !ok {
		return dispatch.Permanent(fmt.Errorf("no activity is called %q", row.ActivityType))
	}
	if err := run(ctx, row); err != nil {
		return err
	}
	return e.complete(ctx, row, row.Ref()) // the dispatcher does it once more, to no effect
}

// completeByKey is for somebody who has done the work and knows only its key. To
// say so twice, or too late, changes nothing.
func (e *engine) completeByKey(ctx context.Context, key string) error {
	row, err := e.store.Get(ctx, key)
	if err != nil {
		return err
	}
	return e.complete(ctx, row, outbox.Ref{DispatchKey: key})
}

// complete settles a row, writes it down and fans out what follows: all of it or
// nothing. A claim that was lost is refused. A key alone is not, so the history
// says whether the present run still waits for it.
func (e *engine) complete(ctx context.Context, row outbox.Row, ref outbox.Ref) error {
	return e.update(ctx, row.WorkflowID, func(ctx context.Context, tx outbox.Tx, w *workflow) error {
		if err := e.store.CompleteTx(ctx, tx, ref); err != nil {
			return err
		}
		if _, open := w.open[row.ActivityType]; !open || row.RunID.UUID != w.run {
			return nil
		}
		return e.goOn(ctx, tx, w, completed, row.ActivityType)
	})
}

// cancel ends a workflow and its dispatches, whose keys it returns.
func (e *engine) cancel(ctx context.Context, id uuid.UUID) (keys []string, err error) {
	err = e.update(ctx, id, func(ctx context.Context, tx outbox.Tx, w *workflow) (err error) {
		if !w.active {
			return nil
		}
		if err := w.record(ctx, tx, cancelled, ""); err != nil {
			return err
		}
		keys, err = e.store.SettleWorkflowTx(ctx, tx, id)
		return err
	})
	return keys, err
}

// pause keeps what is not running yet from being dispatched. What is running
// may complete, and what follows is staged, to wait for resume.
func (e *engine) pause(ctx context.Context, id uuid.UUID) error { return e.mark(ctx, id, paused) }

func (e *engine) resume(ctx context.Context, id uuid.UUID) error { return e.mark(ctx, id, resumed) }

func (e *engine) mark(ctx context.Context, id uuid.UUID, what string) error {
	return e.update(ctx, id, func(ctx context.Context, tx outbox.Tx, w *workflow) error {
		if !w.active {
			return nil
		}
		err := w.record(ctx, tx, what, "")
		e.hold(id, w.held) // in the transaction, so that it follows the history
		return err
	})
}

func (e *engine) hold(id uuid.UUID, held bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if held {
		e.held[id] = true
		return
	}
	delete(e.held, id)
	e.dispatcher.Wake() // it does not see by itself that there is more to claim
}

func (e *engine) heldNow() []uuid.UUID {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.held))
}

// update runs fn in a transaction on a workflow, and tells those who await it.
func (e *engine) update(ctx context.Context, id uuid.UUID, fn func(context.Context, outbox.Tx, *workflow) error) error {
	err := e.store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
		w, err := replay(ctx, tx, id)
		if err != nil {
			return err
		}
		return fn(ctx, tx, w)
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.changed)
	e.changed = make(chan struct{})
	return err
}

// await returns a workflow once it is as wanted.
func (e *engine) await(ctx context.Context, id uuid.UUID, wanted func(*workflow) bool) (w *workflow, err error) {
	for {
		e.mu.Lock()
		changed := e.changed
		e.mu.Unlock()
		err := e.store.Update(ctx, func(ctx context.Context, tx outbox.Tx) (err error) {
			w, err = replay(ctx, tx, id)
			return err
		})
		if err != nil || wanted(w) {
			return w, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
