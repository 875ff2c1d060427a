package outbox

import (
	"context"

	"example.com/outbox/internal/engine"
)

// Update runs fn in one IMMEDIATE transaction, for the caller's own statements
// and those of the …Tx methods alike, and commits it if fn returns nil. If fn
// returns an error, panics or ends its goroutine, or ctx ends before the COMMIT,
// nothing is stored. fn's panic reaches the caller, and so does its error: as it
// is, or wrapped in the error of this package that it means, such as ErrBusy or
// ErrUnavailable. The other errors are those of the database.
//
// Nothing is stored either if a statement ended the transaction (ON CONFLICT
// ROLLBACK, RAISE(ROLLBACK), a server's time limit), even if fn ignored its error:
// Update returns ErrRolledBack. What fn sends after that is refused with the same
// error, since outside the transaction it would be stored at once. To be sure, tx
// asks the connection before every statement after the first that failed or the
// first query (those of the …Tx methods may be queries); over go-libsql that costs
// a request each on a server, over package hrana none. Statements that begin or end
// a transaction are refused with an InvalidError; SAVEPOINT, ROLLBACK TO and
// RELEASE work. Rows that fn leaves open are closed.
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
