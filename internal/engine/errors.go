package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Fault is an error with a meaning for callers. Its text is all there is to it:
// two faults are the same only if they are the same variable.
type Fault struct{ text string }

// NewFault returns a Fault of its own.
func NewFault(text string) *Fault { return &Fault{text} }

func (f *Fault) Error() string { return f.text }

// What may become of a call. The root package exports them under the same names
// and says what each promises.
var (
	ErrTooLarge      = NewFault("outbox: too large")
	ErrBusy          = NewFault("outbox: database is busy")
	ErrCommitUnknown = NewFault("outbox: unknown whether the transaction was committed")
	ErrRolledBack    = NewFault("outbox: the transaction was rolled back")
	ErrUnavailable   = NewFault("outbox: database is unavailable")
	ErrFull          = NewFault("outbox: database is full")
	ErrReadOnly      = NewFault("outbox: database is read-only")
	ErrCorrupt       = NewFault("outbox: database is corrupt")
	ErrClosed        = NewFault("outbox: store is closed")
	ErrInUpdate      = NewFault("outbox: call inside Update needs the Tx form")
)

// explain gives an error its meaning for a caller. Faults keep theirs, and so
// do the errors of a context.
func (db *DB) explain(ctx context.Context, op string, err error) error {
	var fault *Fault
	if err == nil || errors.As(err, &fault) {
		return err
	}
	if db.connector != nil {
		err = db.connector.secret.keptFrom(err)
	}
	switch {
	case isEnded(err):
		return &OpError{op, err}
	case ctx.Err() != nil && isInterrupted(err):
		return &OpError{op, fmt.Errorf("%w: %w", ctx.Err(), err)}
	case isPoolClosed(err), db.closed.Load() && isConnClosed(err):
		return ErrClosed
	}
	return withMeaning(err, &OpError{op, err})
}

// withMeaning returns shown behind the fault that err means, if it means one.
func withMeaning(err, shown error) error {
	for _, kind := range []struct {
		meaning *Fault
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

// OpError is an error of the driver with the operation that met it. Its text is
// kept short: drivers quote the whole statement in theirs.
type OpError struct {
	Op  string
	Err error
}

// Error names the operation and ends with the end of the driver's text, which
// says more than its start.
func (e *OpError) Error() string {
	const shown = 500
	text := e.Err.Error()
	if len(text) > shown {
		text = "…" + strings.ToValidUTF8(text[len(text)-shown:], "")
	}
	return "outbox: " + e.Op + ": " + text
}

// Unwrap returns the driver's error.
func (e *OpError) Unwrap() error { return e.Err }
