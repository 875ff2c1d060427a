// Package dispatch is the loop around an outbox.Store: it claims due rows, runs a
// handler for each, and settles each row by what its handler returns.
//
//	dispatcher := dispatch.New(store, func(ctx context.Context, row outbox.Row) error {
//		return deliver(ctx, row.DispatchKey, row.Input.Data)
//	}, nil)
//	err := dispatcher.Run(ctx) // until ctx ends
//
// It uses only the store's public methods, so a loop of your own can do all that
// it does.
//
// # What a handler's result does
//
//	nil                      the row is done
//	an error                 the row is retried after Options.Backoff; the last attempt fails it
//	Permanent(err)           the row fails now: a dead letter
//	RetryAfter(d, err)       the row is retried after d; the attempt is spent
//	RetryNow(err)            the row is retried at once; the attempt is spent
//	Accepted                 the row stays claimed until somebody else completes it by its key
//	a panic                  as an error, with the stack in the row's last error
//
// An error whose own methods panic, such as a nil *fs.PathError, is an error like
// any other.
//
// # What is guaranteed
//
// Every row is handled at least once, and settled for good. As long as claims are
// extended in time (see Options.Lease), a row has one handler at a time; and within
// a process, where Dispatchers use the same Store, even when the clock jumps or the
// machine was suspended.
//
// A handler may run again for a row that it has handled: when its process died
// before the outcome was stored, or when another took over its claim. So handlers
// should be idempotent. The row's DispatchKey is the same each time, and its Fence
// grows with each claim, so that a receiver can tell a late request from the latest.
//
// Rows of one workflow are claimed in the order they fall due, but they run at the
// same time and finish in any order.
//
// # Several stores
//
// A Dispatcher has one Store. To spread tenants or shards over many, run a
// Dispatcher for each and give all of them one Pool of handlers. RunAll runs them
// together.
package dispatch
