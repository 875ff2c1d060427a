package outbox

import (
	"fmt"
	"strconv"
	"strings"

	"example.com/outbox/internal/engine"
)

// Errors to be told apart with [errors.Is]. What a driver says itself stays in
// the chain behind them.
var (
	// ErrNotFound is returned by Get and State for a key that no row has.
	ErrNotFound error = engine.NewFault("outbox: no such row")

	// ErrClaimLost is returned when a fenced Ref no longer holds its row:
	// another claim took it, it was reopened, settled otherwise or purged.
	// [ClaimLostError] has the keys.
	ErrClaimLost error = engine.NewFault("outbox: claim lost")

	// ErrInvalid is returned for input that the store refuses before it
	// touches the database. [InvalidError] has the details.
	ErrInvalid error = engine.NewFault("outbox: invalid input")

	// ErrTooLarge is returned for a value that the database cannot hold.
	// Nothing of the call is stored.
	ErrTooLarge error = engine.ErrTooLarge

	// ErrBusy is returned when others kept the database locked for longer
	// than Options.BusyTimeout. Nothing is stored; the call may be repeated.
	ErrBusy error = engine.ErrBusy

	// ErrCommitUnknown is returned when the answer to a COMMIT was lost: the
	// call is stored whole or not at all. Repeating it is safe: a transition
	// that was stored succeeds again, and Append reports the keys it finds.
	ErrCommitUnknown error = engine.ErrCommitUnknown

	// ErrRolledBack is returned when a transaction ended before its COMMIT: a
	// statement in it ended it, or a server undid it because it was open for
	// long while another waited. Nothing is stored; the call may be repeated.
	ErrRolledBack error = engine.ErrRolledBack

	// ErrUnavailable is returned when a server cannot be reached or has dropped
	// the connection, a file cannot be opened, read or written, or the driver of
	// a database that Open opened has panicked, which is logged. Nothing is
	// stored; the call may be repeated.
	ErrUnavailable error = engine.ErrUnavailable

	// ErrFull is returned when the disk, or the database if it has a limit, has
	// no room left. Nothing is stored; the call may be repeated once there is.
	ErrFull error = engine.ErrFull

	// ErrReadOnly is returned by calls that write to a database that cannot be
	// written, because of its file's permissions or its data source name.
	ErrReadOnly error = engine.ErrReadOnly

	// ErrCorrupt is returned when the file is damaged or no database at all.
	// The call has stored nothing.
	ErrCorrupt error = engine.ErrCorrupt

	// ErrReferenced is returned by Purge for rows that it kept because a foreign
	// key of another table refers to them. [ReferencedError] has the keys.
	ErrReferenced error = engine.NewFault("outbox: another table refers to the row")

	// ErrClosed is returned after Close by every call that needs the database,
	// also if the program has closed the database that it gave to New.
	ErrClosed error = engine.ErrClosed

	// ErrInUpdate is returned by a call that would wait for the transaction
	// it is made in: a method without a Tx, called inside Update with the
	// context of its function.
	ErrInUpdate error = engine.ErrInUpdate

	// ErrForeignTable is returned by Open and Migrate when the database has a
	// table, view or index named as one of the store's but of another shape, or
	// a legacy table that cannot be migrated; the text says which and why.
	// Nothing was changed.
	ErrForeignTable error = engine.NewFault("outbox: table belongs to somebody else")

	// ErrNewerSchema is returned by Open and Migrate for a database that a
	// newer version of this package has migrated. Nothing was changed.
	ErrNewerSchema error = engine.NewFault("outbox: schema is newer than this package")
)

// InvalidError says which input was refused and why. It is an [ErrInvalid].
type InvalidError struct {
	Index       int    // position in the call's list of rows, refs or keys; -1 for other arguments
	DispatchKey string // key of that row or ref, as far as it is known
	Field       string // name of the field or argument, such as "Namespace"
	Reason      string // what is wrong with it, such as "holds a NUL"
}

// Error names the argument and says what is wrong with it.
func (e *InvalidError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("outbox: invalid %s: %s", e.Field, e.Reason)
	}
	return fmt.Sprintf("outbox: invalid %s at index %d (%s): %s", e.Field, e.Index, quoteKey(e.DispatchKey), e.Reason)
}

// Unwrap returns ErrInvalid.
func (e *InvalidError) Unwrap() error { return ErrInvalid }

// ClaimLostError names the refs of a call that had lost their rows, each key
// once, in the order given. The other refs of the call were stored. It is an
// [ErrClaimLost].
type ClaimLostError struct {
	DispatchKeys []string
}

// Error names the first few keys.
func (e *ClaimLostError) Error() string { return "outbox: claim lost: " + quoteKeys(e.DispatchKeys) }

// Unwrap returns ErrClaimLost.
func (e *ClaimLostError) Unwrap() error { return ErrClaimLost }

// ReferencedError names rows that were not purged since another table refers to
// them, oldest first. It is an [ErrReferenced].
type ReferencedError struct {
	DispatchKeys []string
}

// Error names the first few keys.
func (e *ReferencedError) Error() string {
	return "outbox: not purged, as another table refers to them: " + quoteKeys(e.DispatchKeys)
}

// Unwrap returns ErrReferenced.
func (e *ReferencedError) Unwrap() error { return ErrReferenced }

// quoteKeys names the first few of many keys.
func quoteKeys(keys []string) string {
	const shown = 5
	var list strings.Builder
	for i, key := range keys {
		if i == shown {
			fmt.Fprintf(&list, " and %d more", len(keys)-shown)
			break
		}
		if i > 0 {
			list.WriteString(", ")
		}
		list.WriteString(quoteKey(key))
	}
	return list.String()
}

// quoteKey keeps a long key from flooding a log.
func quoteKey(key string) string {
	const shown = 100
	if len(key) > shown {
		return strconv.Quote(key[:shown]) + "…"
	}
	return strconv.Quote(key)
}
