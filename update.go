package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Update runs fn in one IMMEDIATE transaction, for the caller's own statements
// and those of the …Tx methods alike, and commits it if fn returns nil. If fn
// returns an error, panics or ends its goroutine, or ctx ends before the
// COMMIT, nothing is stored; fn's error and panic reach the caller unchanged,
// but for an error of the database that has a meaning, such as ErrBusy or
// ErrUnavailable, and is wrapped in that.
//
// Nothing is stored either if a statement ended the transaction (ON CONFLICT
// ROLLBACK, RAISE(ROLLBACK), a server's time limit), even if fn ignored its
// error: what fn sends after that is refused, for outside the transaction it
// would be stored at once. To be sure of it, tx asks the connection before every
// statement after the first that failed or the first query, and those of the …Tx
// methods are queries; on a server that costs a request each. Statements that
// begin or end a transaction are refused, while SAVEPOINT, ROLLBACK TO and RELEASE
// work. Rows that fn leaves open are closed.
//
// fn must use tx only until it returns, and must not call methods without a Tx.
// With the context it is given they return ErrInUpdate; with another they wait
// for this transaction, as all writes do and, in memory, reads too. fn holds the
// write lock, so it should not wait for anything else either; a server undoes a
// transaction that is open for 5 seconds while another waits.
//
// If the process dies before Update returns, everything is stored or nothing.
func (s *Store) Update(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error {
	if err := s.admit(ctx); err != nil {
		return err
	}
	if err := s.takeTurn(ctx); err != nil {
		return err
	}
	defer s.turns.pass()

	conn, err := s.begin(ctx)
	if err != nil {
		return s.explain(ctx, "update", err)
	}
	tx := &updateTx{store: s, conn: conn}
	ended, panicked := false, true
	defer func() {
		if !ended { // also if fn panics or ends its goroutine
			s.abort(ctx, conn, panicked)
		}
	}()
	failed, unfinished := tx.run(ctx, fn)
	panicked = false
	switch {
	case failed == nil:
	case isOurs(failed), isEnded(failed):
		return failed
	default:
		return withMeaning(failed, failed)
	}
	if unfinished != nil {
		return s.explain(ctx, "update", unfinished)
	}
	if err := ctx.Err(); err != nil {
		return s.explain(ctx, "update", err)
	}
	ended = true
	err = s.commit(ctx, conn)
	if tx.staged.Load() {
		s.staged()
	}
	return s.explain(ctx, "update", err)
}

// updateKey marks the context of a function inside Update on this database.
type updateKey struct{ db *sql.DB }

func insideUpdate(ctx context.Context, db *sql.DB) bool {
	return ctx.Value(updateKey{db}) != nil
}

// updateTx is the Tx of an Update: it lets statements through only while the
// transaction is open.
type updateTx struct {
	store  *Store
	conn   *sql.Conn
	staged atomic.Bool // there may be rows to claim once it is committed

	mu      sync.Mutex // held while a statement runs
	unsure  bool       // a statement failed, or a query may fail later where this cannot see it
	failure error      // of the first statement that failed
	gone    error      // why nothing is let through any more
	rows    []*sql.Rows
	cancels []context.CancelFunc // of single rows, which cannot be closed otherwise
}

// run calls fn and finishes, whatever fn does.
func (t *updateTx) run(ctx context.Context, fn func(ctx context.Context, tx Tx) error) (failed, unfinished error) {
	defer func() { unfinished = t.finish(ctx) }()
	return fn(context.WithValue(ctx, updateKey{t.store.db}, true), t), nil
}

func (t *updateTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.admit(ctx, query); err != nil {
		return nil, err
	}
	result, err := await(ctx, t.store, func() (sql.Result, error) {
		return t.conn.ExecContext(ctx, query, args...)
	}, nil)
	t.note(err)
	return result, err
}

func (t *updateTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.admit(ctx, query); err != nil {
		return nil, err
	}
	rows, err := await(ctx, t.store, func() (*sql.Rows, error) {
		return t.conn.QueryContext(ctx, query, args...)
	}, func(rows *sql.Rows, err error) {
		if err == nil {
			rows.Close()
		}
	})
	t.note(err)
	t.unsure = true
	if err == nil {
		t.rows = append(t.rows, rows)
	}
	return rows, err
}

func (t *updateTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.admit(ctx, query); err != nil {
		return t.refuse(ctx, query, err)
	}
	rowCtx, cancel := context.WithCancel(ctx)
	t.cancels = append(t.cancels, cancel)
	row, err := await(ctx, t.store, func() (*sql.Row, error) {
		row := t.conn.QueryRowContext(rowCtx, query, args...)
		return row, row.Err()
	}, nil)
	t.note(err)
	t.unsure = true
	if row == nil {
		return t.refuse(ctx, query, err)
	}
	return row
}

// refuse returns a Row with an error. Only database/sql can make one, and it does
// so with the error of a context that is done.
func (t *updateTx) refuse(ctx context.Context, query string, err error) *sql.Row {
	return t.store.db.QueryRowContext(refusedContext{ctx, err}, query)
}

// admit reports why a statement may not run, if so.
func (t *updateTx) admit(ctx context.Context, query string) error {
	if t.gone != nil {
		return t.gone
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if endsTransaction(query) {
		return &InvalidError{Index: -1, Field: "query", Reason: "Update alone begins and ends its transaction"}
	}
	if !t.unsure {
		return nil
	}
	still, err := await(ctx, t.store, func() (bool, error) {
		still, _ := inTransaction(t.conn)
		return still, nil
	}, nil)
	if err == nil && !still {
		err = ErrRolledBack
		if t.failure != nil {
			err = fmt.Errorf("%w: %w", err, t.failure)
		}
	}
	t.gone = err
	return err
}

// giveUp lets nothing more through, and nothing be committed.
func (t *updateTx) giveUp(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone == nil {
		t.gone = fmt.Errorf("%w: %w", ErrRolledBack, err)
	}
}

// note remembers a statement that failed. One that was left to itself may have
// done its work or not, so nothing may follow it.
func (t *updateTx) note(err error) {
	if err == nil {
		return
	}
	t.unsure = true
	if t.failure == nil {
		t.failure = err
	}
	if errors.Is(err, errAbandoned) {
		t.gone = err
	}
}

// finish closes what the function left open, so that the transaction can end,
// and lets nothing more through. It returns why the transaction must not be
// committed, if so.
func (t *updateTx) finish(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	gone, rows := t.gone, t.rows
	t.gone, t.rows = sql.ErrTxDone, nil
	for _, cancel := range t.cancels {
		cancel()
	}
	t.cancels = nil
	_, err := await(ctx, t.store, func() (done, error) {
		for _, open := range rows {
			open.Close()
		}
		return done{}, nil
	}, nil)
	return cmp.Or(gone, err)
}

// refusedContext is a context that has ended with an error of our own.
type refusedContext struct {
	context.Context
	err error
}

var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (refusedContext) Done() <-chan struct{} { return closedChannel }
func (c refusedContext) Err() error          { return c.err }
