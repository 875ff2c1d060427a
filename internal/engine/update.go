package engine

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
)

// Update runs fn in an IMMEDIATE transaction of its own, on the caller's
// goroutine, and commits it if fn returns nil. The transaction guards itself, see
// [UpdateTx].
func (db *DB) Update(ctx context.Context, fn func(ctx context.Context, tx *UpdateTx) error) error {
	if err := db.admit(ctx); err != nil {
		return err
	}
	can := db.Can(ctx)
	if _, err := db.line.take(&job{ctx: ctx}); err != nil {
		return err
	}
	defer db.line.pass()

	var (
		tx     *UpdateTx
		failed error // by fn
	)
	err := db.transaction(ctx, can, immediate, func(s *session) (err error) {
		tx = &UpdateTx{session: s}
		failed, err = tx.run(ctx, fn)
		return cmp.Or(failed, err)
	})
	if failed != nil {
		var fault *Fault
		if errors.As(failed, &fault) || isEnded(failed) {
			return failed
		}
		return withMeaning(failed, failed)
	}
	if tx != nil {
		for _, tell := range tx.committed {
			tell()
		}
	}
	return db.explain(ctx, "update", err)
}

// UpdateTx is the Tx of an Update: it lets statements through only while the
// transaction is open. When a statement may have ended it, it makes sure, and
// refuses everything from then on: outside the transaction a statement would be
// stored at once.
type UpdateTx struct {
	session *session

	mu        sync.Mutex // held while a statement runs
	committed []func()   // to be told once the transaction may be committed
	unsure    bool       // a statement failed, or a query may fail later where this cannot see it
	failure   error      // of the first statement that failed
	gone      error      // why nothing is let through any more
}

// OnCommit has tell called when the transaction may have been committed.
func (t *UpdateTx) OnCommit(tell func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.committed = append(t.committed, tell)
}

// run calls fn and finishes, whatever fn does.
func (t *UpdateTx) run(ctx context.Context, fn func(ctx context.Context, tx *UpdateTx) error) (failed, unfinished error) {
	defer func() { unfinished = t.finish() }()
	t.session.within = true
	failed = fn(context.WithValue(ctx, updateKey{t.session.db.pool}, true), t)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.session.left { // or else it belongs to the goroutine that cleans up
		t.session.within = false
	}
	return failed, nil
}

func (t *UpdateTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.admit(ctx, query); err != nil {
		return nil, err
	}
	var result sql.Result
	err := t.session.first(ctx, func(conn *sql.Conn) (err error) {
		result, err = conn.ExecContext(ctx, query, args...)
		return err
	})
	if err != nil {
		t.note(err)
		return nil, err
	}
	return result, nil
}

func (t *UpdateTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.admit(ctx, query); err != nil {
		return nil, err
	}
	t.unsure = true
	var rows *sql.Rows
	err := t.session.first(ctx, func(conn *sql.Conn) (err error) {
		if rows, err = conn.QueryContext(ctx, query, args...); err == nil {
			t.session.close = append(t.session.close, func() { rows.Close() })
		}
		return err
	})
	if err != nil {
		t.note(err)
		return nil, err
	}
	return rows, nil
}

func (t *UpdateTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.admit(ctx, query); err != nil {
		return t.refuse(ctx, query, err)
	}
	t.unsure = true
	var row *sql.Row
	err := t.session.first(ctx, func(conn *sql.Conn) error {
		rowCtx, cancel := context.WithCancel(ctx) // a Row cannot be closed otherwise
		t.session.close = append(t.session.close, cancel)
		row = conn.QueryRowContext(rowCtx, query, args...)
		return row.Err()
	})
	t.note(err)
	if errors.Is(err, errLeft) {
		return t.refuse(ctx, query, err)
	}
	return row
}

// refuse returns a Row with an error. Only database/sql can make one, and it does
// so with the error of a context that is done.
func (t *UpdateTx) refuse(ctx context.Context, query string, err error) *sql.Row {
	return t.session.db.pool.QueryRowContext(refusedContext{ctx, err}, query)
}

// admit reports why a statement may not run, if so.
func (t *UpdateTx) admit(ctx context.Context, query string) error {
	if t.gone != nil {
		return t.gone
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if endsTransaction(query) {
		return t.session.db.config.Invalid("query", "begins or ends a transaction, which Update alone does")
	}
	if !t.unsure || t.session.unbegun {
		return nil
	}
	still := false
	err := t.session.doWithin(ctx, func() error {
		still, _ = inTransaction(t.session.conn)
		return nil
	})
	if err == nil && !still {
		err = ErrRolledBack
		if t.failure != nil {
			err = fmt.Errorf("%w: %w", ErrRolledBack, t.failure)
		}
	}
	t.gone = err
	return err
}

// giveUp lets nothing more through, and nothing be committed.
func (t *UpdateTx) giveUp(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone == nil {
		t.gone = fmt.Errorf("%w: %w", ErrRolledBack, err)
	}
}

// note remembers a statement that failed. One that outlasted its context may
// have done its work or not, so nothing may follow it.
func (t *UpdateTx) note(err error) {
	if err == nil {
		return
	}
	t.unsure = true
	if t.failure == nil {
		t.failure = err
	}
	if errors.Is(err, errLeft) {
		t.gone = err
	}
}

// finish closes what the function left open, so that the transaction can end,
// and lets nothing more through. It returns why the transaction must not be
// committed, if so.
func (t *UpdateTx) finish() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	gone := t.gone
	t.gone = sql.ErrTxDone
	err := t.session.do(func() error {
		t.session.closeOpen()
		return nil
	})
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
