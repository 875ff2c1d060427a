package dispatch

import (
	"context"
	"time"

	"example.com/outbox"
)

// Observer is told what a Dispatcher does, in enough detail for metrics and
// traces. Any function may be nil. They are called from several goroutines at
// once, and the Dispatcher waits for them, so they should be quick. A panic in
// one of them is logged and otherwise ignored.
type Observer struct {
	// Claimed is told the rows of each claim that found any, before the
	// first of them is started.
	Claimed func(rows []outbox.Row)

	// Started is told that a handler is about to run. The context that it
	// returns, made from the one given, is the handler's; if it panics or
	// returns nil, the one given is.
	Started func(ctx context.Context, row outbox.Row) context.Context

	// Settled is told what became of the row once that is stored, how long the
	// handler ran and which error it returned: ErrShutdown for a handler that
	// still ran when the shutdown gave up on it. ctx is what Started returned.
	Settled func(ctx context.Context, row outbox.Row, outcome Outcome, took time.Duration, err error)

	// Recovered is told what became of a stale claim: Returned, Failed or
	// Cancelled.
	Recovered func(row outbox.Row, outcome Outcome)

	// StoreError is told of every error of the Store, of HeldContext and of
	// Terminal, and what the Dispatcher was doing. The Dispatcher goes on,
	// unless the Store is closed.
	StoreError func(operation string, err error)
}

// Outcome is what became of a claimed row.
type Outcome string

const (
	Completed       Outcome = "completed" // done
	Retried         Outcome = "retried"   // pending again, an attempt spent
	Failed          Outcome = "failed"    // a dead letter
	OutcomeAccepted Outcome = "accepted"  // still claimed: the handler returned Accepted
	Returned        Outcome = "returned"  // pending again, no attempt spent
	Cancelled       Outcome = "cancelled" // its workflow has ended
	Lost            Outcome = "lost"      // the claim was lost, and the handler's result is dropped
	Unknown         Outcome = "unknown"   // not stored before the shutdown was over; the claim goes stale
)

// Deferred is the former name of OutcomeAccepted.
//
// Deprecated: Use OutcomeAccepted.
const Deferred = OutcomeAccepted

// withDefaults makes every function callable.
func (o Observer) withDefaults() Observer {
	if o.Claimed == nil {
		o.Claimed = func([]outbox.Row) {}
	}
	if o.Started == nil {
		o.Started = func(ctx context.Context, _ outbox.Row) context.Context { return ctx }
	}
	if o.Settled == nil {
		o.Settled = func(context.Context, outbox.Row, Outcome, time.Duration, error) {}
	}
	if o.Recovered == nil {
		o.Recovered = func(outbox.Row, Outcome) {}
	}
	if o.StoreError == nil {
		o.StoreError = func(string, error) {}
	}
	return o
}
