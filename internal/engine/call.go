package engine

import (
	"context"
)

// Call is a writing call, described before it runs. The same description runs
// in a transaction of its own, in one that it shares with the calls of other
// goroutines, in the caller's, or as one request to a server. It may run more
// than once, each time from its Plan on, until it has an outcome.
//
// What its functions learn may be read once the call has returned without an
// error. After an error they may be running still.
type Call struct {
	Op     string // names the call in errors
	Weight int    // how many rows it may touch, or so

	// Plan returns the statements to begin with, now being the instant at which
	// the write lock was held, and forgets what an earlier run has learned. It
	// touches no database. can is what the database is known to do.
	Plan func(now string, can Abilities) []Statement

	// Then does what the answers of the plan ask for. Nil: nothing.
	//
	// Where the plan travels as a batch, it has been committed by then unless
	// Whole is set, and each statement of Then is stored on its own. An error is
	// ErrCommitUnknown there.
	Then func(ctx context.Context, tx Tx, now string) error

	// Whole says that Then writes what must not be missing.
	Whole bool

	// Idle is a query that fails by [Fail] if there is nothing to do. Where the
	// plan travels as a batch, the query goes before it, so that a call
	// with nothing to do takes no lock. Elsewhere it is not used. Nil: there is always something.
	Idle func(now string) *Statement

	// Kind is what calls have in common that Join can make one of; nil: nothing.
	Kind any

	// Join returns one call that does what several of a Kind do, and tells each
	// its outcome. Of is what it needs to know of each.
	Join func(calls []*Call) *Call
	Of   any
}
