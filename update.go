package outbox

import (
	"context"

	"example.com/outbox/internal/engine"
)

// Update runs fn in one IMMEDIATE transaction, for the caller's own statements
// and those of the …Tx methods alike, and commits it if fn returns nil. If fn
// returns an error, panics or ends its goroutine, or ctx ends before the
// COMMIT, nothing is stored; fn's error and panic reach the caller unchanged,
// but for an error of the database that has a meaning, such as ErrBusy or
// ErrUnavailable, and is wrapped in that.
//
// Nothing is stored either if a statement ended the transaction (ON CONFLICT
// ROLLBACK, RAISE(ROLLBACK), a server's time limit), even if fn ignored its
// error: what fn sends after that is refused, for outside the transaction it
// would be stored at once. To be sure of it, tx asks the connection before every
// statement after the first that failed or the first query, and those of the …Tx
// methods may be queries; on a server that costs a request each over go-libsql,
// and none over package hrana. Statements that begin or end a transaction are
// refused, while SAVEPOINT, ROLLBACK TO and RELEASE work. Rows that fn leaves
// open are closed.
//
// fn must use tx only until it returns, and must not call methods without a Tx.
// With the context it is given they return ErrInUpdate; with another they wait
// for this transaction, as all writes do and, in memory, reads too. fn holds the
// write lock, so it should not wait for anything else either; a server undoes a
// transaction that is open for 5 seconds while another waits.
//
// If the process dies before Update returns, everything is stored or nothing.
func (s *Store) Update(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error {
	return s.db.Update(ctx, func(ctx context.Context, tx *engine.UpdateTx) error { return fn(ctx, tx) })
}
