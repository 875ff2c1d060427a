package engine

import (
	"context"
	"errors"
	"fmt"
)

// explain gives an error its meaning for a caller. Faults keep theirs, and so
// do the errors of a context.
func (db *DB) explain(ctx context.Context, op string, err error) error {
	var fault *Fault
	switch {
	case err == nil, errors.As(err, &fault):
		return err
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
