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
