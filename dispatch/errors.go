package dispatch

import (
	"errors"
	"fmt"
	"time"
)

// Accepted, returned by a handler, leaves the row claimed: somebody else has
// taken the work over and will complete it by its key. The claim is no longer
// extended. Unless the row is settled or extended within Options.Lease, the claim
// goes stale and the row is dispatched again. Accepted may be wrapped.
//
//lint:ignore ST1012 it is a result rather than an error, and reads as one where it is returned
var Accepted error = errors.New("dispatch: accepted, to be completed later")

// Why a handler's context ended; a third reason is outbox.ErrClaimLost.
var (
	ErrHandlerTimeout = errors.New("dispatch: the handler took longer than Options.HandlerTimeout")
	ErrShutdown       = errors.New("dispatch: shutting down")
)

// Permanent wraps an error that no retry will mend: the row fails at once. It
// returns nil for nil, and otherwise a *PermanentError.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &PermanentError{Err: err}
}

// RetryAfter wraps an error after which the row is retried in d, whatever
// Options.Backoff says; now, if d is not positive. The attempt counts, so the
// last one still fails the row. It returns nil for nil, and otherwise a
// *RetryError.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &RetryError{After: d, Err: err}
}

// RetryNow is RetryAfter without a delay, for a worker that was lost.
func RetryNow(err error) error { return RetryAfter(0, err) }

// PermanentError is what Permanent returns, for errors.As.
type PermanentError struct {
	Err error // why the row fails
}

// Error is the text of Err.
func (e *PermanentError) Error() string {
	if e.Err == nil {
		return "dispatch: no retry will help"
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *PermanentError) Unwrap() error { return e.Err }

// RetryError is what RetryAfter and RetryNow return, for errors.As.
type RetryError struct {
	After time.Duration // how long the row waits; not positive: it is due at once
	Err   error         // why it is retried
}

// Error is the text of Err.
func (e *RetryError) Error() string {
	if e.Err == nil {
		return "dispatch: to be retried"
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *RetryError) Unwrap() error { return e.Err }

// PanicError is the error of a function that panicked or called runtime.Goexit.
type PanicError struct {
	Value    any    // what it panicked with; nil for runtime.Goexit
	Stack    []byte // of its goroutine
	Function string // such as "Options.Terminal"; empty: the handler
}

// Error names the function and gives the value and the stack.
func (e *PanicError) Error() string {
	function := "the handler"
	if e.Function != "" {
		function = e.Function
	}
	if e.Value == nil {
		return fmt.Sprintf("dispatch: %s ended its goroutine\n\n%s", function, e.Stack)
	}
	return fmt.Sprintf("dispatch: %s panicked: %v\n\n%s", function, e.Value, e.Stack)
}

// Unwrap returns the value of the panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
