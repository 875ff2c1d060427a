package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"
)

// This file and update.go are the only ones that know BEGIN, COMMIT and the
// health of a connection, and this one alone knows the error texts of drivers.
// They come as plain strings, without codes or types, so they are told apart
// by what SQLite and its server say in them, which is the same in every driver.

// Tx runs statements in one transaction. *sql.Tx and *sql.Conn meet it, and so
// does what Update gives to its function.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// write runs fn in one IMMEDIATE transaction and commits it: if write returns
// an error, nothing is stored, unless it is ErrCommitUnknown. now is the
// instant at which the write lock was held. weight is how many rows it may
// touch, or so.
func write[T any](ctx context.Context, s *Store, op string, weight int, fn func(tx Tx, now string) (T, error)) (T, error) {
	var zero T
	if err := s.admit(ctx); err != nil {
		return zero, err
	}
	if s.deaf() {
		value, err := writeAlone(ctx, s, fn)
		return value, s.explain(ctx, op, err)
	}
	var value T
	j := &job{ctx: ctx, weight: weight, run: func(tx Tx, now string) (err error) {
		value, err = fn(tx, now)
		return err
	}}
	s.runJob(j)
	if j.panicked != nil {
		panic(j.panicked)
	}
	if j.err != nil {
		return zero, s.explain(ctx, op, j.err)
	}
	return value, nil
}

// writeAlone shares its commit with nobody: it may have to leave a driver to
// itself when ctx ends, and nobody else's call must hang on that.
func writeAlone[T any](ctx context.Context, s *Store, fn func(tx Tx, now string) (T, error)) (T, error) {
	var zero T
	if err := s.takeTurn(ctx); err != nil {
		return zero, err
	}
	defer s.turns.pass()
	conn, err := s.begin(ctx)
	if err != nil {
		return zero, err
	}
	return finish(ctx, s, conn, fn)
}

// finish runs fn in the transaction that is open on conn, ends it whatever
// happens, and gives conn back.
func finish[T any](ctx context.Context, s *Store, conn *sql.Conn, fn func(tx Tx, now string) (T, error)) (T, error) {
	var zero T
	ended := false
	defer func() {
		if !ended {
			s.abort(ctx, conn)
		}
	}()
	value, err := await(ctx, s, func() (T, error) {
		now, err := s.instant()
		if err != nil {
			return zero, err
		}
		return fn(conn, now)
	}, func(T, error) {
		// Only now, since fn may have sent more until it returned: behind a
		// ROLLBACK that would be stored at once.
		rollback(conn)
		conn.Close()
	})
	if errors.Is(err, errAbandoned) {
		ended = true
		return zero, err
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return zero, err
	}
	ended = true
	if err := s.commit(ctx, conn); err != nil {
		return zero, err
	}
	return value, nil
}

// done is the value of a call that has none.
type done struct{}

// takeTurn waits until no other goroutine of this Store writes.
func (s *Store) takeTurn(ctx context.Context) error {
	_, err := s.turns.take(ctx, nil)
	return err
}

// instant is the present as it is stored.
func (s *Store) instant() (string, error) {
	now, ok := encodeInstant(s.now())
	if !ok {
		return "", &InvalidError{Index: -1, Field: "Options.Now", Reason: "returned a year outside 0000-9999"}
	}
	return now, nil
}

// deaf reports whether a call of the driver may go on for long after its
// context has ended: waiting for a server, or for a lock if the host has set
// its driver to wait. On a database that Open set up, calls are short.
func (s *Store) deaf() bool { return s.opened == hostDatabase || s.opened == serverDatabase }

// await runs call. If calls may be deaf to ctx, and it ends, call is left to
// itself and await returns ctx's error; orphaned then gets what call returns.
func await[T any](ctx context.Context, s *Store, call func() (T, error), orphaned func(T, error)) (T, error) {
	if !s.deaf() || ctx.Done() == nil {
		return call()
	}
	type outcome struct {
		value T
		err   error
	}
	answer := make(chan outcome, 1)
	go func() {
		value, err := call()
		answer <- outcome{value, err}
	}()
	select {
	case got := <-answer:
		return got.value, got.err
	case <-ctx.Done():
	}
	select {
	case got := <-answer: // both at once
		return got.value, got.err
	default:
	}
	s.widenPool(1)
	go func() {
		got := <-answer
		if orphaned != nil {
			orphaned(got.value, got.err)
		}
		s.widenPool(-1)
	}()
	var zero T
	return zero, fmt.Errorf("%w: %w", ctx.Err(), errAbandoned)
}

