package dispatch

import (
	"errors"
	"fmt"
	"time"
)

// Accepted, returned by a handler, leaves the row claimed: somebody else has
// taken the work over and will complete it by its key. The claim is no longer
// extended; it goes stale, and the row is dispatched again, unless it is settled
// or extended within Options.Lease. It may be wrapped.
//
//lint:ignore ST1012 it is a result rather than an error, and reads as one where it is returned
var Accepted error = errors.New("dispatch: accepted, to be completed later")

// Causes of a handler's context having ended, beside outbox.ErrClaimLost.
var (
	ErrHandlerTimeout = errors.New("dispatch: the handler took longer than Options.HandlerTimeout")
	ErrShutdown       = errors.New("dispatch: shutting down")
)

// Permanent wraps an error that no retry will mend: the row fails now. It
// returns nil for nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// RetryAfter wraps an error after which the row is to be retried in d, whatever
// the Backoff. The attempt is spent, and the last attempt fails the row all the
// same. A d that is not positive is now. It returns nil for nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryError{after: d, err: err}
}

// RetryNow is RetryAfter without a delay, for a worker that was lost.
func RetryNow(err error) error { return RetryAfter(0, err) }

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

type retryError struct {
	after time.Duration
	err   error
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// PanicError is the error of a handler that panicked, or that ended its
// goroutine with runtime.Goexit, of which Value is nil.
type PanicError struct {
	Value any
	Stack []byte
}

// Error is the value and the stack.
func (e *PanicError) Error() string {
	if e.Value == nil {
		return fmt.Sprintf("dispatch: the handler ended its goroutine\n\n%s", e.Stack)
	}
	return fmt.Sprintf("dispatch: the handler panicked: %v\n\n%s", e.Value, e.Stack)
}

// Unwrap returns the value of the panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
