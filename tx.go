package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// This file is the only one that knows BEGIN, COMMIT, the health of a
// connection and the error texts of drivers. They come as plain strings,
// without codes or types, so they are told apart by what SQLite itself says in
// them, which is the same in every driver.

// Tx runs statements in one transaction. *sql.Tx and *sql.Conn meet it, and so
// does what Update gives to its function.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// write runs fn in one IMMEDIATE transaction and commits it: if write returns
// an error, nothing is stored, unless it is ErrCommitUnknown. now is the
// instant at which the write lock was held.
func (s *Store) write(ctx context.Context, op string, fn func(tx *sql.Conn, now string) error) error {
	if err := s.admit(ctx); err != nil {
		return err
	}
	if err := s.takeTurn(ctx); err != nil {
		return err
	}
	defer s.endTurn()
	return s.explain(ctx, op, s.transact(ctx, fn))
}

// takeTurn waits until no other goroutine of this Store writes. They are
// served in the order they came: the runtime queues senders to a channel.
func (s *Store) takeTurn(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Store) endTurn() { <-s.turn }

// transact is write for a goroutine whose turn it is.
func (s *Store) transact(ctx context.Context, fn func(tx *sql.Conn, now string) error) error {
	conn, err := s.begin(ctx, "BEGIN IMMEDIATE")
	if err != nil {
		return err
	}
	defer conn.Close()
	return s.finish(ctx, conn, fn)
}

// finish runs fn in the transaction that is open on conn. It ends in here
// whatever fn does: return an error, panic, or end its goroutine.
func (s *Store) finish(ctx context.Context, conn *sql.Conn, fn func(tx *sql.Conn, now string) error) error {
	open := true
	defer func() {
		if open {
			rollback(conn)
		}
	}()
	now, err := s.instant()
	if err != nil {
		return err
	}
	if err := fn(conn, now); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	open = false
	return s.commit(ctx, conn)
}

// writeSchema is write with foreign keys off, so that a table can be dropped
// and made anew without touching the rows that refer to it. They cannot be
// turned off inside a transaction; where the target refuses the PRAGMA, they
// are as the server has them.
func (s *Store) writeSchema(ctx context.Context, op string, fn func(tx *sql.Conn, now string) error) error {
	if err := s.takeTurn(ctx); err != nil {
		return err
	}
	defer s.endTurn()
	conn, err := s.begin(ctx, "BEGIN IMMEDIATE")
	if err != nil {
		return s.explain(ctx, op, err)
	}
	defer conn.Close()
	rollback(conn)

	var enforced bool
	if err := conn.QueryRowContext(ctx, "PRAGMA foreign_keys").Scan(&enforced); err == nil && enforced {
		setForeignKeys(ctx, conn, "OFF")
		defer setForeignKeys(context.WithoutCancel(ctx), conn, "ON")
	}
	err = s.retryBusy(ctx, func() error { return s.beginOn(ctx, conn, "BEGIN IMMEDIATE") })
	if err == nil {
		err = s.finish(ctx, conn, fn)
	}
	return s.explain(ctx, op, err)
}

func setForeignKeys(ctx context.Context, conn *sql.Conn, to string) {
	_ = query(ctx, conn, "PRAGMA foreign_keys = "+to, nil, func(*sql.Rows) error { return nil })
}

// instant is the present as it is stored.
func (s *Store) instant() (string, error) {
	now, ok := encodeInstant(s.now())
	if !ok {
		return "", &InvalidError{Index: -1, Field: "Options.Now", Reason: "returned a year outside 0000-9999"}
	}
	return now, nil
}

// begin starts a transaction on a connection of the pool and hands both over.
// It mends or replaces a connection that the host left inside a transaction or
// that a server has forgotten.
func (s *Store) begin(ctx context.Context, statement string) (*sql.Conn, error) {
	const connections = 3
	for tried := 1; ; tried++ {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		err = s.retryBusy(ctx, func() error {
			return s.beginOn(ctx, conn, statement)
		})
		switch {
		case err == nil:
			return conn, nil
		case errors.Is(err, errAbandoned):
			return nil, ctx.Err() // whoever waits for the driver gives conn back
		case isBusy(err):
			conn.Close()
			return nil, err
		case isInTransaction(err):
			rollback(conn)
		default:
			discard(conn)
		}
		conn.Close()
		if tried == connections || ctx.Err() != nil {
			return nil, err
		}
	}
}

var errAbandoned = errors.New("outbox: driver call was abandoned")

// beginOn sends the BEGIN. On a database that Open configured the driver
// answers at once. Elsewhere it may wait for a lock, deaf to ctx; then it is
// left to wait alone, and what it gets in the end is given back at once.
func (s *Store) beginOn(ctx context.Context, conn *sql.Conn, statement string) error {
	send := func() error {
		_, err := conn.ExecContext(ctx, statement)
		return err
	}
	if s.opened == fileDatabase || s.opened == memoryDatabase || ctx.Done() == nil {
		return send()
	}
	answer := make(chan error, 1)
	go func() { answer <- send() }()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		go func() {
			switch err := <-answer; {
			case err == nil:
				rollback(conn)
			case !isBusy(err):
				discard(conn)
			}
			conn.Close()
		}()
		return errAbandoned
	}
}