// widenPool lets the pool have a connection more for a call that was left to
// itself, since that may never return: a network can swallow an answer, and
// the driver waits for it without end.
func (s *Store) widenPool(by int) {
	if s.opened != serverDatabase {
		return
	}
	s.abandoned.Lock()
	defer s.abandoned.Unlock()
	s.abandoned.calls += by
	s.db.SetMaxOpenConns(maxConnections + s.abandoned.calls)
}

var errAbandoned = errors.New("outbox: the driver was left to itself")

// begin starts a writing transaction on a connection of the pool and hands both over.
func (s *Store) begin(ctx context.Context) (*sql.Conn, error) {
	return await(ctx, s, func() (*sql.Conn, error) {
		return s.connectAndBegin(ctx, "BEGIN IMMEDIATE")
	}, func(conn *sql.Conn, err error) {
		if err == nil { // too late: what was got is given back at once
			rollback(conn)
			conn.Close()
		}
	})
}

// attempts bounds on how many connections of the pool a call is tried; staleAttempts,
// if the server has forgotten them, which may befall all that are idle at once.
const (
	attempts      = 3
	staleAttempts = 100
)

// connectAndBegin mends a connection that the host left inside a transaction,
// and replaces one that a server has forgotten.
func (s *Store) connectAndBegin(ctx context.Context, statement string) (*sql.Conn, error) {
	for tried := 1; ; tried++ {
		conn, err := s.writingConn(ctx)
		if err != nil {
			return nil, err
		}
		err = s.retryBusy(ctx, func() error { return s.beginOn(ctx, conn, statement) })
		switch {
		case err == nil:
			return conn, nil
		case isBusy(err):
			tried = staleAttempts
		default:
			rollback(conn) // which throws it away if it is past mending
		}
		conn.Close()
		if tried >= staleAttempts || tried >= attempts && !isForgotten(err) || ctx.Err() != nil {
			return nil, err
		}
	}
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

// commitGrace is how long a COMMIT on its way is still waited for once its
// context has ended: better a late answer than not to know.
const commitGrace = 100 * time.Millisecond

// commit ends the transaction on conn and gives conn back.
func (s *Store) commit(ctx context.Context, conn *sql.Conn) error {
	patience, stop := outlive(ctx, commitGrace)
	defer stop()
	_, err := await(patience, s, func() (done, error) {
		err := s.sendCommit(ctx, conn)
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

// outlive returns a context that ends grace after ctx does.
func outlive(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		return ctx, func() {}
	}
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(grace, cancel)
		context.AfterFunc(longer, func() { timer.Stop() })
	})
	return longer, func() {
		stop()
		cancel()
	}
}

// abort undoes the transaction on conn and gives conn back. If a statement is
// still under way that was left to itself, this waits for it in its stead.
func (s *Store) abort(ctx context.Context, conn *sql.Conn) {
	_, _ = await(ctx, s, func() (done, error) {
		rollback(conn)
		return done{}, conn.Close()
	}, nil)
}

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
// not let it be ended is thrown away, which ends it too.
func rollback(conn *sql.Conn) {
	_, err := conn.ExecContext(context.Background(), "ROLLBACK")
	if err != nil && !isNoTransaction(err) {
		discard(conn)
	}
}

// discard makes the pool close conn instead of using it again.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}

// writeSchema is write with foreign keys off, so that a table can be dropped
// and made anew without touching the rows that refer to it. They cannot be
// turned off inside a transaction; where the target refuses the PRAGMA, they
// are as the server has them.
func (s *Store) writeSchema(ctx context.Context, op string, fn func(tx Tx, now string) error) error {
	if err := s.takeTurn(ctx); err != nil {
		return err
	}
	defer s.turns.pass()
	_, err := await(ctx, s, func() (done, error) {
		return done{}, s.writeWithoutForeignKeys(ctx, fn)
	}, nil)
	return s.explain(ctx, op, err)
}

func (s *Store) writeWithoutForeignKeys(ctx context.Context, fn func(tx Tx, now string) error) error {
	conn, err := s.connectAndBegin(ctx, "BEGIN IMMEDIATE")
	if err != nil {
		return err
	}
	defer conn.Close()
	rollback(conn)
	var enforced bool
	if err := conn.QueryRowContext(ctx, "PRAGMA foreign_keys").Scan(&enforced); err == nil && enforced {
		setForeignKeys(ctx, conn, "OFF")
		defer setForeignKeys(context.WithoutCancel(ctx), conn, "ON")
	}
	err = s.retryBusy(ctx, func() error { return s.beginOn(ctx, conn, "BEGIN IMMEDIATE") })
	if err != nil {
		return err
	}
	_, err = ownTransaction(ctx, s, conn, func(tx Tx, now string) (done, error) { return done{}, fn(tx, now) })
	return err
}

func setForeignKeys(ctx context.Context, conn *sql.Conn, to string) {
	_ = query(ctx, conn, "PRAGMA foreign_keys = "+to, nil, func(*sql.Rows) error { return nil })
}

// within runs fn inside the caller's transaction and, if fn fails, leaves that
// transaction as it was. On a connection without one it makes one of its own.
func within[T any](ctx context.Context, s *Store, op string, tx Tx, fn func(tx Tx, now string) (T, error)) (T, error) {
	var zero T
	_, inUpdate := tx.(*updateTx)
	if s.closed.Load() && !inUpdate { // a transaction under way ends as it would have
		return zero, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return zero, err
	}
	if err := checkTx(tx); err != nil {
		return zero, err
	}
	if conn, ok := tx.(*sql.Conn); ok {
		err := s.retryBusy(ctx, func() error {
			_, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE")
			return err
		})
		if err == nil {
			value, err := ownTransaction(ctx, s, conn, fn)
			return value, s.explain(ctx, op, err)
		}
		if !isInTransaction(err) {
			return zero, s.explain(ctx, op, err)
		}
	}
	value, err := savepoint(ctx, s, tx, inUpdate, fn)
	if err != nil {
		return zero, s.explain(ctx, op, err)
	}
	return value, nil
}

// ownTransaction runs fn in the transaction that was begun on a connection of
// the host's, and ends it.
func ownTransaction[T any](ctx context.Context, s *Store, conn *sql.Conn, fn func(tx Tx, now string) (T, error)) (T, error) {
	var zero T
	ended := false
	defer func() {
		if !ended {
			rollback(conn)
		}
	}()
	now, err := s.instant()
	if err != nil {
		return zero, err
	}
	value, err := fn(conn, now)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return zero, err
	}
	ended = true
	if err := s.sendCommit(ctx, conn); err != nil {
		return zero, err
	}
	return value, nil
}

