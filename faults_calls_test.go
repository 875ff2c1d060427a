package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/outbox"
)

// operation is a call of the API. What it returns counts if it does not fail.
type operation struct {
	name string
	call func(ctx context.Context, f *faulty) (any, error)
}

// lost is the outcome of a call whose other refs are stored.
func lost(err error) (any, error) {
	var lost *outbox.ClaimLostError
	if errors.As(err, &lost) {
		return lost.DispatchKeys, nil
	}
	return nil, err
}

var operations = []operation{
	{"Append", func(ctx context.Context, f *faulty) (any, error) {
		return f.Append(ctx, row(faultyWorkflow, 0), row(faultyWorkflow, 20), large(row(faultyWorkflow, 21)))
	}},
	{"Rearm", func(ctx context.Context, f *faulty) (any, error) {
		return nil, f.Rearm(ctx, row(faultyWorkflow, 7), large(row(faultyWorkflow, 20)))
	}},
	{"Update", func(ctx context.Context, f *faulty) (any, error) {
		return nil, f.Update(ctx, func(ctx context.Context, tx outbox.Tx) error { return f.stage(ctx, tx) })
	}},
	{"Update that fails", func(ctx context.Context, f *faulty) (any, error) {
		failure := errors.New("undo it")
		err := f.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
			return errors.Join(f.stage(ctx, tx), failure)
		})
		if err != nil && err.Error() == failure.Error() {
			return "undone", nil
		}
		return nil, err
	}},
	{"Update that leaves rows open", func(ctx context.Context, f *faulty) (any, error) {
		return nil, f.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO history VALUES ('first')")
			if err != nil {
				return err
			}
			_, _ = tx.QueryContext(ctx, "SELECT * FROM outbox") // an error ignored, too
			if err := f.CompleteTx(ctx, tx, held(4)); err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, "INSERT INTO history VALUES ('last')")
			return err
		})
	}},
	{"Claim", func(ctx context.Context, f *faulty) (any, error) { return f.Claim(ctx, 3) }},
	{"ClaimExcluding", func(ctx context.Context, f *faulty) (any, error) { return f.ClaimExcluding(ctx, 3, otherWorkflow) }},
	{"ClaimScoped", func(ctx context.Context, f *faulty) (any, error) {
		return f.ClaimScoped(ctx, outbox.Scope{Namespace: "default", TaskQueue: "default"}, 3)
	}},
	{"ClaimScopedExcluding", func(ctx context.Context, f *faulty) (any, error) {
		return f.ClaimScopedExcluding(ctx, outbox.Scope{Namespace: "default", TaskQueue: "default", Node: "n1"}, 3, otherWorkflow)
	}},
	{"Extend", func(ctx context.Context, f *faulty) (any, error) { return lost(f.Extend(ctx, held(4), held(7))) }},
	{"ListStale", func(ctx context.Context, f *faulty) (any, error) { return f.ListStale(ctx, f.clock.Now(), 2) }},
	{"RearmStale", func(ctx context.Context, f *faulty) (any, error) {
		return f.RearmStale(ctx, f.clock.Now(), time.Time{}, 2)
	}},
	{"Complete", func(ctx context.Context, f *faulty) (any, error) {
		return lost(f.Complete(ctx, held(4), held(9), held(5)))
	}},
	{"Retry", func(ctx context.Context, f *faulty) (any, error) {
		return nil, f.Retry(ctx, held(4), 1, time.Time{}, errTold)
	}},
	{"Fail", func(ctx context.Context, f *faulty) (any, error) { return nil, f.Fail(ctx, held(4), errTold) }},
	{"Cancel", func(ctx context.Context, f *faulty) (any, error) {
		return nil, f.Cancel(ctx, held(4), outbox.Ref{DispatchKey: key(0)})
	}},
	{"SettleWorkflow", func(ctx context.Context, f *faulty) (any, error) { return f.SettleWorkflow(ctx, faultyWorkflow) }},
	{"Requeue", func(ctx context.Context, f *faulty) (any, error) { return f.Requeue(ctx, key(8), key(0)) }},
	{"Purge", func(ctx context.Context, f *faulty) (any, error) { return f.Purge(ctx, f.clock.Now(), 2) }},
	{"Get", func(ctx context.Context, f *faulty) (any, error) { return f.Get(ctx, key(1)) }},
	{"State", func(ctx context.Context, f *faulty) (any, error) { return f.State(ctx, key(1)) }},
	{"List", func(ctx context.Context, f *faulty) (any, error) { return f.List(ctx, outbox.Filter{Limit: 3}) }},
	{"Rows", func(ctx context.Context, f *faulty) (any, error) {
		var rows []outbox.Row
		for row, err := range f.Rows(ctx, outbox.Filter{}) {
			if err != nil {
				return nil, err
			}
			rows = append(rows, row)
		}
		return rows, nil
	}},
	{"CountInFlight", func(ctx context.Context, f *faulty) (any, error) { return f.CountInFlight(ctx, "default") }},
	{"CountClaimed", func(ctx context.Context, f *faulty) (any, error) { return f.CountClaimed(ctx, "default") }},
	{"CountClaimedByNamespace", func(ctx context.Context, f *faulty) (any, error) {
		return f.CountClaimedByNamespace(ctx, "default", "other")
	}},
	{"PendingRoutes", func(ctx context.Context, f *faulty) (any, error) { return f.PendingRoutes(ctx) }},
	{"UnsettledWorkflows", func(ctx context.Context, f *faulty) (any, error) { return f.UnsettledWorkflows(ctx) }},
	{"NextVisible", func(ctx context.Context, f *faulty) (any, error) {
		at, ok, err := f.NextVisible(ctx)
		return fmt.Sprint(at, ok), err
	}},
	{"NextVisibleAfter", func(ctx context.Context, f *faulty) (any, error) {
		at, ok, err := f.NextVisibleAfter(ctx, f.clock.Now().Add(-98*time.Second))
		return fmt.Sprint(at, ok), err
	}},
	{"Watch", func(ctx context.Context, f *faulty) (any, error) {
		watch, err := f.Watch(ctx)
		if err != nil {
			if errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, errTold) { // in memory
				return "unsupported", nil
			}
			return nil, err
		}
		defer watch.Close()
		return watch.Changed(ctx)
	}},
	{"Migrate", func(ctx context.Context, f *faulty) (any, error) { return nil, f.Migrate(ctx) }},
}

// stage makes every call that has a Tx, beside a statement of the host's.
func (f *faulty) stage(ctx context.Context, tx outbox.Tx) error {
	if _, err := tx.ExecContext(ctx, "INSERT INTO history VALUES ('staged')"); err != nil {
		return err
	}
	if _, err := f.AppendTx(ctx, tx, row(faultyWorkflow, 20), large(row(faultyWorkflow, 21))); err != nil {
		return err
	}
	if _, err := lost(f.CompleteTx(ctx, tx, held(4), held(9))); err != nil {
		return err
	}
	if err := f.RearmTx(ctx, tx, row(faultyWorkflow, 7)); err != nil {
		return err
	}
	_, err := f.SettleWorkflowTx(ctx, tx, otherWorkflow)
	return err
}
