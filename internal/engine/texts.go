package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"example.com/outbox/sqlbatch"
)

// This file alone knows what drivers say when they fail. Most errors come as
// plain strings, without codes or types, so they are told apart by what SQLite
// and its server say in them, which is the same in every driver. Where an error
// has a code, the code decides.

// isBusy reports whether err is for a lock that another holds, or for a
// statement on the same connection that is still being closed.
func isBusy(err error) bool {
	if code := sqlbatch.Code(err); code != "" {
		return strings.HasPrefix(code, sqlbatch.CodeBusy)
	}
	return err != nil && (busyText.MatchString(err.Error()) || says(err, "SQLITE_BUSY", "SQL statements in progress"))
}

// busyText is SQLite's own message, not a text of the program's that has it inside.
var busyText = regexp.MustCompile("(^|: |`)database (table |schema )?is locked($|\n|[`:( ])")

func isInTransaction(err error) bool {
	return says(err, "cannot start a transaction within a transaction")
}

func isNoTransaction(err error) bool {
	return sqlbatch.Code(err) == sqlbatch.CodeNoTransaction || says(err, "no transaction is active", "invalid state, started with Init") // the latter by a replica
}

// isRemembered reports whether an embedded replica has answered BEGIN from its
// own memory rather than asked the primary.
func isRemembered(err error) bool { return says(err, "invalid state, started with Txn") }

// isTooBig reports whether a value, or on a server and on its replicas a whole
// request or answer, is larger than the database takes.
func isTooBig(err error) bool {
	return hasCode(err, sqlbatch.CodeResponseTooLarge, sqlbatch.CodeAnswerTooLarge) || says(err, "string or blob too big", "SQLITE_TOOBIG", "ARGS_INVALID",
		"message length too large", "exceeds the maximum size", "Response is too large")
}

func isFull(err error) bool { return says(err, "database or disk is full") }

func isReadOnly(err error) bool { return says(err, "attempt to write a readonly database") }

func isCorrupt(err error) bool {
	return says(err, "database disk image is malformed", "file is not a database")
}

func isInterrupted(err error) bool { return says(err, "interrupted") }

// isTimedOut reports whether a server has undone a transaction that took long
// while another waited.
func isTimedOut(err error) bool {
	return says(err, "TRANSACTION_TIMEOUT", "`2:0:Transaction timed-out") // the latter by a replica
}

// isUnavailable reports whether a server cannot be reached, has not answered in
// full, has forgotten the connection, or a gateway answers in its place; whether a
// file cannot be opened, read or written; or the driver gave up.
func isUnavailable(err error) bool {
	return isForgotten(err) || isBroken(err) || errors.Is(err, driver.ErrBadConn) || sqlbatch.Lost(err) ||
		hasCode(err, sqlbatch.CodeConnectionFailed, sqlbatch.CodeRefused, sqlbatch.CodeRedirected, sqlbatch.CodeServerFailed) ||
		says(err, "unable to open database file", "Unable to open connection to local database", "disk I/O error") ||
		says(err, "Hrana: `http error: ", "Hrana: `json error: ", "error reading a body from connection",
			"Hrana: `api error: `status=5", "Hrana: `api error: `status=429",
			"Write delegation: `status: Unavailable", "Write delegation: `status: Unknown, message: \"connection error: ",
			"error writing a body to connection") // these by a replica
}

// isForgotten reports whether a server no longer knows the stream that a
// connection stands for, or knows it in another state. Nothing was done, and
// nothing ever will be on that connection.
func isForgotten(err error) bool {
	return isExpired(err) || sqlbatch.Code(err) == sqlbatch.CodeStreamUnknown || says(err, "Received an invalid baton", "Received a baton that has already been used")
}

// isExpired reports whether a server has closed a stream, and undone its
// transaction, because it was idle.
func isExpired(err error) bool { return says(err, "STREAM_EXPIRED") }

// isUnsent reports whether a request never left for the server.
func isUnsent(err error) bool {
	return sqlbatch.NothingDone(err) || says(err, "Hrana: `http error: `error trying to connect: ")
}

// isPoolClosed reports whether the pool was closed, by Close or by the program.
func isPoolClosed(err error) bool { return says(err, "sql: database is closed") }

// IsTaken reports whether a unique constraint or a name stands in the way.
func IsTaken(err error) bool { return says(err, "UNIQUE constraint failed", "already exists") }

// IsReferenced reports whether a foreign key stands in the way.
func IsReferenced(err error) bool { return says(err, "FOREIGN KEY constraint failed") }

// isNoSuchVFS reports whether SQLite was built without a file system.
func isNoSuchVFS(err error) bool { return says(err, "no such vfs") }

// isNoSuchSavepoint reports whether a savepoint was released already.
func isNoSuchSavepoint(err error) bool { return says(err, "no such savepoint") }

// isFail reports whether a statement failed by Fail.
func isFail(err error) bool { return says(err, "integer overflow") }

// isEnded reports whether err is a context's.
func isEnded(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// isConnClosed reports whether the connection was given back already.
func isConnClosed(err error) bool { return errors.Is(err, sql.ErrConnDone) }

func hasCode(err error, codes ...string) bool {
	code := sqlbatch.Code(err)
	return code != "" && slices.Contains(codes, code)
}

func says(err error, texts ...string) bool {
	if err == nil {
		return false
	}
	message := err.Error()
	for _, text := range texts {
		if strings.Contains(message, text) {
			return true
		}
	}
	return false
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