// savepoint runs fn in a transaction that goes on after it.
func savepoint[T any](ctx context.Context, s *Store, tx Tx, immediate bool, fn func(tx Tx, now string) (T, error)) (T, error) {
	var zero T
	end := context.WithoutCancel(ctx)
	if !immediate {
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
		// If this fails, there is no transaction left to be mended.
		if _, err := tx.ExecContext(end, "ROLLBACK TO outbox_call"); err == nil {
			_, _ = tx.ExecContext(end, "RELEASE outbox_call")
		}
	}()
	if !immediate {
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
	now, err := s.instant()
	if err != nil {
		return zero, err
	}
	value, err := fn(tx, now)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return zero, err
	}
	if _, err := tx.ExecContext(end, "RELEASE outbox_call"); err != nil {
		return zero, err
	}
	released = true
	return value, nil
}

// wholeTx is the host's transaction, in which a statement that was begun is not
// interrupted when its context ends: SQLite answers an interrupted write by
// undoing the whole transaction, and what the host sends after that would be
// stored at once. (The Tx of Update notices it and refuses.)
type wholeTx struct{ Tx }

func (t wholeTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return t.Tx.ExecContext(context.WithoutCancel(ctx), query, args...)
}

func (t wholeTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return t.Tx.QueryContext(context.WithoutCancel(ctx), query, args...)
}

// checkTx refuses what cannot be a transaction. A *sql.DB has the methods of a
// Tx, but would spread the statements over its connections.
func checkTx(tx Tx) error {
	reason := ""
	switch tx := tx.(type) {
	case nil:
		reason = "is nil"
	case *sql.Tx:
		if tx == nil {
			reason = "is nil"
		}
	case *sql.Conn:
		if tx == nil {
			reason = "is nil"
		}
	case *sql.DB:
		reason = "is a *sql.DB, which is no transaction"
	}
	if reason != "" {
		return &InvalidError{Index: -1, Field: "tx", Reason: reason}
	}
	return nil
}

// read runs fn, which only reads, outside any transaction. fn may be run again.
func read[T any](ctx context.Context, s *Store, op string, fn func(tx Tx) (T, error)) (T, error) {
	return patiently(ctx, s, op, func() (T, error) { return readOnce(ctx, s, fn) })
}

// readOnce runs fn on a connection of the pool, or on others after it if the
// server has forgotten that one: it forgets all that are idle for 10 seconds.
func readOnce[T any](ctx context.Context, s *Store, fn func(tx Tx) (T, error)) (T, error) {
	var zero T
	for tried := 1; ; tried++ {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return zero, err
		}
		value, err := fn(conn)
		if isUnavailable(err) {
			discard(conn)
		}
		conn.Close()
		if err == nil {
			return value, nil
		}
		if !isForgotten(err) || tried == staleAttempts || ctx.Err() != nil {
			return zero, err
		}
	}
}

// look is read for finding out whether there is work to do. Over the host's own
// database it reads in a transaction: on an embedded replica a plain read would
// see the local file alone and might miss the work for ever, while a
// transaction asks the primary. It takes no write lock and writes nothing.
func look[T any](ctx context.Context, s *Store, op string, fn func(tx Tx) (T, error)) (T, error) {
	if s.opened != hostDatabase {
		return read(ctx, s, op, fn)
	}
	return patiently(ctx, s, op, func() (T, error) {
		var zero T
		conn, err := s.connectAndBegin(ctx, "BEGIN")
		if err != nil {
			return zero, err
		}
		defer conn.Close()
		defer rollback(conn)
		value, err := fn(conn)
		if err != nil {
			return zero, err
		}
		_, err = conn.ExecContext(ctx, "COMMIT") // lets a replica catch up
		return value, err
	})
}

// patiently runs attempt, which only reads, until no lock is in its way.
func patiently[T any](ctx context.Context, s *Store, op string, attempt func() (T, error)) (T, error) {
	var zero T
	if err := s.admit(ctx); err != nil {
		return zero, err
	}
	value, err := await(ctx, s, func() (value T, err error) {
		err = s.retryBusy(ctx, func() error {
			value, err = attempt()
			return err
		})
		return value, err
	}, nil)
	if err != nil {
		return zero, s.explain(ctx, op, err)
	}
	return value, nil
}

// retryBusy repeats attempt while others keep the database locked, until
// BusyTimeout is over or ctx ends.
func (s *Store) retryBusy(ctx context.Context, attempt func() error) error {
	return retryBusy(ctx, s.busyTimeout, attempt)
}

func retryBusy(ctx context.Context, timeout time.Duration, attempt func() error) error {
	const shortest, longest = 100 * time.Microsecond, 10 * time.Millisecond
	start := time.Now() // the driver's own wait counts
	for pause := shortest; ; pause = min(2*pause, longest) {
		err := attempt()
		if err == nil || !isBusy(err) || errors.Is(err, ErrBusy) {
			return err
		}
		left := timeout - time.Since(start)
		if left <= 0 {
			return fmt.Errorf("%w: %w", ErrBusy, err)
		}
		// Waiters that started together must not come back together.
		timer := time.NewTimer(min(left, pause/2+rand.N(pause/2)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

// explain gives an error its meaning for a caller. Errors of this package and
// of the context keep theirs.
func (s *Store) explain(ctx context.Context, op string, err error) error {
	switch {
	case err == nil, isOurs(err):
		return err
	case isEnded(err):
		return &opError{op, err}
	case ctx.Err() != nil && isInterrupted(err):
		return &opError{op, fmt.Errorf("%w: %w", ctx.Err(), err)}
	case s.closed.Load():
		return ErrClosed
	}
	return withMeaning(err, &opError{op, err})
}

// withMeaning returns shown behind the error that err means, if it means one.
func withMeaning(err, shown error) error {
	for _, kind := range []struct {
		meaning error
		is      func(error) bool
	}{
		{ErrBusy, isBusy}, {ErrTooLarge, isTooBig}, {ErrRolledBack, isTimedOut}, {ErrUnavailable, isUnavailable},
	} {
		if kind.is(err) {
			return fmt.Errorf("%w: %w", kind.meaning, shown)
		}
	}
	return shown
}

// isEnded reports whether err is a context's.
func isEnded(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func isOurs(err error) bool {
	for _, ours := range []error{
		ErrNotFound, ErrClaimLost, ErrInvalid, ErrTooLarge, ErrBusy, ErrCommitUnknown, ErrRolledBack,
		ErrUnavailable, ErrClosed, ErrInUpdate, ErrForeignTable, ErrNewerSchema,
	} {
		if errors.Is(err, ours) {
			return true
		}
	}
	return false
}

// opError is an error of the driver with the operation it befell. Its text is
// kept short: drivers quote the whole statement in theirs.
type opError struct {
	op  string
	err error
}

func (e *opError) Error() string {
	const shown = 500
	text := e.err.Error()
	if len(text) > shown {
		text = "…" + strings.ToValidUTF8(text[len(text)-shown:], "")
	}
	return "outbox: " + e.op + ": " + text
}

func (e *opError) Unwrap() error { return e.err }

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

func isInterrupted(err error) bool { return says(err, "interrupted") }

// isTimedOut reports whether a server has undone a transaction that took long
// while another waited.
func isTimedOut(err error) bool {
	return says(err, "TRANSACTION_TIMEOUT", "`2:0:Transaction timed-out") // the latter by a replica
}

// isUnavailable reports whether a server cannot be reached, has not answered
// whole, has forgotten the connection, or is not what answers: a gateway does.
func isUnavailable(err error) bool {
	return isForgotten(err) || errors.Is(err, driver.ErrBadConn) ||
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
