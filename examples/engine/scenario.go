package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/google/uuid"
)

func definitions() map[string]definition {
	return map[string]definition{
		"order":   {steps: [][]string{{"reserve"}, {"charge", "pack"}, {"ship"}}},
		"label":   {steps: [][]string{{"print"}, {"ship"}}},
		"request": {steps: [][]string{{"approve"}, {"ship"}}},
		"report":  {steps: [][]string{{"collect"}, {"send"}}, runs: 3},
	}
}

// cast are the workflows of the scenario, and what is to become of them.
func cast() []role {
	return []role{
		{"order", "order", "ended after charge, pack, reserve, ship"},
		{"held order", "order", "ended after charge, pack, reserve, ship"},
		{"label", "label", "ended after print, ship"},
		{"request", "request", "cancelled after nothing"},
		{"report", "report", "ended after collect, collect, collect, send, send, send"},
	}
}

type role struct{ name, definition, want string }

// idOf is the same in each process.
func idOf(name string) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceOID, []byte(name)) }

// workers do activities. The printer and the manager are elsewhere: they get keys
// of what they are to do, and have it completed by those.
type workers struct {
	charge           dispatch.Handler
	printer, manager chan string
}

func newWorkers() *workers {
	return &workers{charge: work, printer: make(chan string, 1), manager: make(chan string, 1)}
}

// doomedWorkers kill their process when they get to charge an order. It cannot
// put anything in order before.
func doomedWorkers() *workers {
	workers := newWorkers()
	workers.charge = func(context.Context, outbox.Row) error { return syscall.Kill(syscall.Getpid(), syscall.SIGKILL) }
	return workers
}

func (w *workers) activities() map[string]dispatch.Handler {
	return map[string]dispatch.Handler{
		"reserve": work, "charge": w.charge, "pack": workAtLast, "ship": work, "collect": work, "send": work,
		"print": handOver(w.printer), "approve": handOver(w.manager),
	}
}

func work(context.Context, outbox.Row) error { return nil }

func workAtLast(_ context.Context, row outbox.Row) error {
	if row.Attempt == 0 {
		return errors.New("there is no box left")
	}
	return nil
}

func handOver(keys chan<- string) dispatch.Handler {
	return func(ctx context.Context, row outbox.Row) error {
		select {
		case keys <- row.DispatchKey:
			return dispatch.Accepted
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// begin is the part before the crash.
func begin(ctx context.Context, e *engine) error {
	for _, role := range cast() {
		if err := e.start(ctx, idOf(role.name), role.definition); err != nil {
			return err
		}
	}
	if err := e.pause(ctx, idOf("held order")); err != nil {
		return err
	}
	return e.dispatcher.Run(ctx)
}

// finish is the part after it.
func finish(ctx context.Context, e *engine, workers *workers, out io.Writer) error {
	claimed, err := e.store.CountClaimed(ctx, outbox.DefaultRoute)
	if err != nil {
		return err
	}
	rearmed, err := e.recover(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "a process was killed with %d dispatches claimed; %d that are not done are re-armed\n", claimed, rearmed)

	running, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- e.dispatcher.Run(running) }()
	err = play(ctx, e, workers, out)
	stop()
	if err := errors.Join(err, <-stopped); err != nil {
		return err
	}
	return check(ctx, e, out)
}

func over(w *workflow) bool { return !w.active }

func anyhow(*workflow) bool { return true }

// play does what users do, and waits until all workflows are over.
func play(ctx context.Context, e *engine, workers *workers, out io.Writer) error {
	if _, err := e.await(ctx, idOf("order"), over); err != nil {
		return err
	}
	held, err := e.await(ctx, idOf("held order"), anyhow)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "the order is shipped; the held order is %s\n", held)
	if err := e.resume(ctx, idOf("held order")); err != nil {
		return err
	}

	label, err := receive(ctx, workers.printer)
	if err != nil {
		return err
	}
	if err := errors.Join(e.completeByKey(ctx, label), e.completeByKey(ctx, label)); err != nil {
		return err
	}
	fmt.Fprintf(out, "the printer has completed %s by its key, and said so twice\n", label)

	request, err := receive(ctx, workers.manager)
	if err != nil {
		return err
	}
	keys, err := e.cancel(ctx, idOf("request"))
	if err := errors.Join(err, e.completeByKey(ctx, request)); err != nil {
		return err
	}
	fmt.Fprintf(out, "the request is cancelled with %d dispatch, and approved too late\n", len(keys))

	for _, role := range cast() {
		if _, err := e.await(ctx, idOf(role.name), over); err != nil {
			return err
		}
	}
	return nil
}

func receive(ctx context.Context, keys <-chan string) (string, error) {
	select {
	case key := <-keys:
		return key, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// check compares each workflow with what was to become of it, and its history
// with its rows.
func check(ctx context.Context, e *engine, out io.Writer) error {
	for _, role := range cast() {
		w, err := e.await(ctx, idOf(role.name), anyhow)
		if err != nil {
			return err
		}
		rows, err := e.store.List(ctx, outbox.Filter{WorkflowID: uuid.NullUUID{UUID: w.id, Valid: true}})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "  %-11s %s\n", role.name, w)
		count := make(map[string]int)
		for _, event := range w.history {
			count[event.what]++
		}
		for _, row := range rows {
			count[string(row.Status)+" row"]++
		}
		switch {
		case w.String() != role.want:
			return fmt.Errorf("check failed: the %s is not %s", role.name, role.want)
		case count[scheduled] != len(rows) || count[completed] != count["done row"]:
			return fmt.Errorf("check failed: history and rows of the %s do not agree: %v", role.name, count)
		}
	}
	live, err := e.store.UnsettledWorkflows(ctx)
	if err == nil && len(live) > 0 {
		err = fmt.Errorf("check failed: rows are left of %v", live)
	}
	if err == nil {
		fmt.Fprintln(out, "check passed: all is as it was to be, and histories and rows agree")
	}
	return err
}