// commit ends the transaction on conn. A reader in rollback-journal mode may
// hold the COMMIT up; then it is sent again, or the transaction is undone.
func (s *Store) commit(ctx context.Context, conn *sql.Conn) error {
	err := s.retryBusy(ctx, func() error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), "COMMIT")
		return err
	})
	if err == nil {
		return nil
	}
	if isNoTransaction(err) {
		return errTransactionGone
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

// errTransactionGone stands for a transaction that ended before its COMMIT.
var errTransactionGone = errors.New("outbox: the transaction was ended by a statement in it or by the server; nothing is stored")

// inTransaction asks whether a transaction is open on conn. If none is, it
// leaves none. known is false if the connection gave no clear answer.
func inTransaction(conn *sql.Conn) (still, known bool) {
	_, err := conn.ExecContext(context.Background(), "BEGIN")
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

// savepointed runs fn inside the caller's transaction and, if fn fails, leaves
// that transaction as it was. A lost claim is an outcome, not a failure. On a
// connection without a transaction it makes one of its own.
func (s *Store) savepointed(ctx context.Context, op string, tx Tx, fn func(tx Tx, now string) error) error {
	if s.closed.Load() {
		return ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := checkTx(tx); err != nil {
		return err
	}
	end := context.WithoutCancel(ctx)
	if _, err := tx.ExecContext(ctx, "SAVEPOINT outbox_call"); err != nil {
		return s.explain(ctx, op, err)
	}
	open := true
	undo := func() {
		// If these fail, there is no transaction left to be mended.
		if _, err := tx.ExecContext(end, "ROLLBACK TO outbox_call"); err == nil {
			_, _ = tx.ExecContext(end, "RELEASE outbox_call")
		}
	}
	defer func() {
		if open {
			undo()
		}
	}()

	now, err := s.instant()
	if err != nil {
		return err
	}
	outcome := fn(tx, now)
	if outcome != nil && !errors.Is(outcome, ErrClaimLost) {
		return s.explain(ctx, op, outcome)
	}
	if _, err := tx.ExecContext(end, "RELEASE outbox_call"); err != nil {
		return s.explain(ctx, op, err)
	}
	open = false
	return outcome
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
func (s *Store) read(ctx context.Context, op string, fn func(tx Tx) error) error {
	if err := s.admit(ctx); err != nil {
		return err
	}
	return s.explain(ctx, op, s.retryBusy(ctx, func() error { return fn(s.db) }))
}

// look runs fn, which only reads and finds out whether there is work to do. It
// takes no write lock and writes nothing. Over the host's own database it does
// so in a transaction: on an embedded replica a plain read would see the local
// file alone and might miss the work for ever; a transaction asks the primary.
func (s *Store) look(ctx context.Context, op string, fn func(tx Tx) error) error {
	if s.opened != hostDatabase {
		return s.read(ctx, op, fn)
	}
	if err := s.admit(ctx); err != nil {
		return err
	}
	return s.explain(ctx, op, s.retryBusy(ctx, func() error {
		conn, err := s.begin(ctx, "BEGIN")
		if err != nil {
			return err
		}
		defer conn.Close()
		defer rollback(conn)
		if err := fn(conn); err != nil {
			return err
		}
		_, err = conn.ExecContext(ctx, "COMMIT") // makes a replica catch up
		return err
	}))
}

// retryBusy repeats attempt while others keep the database locked, until
// BusyTimeout is over or ctx ends.
func (s *Store) retryBusy(ctx context.Context, attempt func() error) error {
	return retryBusy(ctx, s.busyTimeout, attempt)
}

func retryBusy(ctx context.Context, timeout time.Duration, attempt func() error) error {
	const shortest, longest = 100 * time.Microsecond, 10 * time.Millisecond
	var start time.Time
	for pause := shortest; ; pause = min(2*pause, longest) {
		err := attempt()
		if err == nil || !isBusy(err) || errors.Is(err, ErrBusy) {
			return err
		}
		if start.IsZero() {
			start = time.Now()
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
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &opError{op, err}
	case ctx.Err() != nil && isInterrupted(err):
		return &opError{op, fmt.Errorf("%w: %w", ctx.Err(), err)}
	case s.closed.Load():
		return ErrClosed
	case isBusy(err):
		return fmt.Errorf("%w: %w", ErrBusy, &opError{op, err})
	case isTooBig(err):
		return fmt.Errorf("%w: %w", ErrTooLarge, &opError{op, err})
	}
	return &opError{op, err}
}

func isOurs(err error) bool {
	for _, ours := range []error{
		ErrNotFound, ErrClaimLost, ErrInvalid, ErrTooLarge, ErrBusy, ErrCommitUnknown,
		ErrClosed, ErrInUpdate, ErrForeignTable, ErrNewerSchema, errTransactionGone,
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
	return says(err, "database is locked") || says(err, "table is locked") ||
		says(err, "schema is locked") || says(err, "SQLITE_BUSY") || says(err, "statements in progress")
}

func isInTransaction(err error) bool {
	return says(err, "cannot start a transaction within a transaction")
}

func isNoTransaction(err error) bool { return says(err, "no transaction is active") }

func isTooBig(err error) bool {
	return says(err, "string or blob too big") || says(err, "SQLITE_TOOBIG")
}

func isFull(err error) bool { return says(err, "database or disk is full") }

func isInterrupted(err error) bool { return says(err, "interrupted") }

func says(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }
