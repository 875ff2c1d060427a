package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// This file alone knows how a transaction is begun and ended, when a connection
// is past use, and the texts of drivers' errors. Those come as plain strings,
// without codes or types, so they are told apart by what SQLite and its server
// say in them, which is the same in every driver.

// Tx runs statements in one transaction. *sql.Tx and *sql.Conn meet it, and so
// does what Update gives to its function.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// How a transaction begins: one that writes takes the lock at once, one that
// only reads takes none.
const (
	immediate = "BEGIN IMMEDIATE"
	deferred  = "BEGIN"
)

// On how many connections of the pool a call is tried.
const (
	attempts      = 3
	staleAttempts = 100 // if a server has forgotten them, which may befall all that are idle at once
)

// begin starts a writing transaction on a connection of the pool and hands both over.
func (s *Store) begin(ctx context.Context) (*sql.Conn, error) {
	return await(ctx, s, func() (*sql.Conn, error) {
		return s.connectAndBegin(ctx, immediate)
	}, func(conn *sql.Conn, err error) {
		if err == nil { // too late: what was got is given back at once
			rollback(conn)
			conn.Close()
		}
	})
}

// connectAndBegin mends a connection that the host left inside a transaction,
// and replaces one that a server has forgotten.
func (s *Store) connectAndBegin(ctx context.Context, statement string) (*sql.Conn, error) {
	for tried := 1; ; tried++ {
		conn, err := s.writingConn(ctx)
		if err != nil {
			return nil, err
		}
		if err = s.beginOrClose(ctx, conn, statement); err == nil {
			return conn, nil
		}
		limit := attempts
		if isForgotten(err) {
			limit = staleAttempts
		}
		if isBusy(err) || tried >= limit || ctx.Err() != nil {
			return nil, err
		}
	}
}

// beginOrClose gives conn back unless the transaction has begun.
func (s *Store) beginOrClose(ctx context.Context, conn *sql.Conn, statement string) (err error) {
	begun := false
	defer func() {
		if begun {
			return
		}
		if !isBusy(err) {
			rollback(conn) // which throws it away if it is past mending
		}
		conn.Close()
	}()
	err = s.retryBusy(ctx, func() error { return s.beginOn(ctx, conn, statement) })
	begun = err == nil
	return err
}

func (s *Store) beginOn(ctx context.Context, conn *sql.Conn, statement string) error {
	if err := s.sendBegin(ctx, conn, statement); err != nil || !s.sharedCache {
		return err
	}
	// In a shared cache a reader of another pool can lock a table within this
	// transaction still. Writes that change nothing lock them first.
	for _, table := range []string{"outbox", "outbox_payload"} {
		if _, err := conn.ExecContext(ctx, "DELETE FROM "+table+" WHERE FALSE"); isBusy(err) {
			rollback(conn)
			return err
		}
	}
	return nil
}

// sendBegin sends the statement that begins a transaction.
func (s *Store) sendBegin(ctx context.Context, conn *sql.Conn, statement string) error {
	start := time.Now()
	_, err := conn.ExecContext(ctx, statement)
	if err == nil && s.opened == serverDatabase {
		s.crowd.noteBegin(time.Since(start))
	}
	return err
}

// commitGrace is how long a COMMIT on its way is still waited for once its
// context has ended: better a late answer than not to know.
const commitGrace = 100 * time.Millisecond

// commit ends the transaction on conn and gives conn back.
func (s *Store) commit(ctx context.Context, conn *sql.Conn) error {
	patience, stop := outlive(ctx, commitGrace)
	defer stop()
	_, err := await(patience, s, func() (done, error) {
		answered := false
		defer func() {
			if !answered { // the driver panicked
				discard(conn)
				conn.Close()
			}
		}()
		err := s.sendCommit(ctx, conn)
		answered = true
		if err == nil {
			s.giveBack(conn)
		} else {
			conn.Close()
		}
		return done{}, err
	}, nil)
	if errors.Is(err, errAbandoned) {
		return fmt.Errorf("%w: %w", ErrCommitUnknown, ctx.Err())
	}
	return err
}

// sendCommit commits or undoes the transaction. A reader in rollback-journal
// mode may hold the COMMIT up; then it is sent again.
func (s *Store) sendCommit(ctx context.Context, conn *sql.Conn) error {
	err := s.retryBusy(ctx, func() error {
		return s.execCommit(ctx, conn)
	})
	if err == nil {
		return nil
	}
	switch {
	case isNoTransaction(err):
		return ErrRolledBack
	case isTimedOut(err), isExpired(err):
		discard(conn)
		return fmt.Errorf("%w: %w", ErrRolledBack, err)
	case isUnsent(err):
		discard(conn)
		return err
	}
	if still, known := inTransaction(conn); still {
		rollback(conn)
		return err
	} else if known && isFull(err) {
		return err // SQLite has undone it
	}
	discard(conn)
	return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
}

// execCommit sends COMMIT, whatever becomes of ctx.
func (s *Store) execCommit(ctx context.Context, conn *sql.Conn) error {
	ctx = context.WithoutCancel(ctx)
	if s.opened == serverDatabase && s.crowd.present() {
		return query(ctx, conn, "COMMIT", nil, func(*sql.Rows) error { return nil })
	}
	start := time.Now()
	_, err := conn.ExecContext(ctx, "COMMIT")
	if err == nil && s.opened == serverDatabase {
		s.crowd.noteCommit(time.Since(start))
	}
	return err
}

// abort undoes the transaction on conn and gives conn back. If a statement is
// still under way that was left to itself, this waits for it in its stead.
func (s *Store) abort(ctx context.Context, conn *sql.Conn, panicked bool) {
	_, _ = await(ctx, s, func() (done, error) {
		defer closeConn(conn, panicked)
		rollback(conn)
		return done{}, nil
	}, nil)
}

// using runs fn, which uses conn, and gives conn back.
func using[T any](conn *sql.Conn, fn func() (T, error)) (T, error) {
	panicked := true
	defer func() { closeConn(conn, panicked) }()
	value, err := fn()
	panicked = false
	return value, err
}

// closeConn gives conn back. After a panic nobody waits for that: if it was the
// driver's, inside a query, database/sql keeps conn locked for good. (Open sees
// to it that a driver does not panic, New cannot.)
func closeConn(conn *sql.Conn, panicked bool) {
	if panicked {
		go conn.Close()
		return
	}
	conn.Close()
}

// savepoint runs fn in a transaction that goes on after it, and that holds the
// write lock already or may be a deferred one of the host's. What a fn that
// failed has done is undone, or else the error is errNotUndone.
func savepoint[T any](ctx context.Context, s *Store, tx Tx, locked bool, fn func(tx Tx, now string) (T, error)) (value T, err error) {
	var zero T
	end := context.WithoutCancel(ctx)
	if !locked {
		tx = wholeTx{tx}
	}
	if _, err := tx.ExecContext(ctx, "SAVEPOINT outbox_call"); err != nil {
		return zero, err
	}
	released := false
	defer func() {
		if released {
			return
		}
		_, undo := tx.ExecContext(end, "ROLLBACK TO outbox_call")
		if undo == nil {
			_, undo = tx.ExecContext(end, "RELEASE outbox_call")
		}
		if undo != nil && err != nil {
			err = fmt.Errorf("%w: %w", errNotUndone, err)
		}
	}()
	if !locked {
		// The host's transaction may be a deferred one. A write that changes
		// nothing takes its lock before the clock is read.
		err := s.retryBusy(ctx, func() error {
			_, err := tx.ExecContext(ctx, "DELETE FROM outbox_schema WHERE FALSE")
			return err
		})
		if err != nil {
			return zero, err
		}
	}
	value, err = inside(ctx, s, tx, fn)
	if err != nil {
		return zero, err
	}
	if _, err := tx.ExecContext(end, "RELEASE outbox_call"); err != nil && !wasReleased(end, tx) {
		return zero, err
	}
	released = true
	return value, nil
}

// wasReleased reports whether the savepoint is gone and the transaction goes on:
// the answer to its RELEASE was lost. If it is still there, this goes back to it.
func wasReleased(ctx context.Context, tx Tx) bool {
	if _, err := tx.ExecContext(ctx, "ROLLBACK TO outbox_call"); !says(err, "no such savepoint") {
		return false
	}
	_, err := tx.ExecContext(ctx, "BEGIN")
	if err == nil { // it had ended
		_, _ = tx.ExecContext(ctx, "ROLLBACK")
	}
	return isInTransaction(err)
}

