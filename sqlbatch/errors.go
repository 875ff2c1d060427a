package sqlbatch

import "errors"

// Error is met by the errors of a driver whose connections are a [Conn], those
// of ExecContext, QueryContext, BeginTx, Commit and so on included, so that no
// text need be understood. [Code], [NothingDone] and [Lost] find it in a chain.
//
// An error for which neither NothingDone nor Lost is true is the server's answer
// to a statement that it tried: that statement failed, and what came before it
// stands.
type Error interface {
	error

	// Code is the server's code, such as SQLITE_CONSTRAINT, or one of the codes
	// below.
	Code() string

	// NothingDone reports whether certainly nothing of the request was
	// executed, nor will be.
	NothingDone() bool

	// Lost reports whether nobody knows what became of the request: its answer
	// was lost or cannot be read. It may have been executed, whole or in part,
	// and may be still.
	Lost() bool
}

// Codes of a server that a caller may want to tell apart.
const (
	// CodeBusy is for a lock that others hold. The statement did nothing.
	CodeBusy = "SQLITE_BUSY"

	// CodeConstraint is for a UNIQUE, NOT NULL, CHECK or foreign key
	// constraint, and for RAISE in a trigger.
	CodeConstraint = "SQLITE_CONSTRAINT"

	// CodeTransactionTimeout is for a transaction that the server rolled back
	// because it was open for long while another waited for the lock.
	CodeTransactionTimeout = "TRANSACTION_TIMEOUT"

	// CodeArgsInvalid is for arguments that do not match the statement, or that
	// the driver or the server does not take.
	CodeArgsInvalid = "ARGS_INVALID"

	// CodeResponseTooLarge is for rows that are more than the server returns at
	// once. The statement may have been executed.
	CodeResponseTooLarge = "RESPONSE_TOO_LARGE"

	// CodeStreamExpired is for a session with the server that was idle for too
	// long inside a transaction, which is rolled back.
	CodeStreamExpired = "STREAM_EXPIRED"
)

// Codes that the driver gives where the server has none.
const (
	// CodeStreamUnknown is for a session that the server has forgotten inside a
	// transaction, for instance because it was restarted.
	CodeStreamUnknown = "STREAM_UNKNOWN"

	// CodeStreamReused is for a request that the server had seen before:
	// somebody on the way sent it twice.
	CodeStreamReused = "STREAM_REUSED"

	// CodeNoTransaction is for a statement or a COMMIT in a transaction that
	// has ended before, by an error that was returned then.
	CodeNoTransaction = "NO_TRANSACTION"

	// CodeConnectionFailed is for a server that cannot be reached, or that was
	// gone before the request was.
	CodeConnectionFailed = "CONNECTION_FAILED"

	// CodeContextDone is for a context that ended. The error wraps the context's.
	CodeContextDone = "CONTEXT_DONE"

	// CodeAnswerLost is for a request without an answer, or with half of one.
	CodeAnswerLost = "ANSWER_LOST"

	// CodeAnswerInvalid is for an answer that does not follow the protocol.
	CodeAnswerInvalid = "ANSWER_INVALID"

	// CodeAnswerTooLarge is for an answer longer than the driver reads.
	CodeAnswerTooLarge = "ANSWER_TOO_LARGE"

	// CodeRefused is for a request that the server, or a gateway, refused
	// before looking into it, with a status such as 401, 403 or 429.
	CodeRefused = "REQUEST_REFUSED"

	// CodeRedirected is for a redirect, which is not followed.
	CodeRedirected = "REDIRECTED"

	// CodeServerFailed is for a status that says that something went wrong
	// behind it, such as 500 or 502.
	CodeServerFailed = "SERVER_FAILED"

	// CodeUnsupported is for what the driver or the server cannot do.
	CodeUnsupported = "UNSUPPORTED"
)

// Code returns the code of the Error in a chain of errors, or "" if there is none.
func Code(err error) string {
	var e Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return ""
}

// NothingDone reports whether there is an Error in the chain that says that
// certainly nothing of the request was executed.
func NothingDone(err error) bool {
	var e Error
	return errors.As(err, &e) && e.NothingDone()
}

// Lost reports whether there is an Error in the chain that says that nobody
// knows what became of the request.
func Lost(err error) bool {
	var e Error
	return errors.As(err, &e) && e.Lost()
}
