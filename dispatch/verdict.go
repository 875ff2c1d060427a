package dispatch

import "fmt"

// verdict is what an error of a handler asks for.
type verdict struct {
	err       error       // as returned, or a stand-in if it is broken
	accepted  bool        // Accepted is in its tree
	permanent bool        // a PermanentError is
	retry     *RetryError // the first in its tree, if any
}

// judge reads an error as errors.Is and errors.As do, up to where it is broken. The
// methods of verdict.err are safe to call: an error is replaced by a stand-in if one
// of its methods panics, as those of a nil *fs.PathError do, or if unwrapping it does
// not end. A method that does not return holds its row, like a handler that does not
// return.
func judge(err error) verdict {
	if err == nil {
		return verdict{}
	}
	v := verdict{err: err}
	var text string
	var unreadable, broken error
	catch("", &unreadable, func() error { text = err.Error(); return nil })
	nodes := 0
	catch("", &broken, func() error { return v.visit(err, &nodes) })
	switch {
	case unreadable != nil:
		v.substitute(fmt.Sprintf("dispatch: an error of type %T whose Error method panicked: %s", err, describe(unreadable)))
	case broken != nil:
		v.substitute(fmt.Sprintf("%s (dispatch: an error of type %T that cannot be unwrapped: %s)", text, err, describe(broken)))
	}
	return v
}

// describe tells what can be told of an error that catch stored.
func describe(err error) (text string) {
	var value any = err
	if panicked, ok := err.(*PanicError); ok {
		value = panicked.Value
	}
	var failed error
	catch("", &failed, func() error { text = fmt.Sprint(value); return nil })
	if failed != nil { // fmt recovers from one panic, but not from another within it
		return fmt.Sprintf("%T", value)
	}
	return text
}

// maxErrors is how many errors one tree may have.
const maxErrors = 1000

// visit looks at an error and at those that it wraps.
func (v *verdict) visit(err error, nodes *int) error {
	if *nodes++; *nodes > maxErrors {
		return fmt.Errorf("it wraps more than %d errors", maxErrors)
	}
	v.accepted = v.accepted || err == Accepted
	switch err := err.(type) {
	case *PermanentError:
		v.permanent = v.permanent || err != nil
	case *RetryError:
		v.note(err)
	}
	if err, ok := err.(interface{ Is(error) bool }); ok && !v.accepted {
		v.accepted = err.Is(Accepted)
	}
	if err, ok := err.(interface{ As(any) bool }); ok {
		var (
			permanent *PermanentError
			retry     *RetryError
		)
		v.permanent = v.permanent || err.As(&permanent) && permanent != nil
		if v.retry == nil && err.As(&retry) {
			v.note(retry)
		}
	}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		if inner := err.Unwrap(); inner != nil {
			return v.visit(inner, nodes)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range err.Unwrap() {
			if inner == nil {
				continue
			}
			if problem := v.visit(inner, nodes); problem != nil {
				return problem
			}
		}
	}
	return nil
}

func (v *verdict) note(retry *RetryError) {
	if v.retry == nil {
		v.retry = retry
	}
}

// substitute replaces the error by one with this text. What it asks for stays.
func (v *verdict) substitute(text string) {
	var err error = &brokenError{text: text, kind: fmt.Sprintf("%T", v.err)}
	if v.retry != nil {
		v.retry = &RetryError{After: v.retry.After, Err: err}
		err = v.retry
	}
	if v.permanent {
		err = &PermanentError{Err: err}
	}
	v.err = err
}

// brokenError stands in for an error whose methods cannot be called.
type brokenError struct{ text, kind string }

func (e *brokenError) Error() string { return e.text }

// ErrorType is the type of the error that it stands for, as OpenTelemetry asks.
func (e *brokenError) ErrorType() string { return e.kind }
