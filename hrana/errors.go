package hrana

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"example.com/outbox/sqlbatch"
)

// Error is what every call returns that fails, except for an argument of a type
// that database/sql itself refuses. It is a [sqlbatch.Error]. Nothing in it holds
// the token.
type Error struct {
	code    string
	message string
	status  int
	outcome outcome
	cause   error
}

var _ sqlbatch.Error = (*Error)(nil)

// outcome is what became of the request that an error tells of.
type outcome int

const (
	tried   outcome = iota // the statement was tried, and failed
	nothing                // certainly nothing of the request was executed
	lost                   // nobody knows
)

// Code is the server's code, such as SQLITE_BUSY, or one of those that package
// sqlbatch lists.
func (e *Error) Code() string { return e.code }

// Message is what the server, or the driver, says about it.
func (e *Error) Message() string { return e.message }

// Status is the HTTP status of an answer that was refused or that failed as a
// whole, and otherwise 0.
func (e *Error) Status() int { return e.status }

// NothingDone reports whether certainly nothing of the request was executed, nor
// will be: it did not reach the server whole, or the server refused it before it
// looked into it, or a statement could not be parsed.
func (e *Error) NothingDone() bool { return e.outcome == nothing }

// Lost reports whether nobody knows what became of the request. A COMMIT in it
// may be stored, and may be stored later.
func (e *Error) Lost() bool { return e.outcome == lost }

// Unwrap returns the error behind it, such as that of the context, or nil.
func (e *Error) Unwrap() error { return e.cause }

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("hrana: ")
	b.WriteString(e.code)
	if e.status != 0 {
		fmt.Fprintf(&b, " (HTTP status %d)", e.status)
	}
	if e.message != "" {
		b.WriteString(": ")
		b.WriteString(e.message)
	}
	return b.String()
}

// refuse returns the error of a call that sends nothing.
func refuse(code, format string, args ...any) *Error {
	return &Error{code: code, message: fmt.Sprintf(format, args...), outcome: nothing}
}

// A statement with one of these codes was refused before it was executed, and a
// batch with one of them as a whole.
var refusals = map[string]bool{
	"SQL_PARSE_ERROR":                true,
	"SQL_NO_STATEMENT":               true,
	"SQL_MANY_STATEMENTS":            true,
	sqlbatch.CodeArgsInvalid:         true,
	"ARGS_BOTH_POSITIONAL_AND_NAMED": true,
	sqlbatch.CodeTransactionTimeout:  true,
	"TRANSACTION_BUSY":               true,
	"BLOCKED":                        true,
	"SQL_STORE_NOT_FOUND":            true,
	sqlbatch.CodeStreamExpired:       true,
}

// statementError completes the error of a single statement.
func statementError(e *Error) *Error {
	switch {
	case refusals[e.code]:
		e.outcome = nothing
	case e.code == sqlbatch.CodeResponseTooLarge:
		e.outcome = lost // the server has stopped somewhere inside it
	}
	return e
}

// batchError completes the error of a batch as a whole. Unless it is known to
// have been refused, some of its steps may have been executed.
func batchError(e *Error) *Error {
	e.outcome = lost
	if refusals[e.code] {
		e.outcome = nothing
	}
	return e
}

// sendError explains why there is no answer. delivered says whether the whole
// request may have gone out.
func sendError(ctx context.Context, err error, delivered bool) *Error {
	var inURL *url.Error // it would repeat the address
	if errors.As(err, &inURL) {
		err = inURL.Err
	}
	e := &Error{code: sqlbatch.CodeConnectionFailed, message: err.Error(), outcome: nothing, cause: err}
	if delivered {
		e.code, e.outcome = sqlbatch.CodeAnswerLost, lost
	}
	if ctx.Err() != nil {
		e.code, e.cause = sqlbatch.CodeContextDone, ctx.Err()
		e.message = e.cause.Error()
	}
	return e
}

// answerError is for an answer of which the body is missing, in part or as a whole.
func answerError(ctx context.Context, err error) *Error { return sendError(ctx, err, true) }

// invalid is for an answer that breaks the protocol.
func invalid(format string, args ...any) *Error {
	return &Error{code: sqlbatch.CodeAnswerInvalid, message: fmt.Sprintf(format, args...), outcome: lost}
}

// statusError explains an answer whose status is not 200. The texts that are told
// apart here are the server's own, and it has no codes for them.
func statusError(status int, contentType string, body []byte) *Error {
	e := &Error{code: sqlbatch.CodeServerFailed, status: status, outcome: lost}
	switch {
	case strings.HasPrefix(contentType, "application/json"):
		e.message, e.code = parseStatusError(body)
		if e.code == "" {
			e.code = sqlbatch.CodeServerFailed
		}
	case strings.HasPrefix(contentType, "text/plain"):
		e.message = clip(body)
	default: // a gateway's page, or nothing
		e.message = http.StatusText(status)
	}
	switch status {
	case http.StatusBadRequest:
		switch {
		case refusals[e.code]:
			e.outcome = nothing
		case strings.Contains(e.message, "invalid baton"):
			e.code, e.outcome = sqlbatch.CodeStreamUnknown, nothing
		case strings.Contains(e.message, "already been used"):
			// Somebody on the way sent it twice. The first may have done everything.
			e.code = sqlbatch.CodeStreamReused
		}
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusLengthRequired, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType, http.StatusMisdirectedRequest, http.StatusUpgradeRequired,
		http.StatusTooManyRequests, http.StatusRequestHeaderFieldsTooLarge:
		e.outcome = nothing
		if e.code == sqlbatch.CodeServerFailed {
			e.code = sqlbatch.CodeRefused
		}
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		e.code, e.outcome = sqlbatch.CodeRedirected, nothing
	}
	return e
}

// clip shortens a text that somebody on the way wrote.
func clip(text []byte) string {
	const longest = 500
	if len(text) > longest {
		text = text[:longest]
	}
	if !utf8.Valid(text) {
		text = []byte(strings.ToValidUTF8(string(text), "\uFFFD"))
	}
	return strings.TrimSpace(string(text))
}
