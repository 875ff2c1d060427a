// Package dispatch is the loop around an outbox.Store: it claims due rows, runs a
// handler for each, and settles them by what the handler returns.
//
//	dispatcher := dispatch.New(store, func(ctx context.Context, row outbox.Row) error {
//		return deliver(ctx, row.DispatchKey, row.Input.Data)
//	}, nil)
//	err := dispatcher.Run(ctx) // until ctx ends
//
// It uses nothing but the store's public methods, so a loop of your own can do
// all that it does.
//
// # What a handler's result does
//
//	nil                      the row is done
//	an error                 it is retried after Options.Backoff; the last attempt fails it
//	Permanent(err)           it fails now: a dead letter
//	RetryAfter(d, err)       it is retried after d; the attempt is spent
//	RetryNow(err)            it is retried at once; the attempt is spent
//	Accepted                 it stays claimed, and whoever took it over completes it by its key
//	a panic                  as an error, with the stack as the row's last error
//
// # What is guaranteed
//
// Every row is handled at least once, by one handler at a time as long as claims
// are extended in time (see Options.Lease), and settled for good. A handler may
// run again for a row that it has handled: when its process died before the
// outcome was stored, or when its claim was lost to another. So handlers should be
// idempotent; DispatchKey is the same each time, and Fence grows with each claim,
// so that a receiver can tell a late request from the latest.
//
// Rows of one workflow are claimed in the order they fall due, but run at the same
// time and finish in any order.
package dispatch
