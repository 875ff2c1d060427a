package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Errors to be told apart with [errors.Is]. What a driver says itself stays in
// the chain behind them.
var (
	// ErrNotFound is returned by Get and State for a key that no row has.
	ErrNotFound = errors.New("outbox: no such row")

	// ErrClaimLost is returned when a fenced Ref no longer holds its row:
	// another claim took it, it was reopened, settled otherwise or purged.
	// [ClaimLostError] has the keys.
	ErrClaimLost = errors.New("outbox: claim lost")

	// ErrInvalid is returned for input that the store refuses before it
	// touches the database. [InvalidError] has the details.
	ErrInvalid = errors.New("outbox: invalid input")

	// ErrTooLarge is returned for a value that the database cannot hold.
	// Nothing of the call is stored.
	ErrTooLarge = errors.New("outbox: too large")

	// ErrBusy is returned when others kept the database locked for longer
	// than Options.BusyTimeout. Nothing is stored; the call may be repeated.
	ErrBusy = errors.New("outbox: database is busy")

	// ErrCommitUnknown is returned when the answer to a COMMIT was lost: the
	// call is stored whole or not at all. Repeating it is safe: a transition
	// that was stored succeeds again, and Append reports the keys it finds.
	ErrCommitUnknown = errors.New("outbox: unknown whether the transaction was committed")

	// ErrRolledBack is returned when a transaction ended before its COMMIT: a
	// statement in it ended it, or a server undid it because it was open for
	// long while another waited. Nothing is stored; the call may be repeated.
	ErrRolledBack = errors.New("outbox: the transaction was rolled back")

	// ErrUnavailable is returned when a server cannot be reached or has dropped
	// the connection, a file cannot be opened, read or written, or the driver of
	// a database that Open opened has panicked, which is logged. Nothing is
	// stored; the call may be repeated.
	ErrUnavailable = errors.New("outbox: database is unavailable")

	// ErrFull is returned when the disk, or the database if it has a limit, has
	// no room left. Nothing is stored; the call may be repeated once there is.
	ErrFull = errors.New("outbox: database is full")

	// ErrReadOnly is returned by calls that write to a database that cannot be
	// written, because of its file's permissions or its data source name.
	ErrReadOnly = errors.New("outbox: database is read-only")

	// ErrCorrupt is returned when the file is damaged or no database at all.
	// The call has stored nothing.
	ErrCorrupt = errors.New("outbox: database is corrupt")

	// ErrClosed is returned after Close by every call that needs the database.
	ErrClosed = errors.New("outbox: store is closed")

	// ErrInUpdate is returned by a call that would wait for the transaction
	// it is made in: a method without a Tx, called inside Update with the
	// context of its function.
	ErrInUpdate = errors.New("outbox: call inside Update needs the Tx form")

	// ErrForeignTable is returned by Open and Migrate when the database has a
	// table, view or index named as one of the store's but of another shape, or
	// a legacy table that cannot be migrated, as the text says.
	// Nothing was changed.
	ErrForeignTable = errors.New("outbox: table belongs to somebody else")

	// ErrNewerSchema is returned by Open and Migrate for a database that a
	// newer version of this package has migrated. Nothing was changed.
	ErrNewerSchema = errors.New("outbox: schema is newer than this package")
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
func (e *ClaimLostError) Error() string {
	const shown = 5
	var list strings.Builder
	for i, key := range e.DispatchKeys {
		if i == shown {
			fmt.Fprintf(&list, " and %d more", len(e.DispatchKeys)-shown)
			break
		}
		if i > 0 {
			list.WriteString(", ")
		}
		list.WriteString(quoteKey(key))
	}
	return "outbox: claim lost: " + list.String()
}

// Unwrap returns ErrClaimLost.
func (e *ClaimLostError) Unwrap() error { return ErrClaimLost }

// quoteKey keeps a long key from flooding a log.
func quoteKey(key string) string {
	const shown = 100
	if len(key) > shown {
		return strconv.Quote(key[:shown]) + "…"
	}
	return strconv.Quote(key)
}

// explain gives an error its meaning for a caller. Errors of this package and
// of the context keep theirs.
func (s *Store) explain(ctx context.Context, op string, err error) error {
	switch {
	case err == nil, isOurs(err):
		return err
	case isEnded(err):
		return &opError{op, err}
	case ctx.Err() != nil && isInterrupted(err):
		return &opError{op, fmt.Errorf("%w: %w", ctx.Err(), err)}
	case s.closed.Load() && isPoolClosed(err):
		return ErrClosed
	}
	return withMeaning(err, &opError{op, err})
}

// withMeaning returns shown behind the error that err means, if it means one.
func withMeaning(err, shown error) error {
	for _, kind := range []struct {
		meaning error
		is      func(error) bool
	}{
		{ErrBusy, isBusy}, {ErrTooLarge, isTooBig}, {ErrRolledBack, isTimedOut}, {ErrUnavailable, isUnavailable},
		{ErrFull, isFull}, {ErrReadOnly, isReadOnly}, {ErrCorrupt, isCorrupt},
	} {
		if kind.is(err) {
			return fmt.Errorf("%w: %w", kind.meaning, shown)
		}
	}
	return shown
}

// isEnded reports whether err is a context's.
func isEnded(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func isOurs(err error) bool {
	for _, ours := range []error{
		ErrNotFound, ErrClaimLost, ErrInvalid, ErrTooLarge, ErrBusy, ErrCommitUnknown, ErrRolledBack,
		ErrUnavailable, ErrFull, ErrReadOnly, ErrCorrupt, ErrClosed, ErrInUpdate, ErrForeignTable, ErrNewerSchema,
	} {
		if errors.Is(err, ours) {
			return true
		}
	}
	return false
}

// opError is an error of the driver with the operation it befell. Its text is
// kept short: drivers quote the whole statement in theirs.
type opError struct {
	op  string
	err error
}

func (e *opError) Error() string {
	const shown = 500
	text := e.err.Error()
	if len(text) > shown {
		text = "…" + strings.ToValidUTF8(text[len(text)-shown:], "")
	}
	return "outbox: " + e.op + ": " + text
}

func (e *opError) Unwrap() error { return e.err }