// errNotUndone is for a call after which the transaction is not as it was before,
// because it has ended or because the driver did not say otherwise.
var errNotUndone = errors.New("the call could not be undone")

// inTransaction asks whether a transaction is open on conn. If none is, it
// leaves none. known is false if the connection gave no clear answer.
func inTransaction(conn *sql.Conn) (still, known bool) {
	_, err := conn.ExecContext(context.Background(), "BEGIN")
	if says(err, "invalid state, started with Txn") {
		// An embedded replica answers from what it remembers; asked again, it
		// passes the question on to the primary.
		_, err = conn.ExecContext(context.Background(), "BEGIN")
	}
	if err == nil {
		rollback(conn)
		return false, true
	}
	return isInTransaction(err), isInTransaction(err)
}

// rollback ends a transaction on conn if there is one. A connection that does
// not let it be ended is thrown away, which ends it too; the error says why.
func rollback(conn *sql.Conn) error {
	ended := false
	defer func() {
		if !ended { // also if the driver panicked
			discard(conn)
		}
	}()
	_, err := conn.ExecContext(context.Background(), "ROLLBACK")
	if isNoTransaction(err) {
		err = nil
	}
	ended = err == nil
	return err
}

// discard makes the pool close conn instead of using it again.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}

// isBusy reports whether err is for a lock that another holds, or for a
// statement on the same connection that is still being closed.
func isBusy(err error) bool {
	return err != nil && (busyText.MatchString(err.Error()) || says(err, "SQLITE_BUSY", "SQL statements in progress"))
}

// busyText is SQLite's own message, not a text of the host's that has it inside.
var busyText = regexp.MustCompile("(^|: |`)database (table |schema )?is locked($|\n|[`:( ])")

func isInTransaction(err error) bool {
	return says(err, "cannot start a transaction within a transaction")
}

func isNoTransaction(err error) bool {
	return says(err, "no transaction is active", "invalid state, started with Init") // the latter by a replica
}

// isTooBig reports whether a value, or on a server and on its replicas a whole
// request or answer, is larger than the database takes.
func isTooBig(err error) bool {
	return says(err, "string or blob too big", "SQLITE_TOOBIG", "ARGS_INVALID",
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

// isUnavailable reports whether a server cannot be reached, has not answered
// whole, has forgotten the connection, or is not what answers: a gateway does;
// whether a file cannot be opened, read or written; or the driver gave up.
func isUnavailable(err error) bool {
	return isForgotten(err) || isBroken(err) || errors.Is(err, driver.ErrBadConn) ||
		says(err, "unable to open database file", "Unable to open connection to local database", "disk I/O error") ||
		says(err, "Hrana: `http error: ", "Hrana: `json error: ", "error reading a body from connection",
			"Hrana: `api error: `status=5", "Hrana: `api error: `status=429",
			"Write delegation: `status: Unavailable", "Write delegation: `status: Unknown, message: \"connection error: ",
			"error writing a body to connection") // these by a replica
}

// isForgotten reports whether a server no longer knows the stream that a
// connection stands for, or no longer the same of it. Nothing was done, and
// nothing ever will be on that connection.
func isForgotten(err error) bool {
	return isExpired(err) || says(err, "Received an invalid baton", "Received a baton that has already been used")
}

// isExpired reports whether a server has closed a stream, and undone its
// transaction, because it was idle.
func isExpired(err error) bool { return says(err, "STREAM_EXPIRED") }

// isUnsent reports whether a request never left for the server.
func isUnsent(err error) bool {
	return says(err, "Hrana: `http error: `error trying to connect: ")
}

// isPoolClosed reports whether Close came first.
func isPoolClosed(err error) bool {
	return errors.Is(err, sql.ErrConnDone) || says(err, "sql: database is closed")
}

// isTaken reports whether a unique constraint or a name stands in the way.
func isTaken(err error) bool { return says(err, "UNIQUE constraint failed", "already exists") }

// isNoSuchVFS reports whether SQLite was built without a file system.
func isNoSuchVFS(err error) bool { return says(err, "no such vfs") }

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
