package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
)

// Update runs fn in one IMMEDIATE transaction, for the caller's own statements
// and those of the …Tx methods alike, and commits it if fn returns nil. If fn
// returns an error, panics or ends its goroutine, or ctx ends before the
// COMMIT, nothing is stored; fn's error and panic reach the caller unchanged.
//
// Nothing is stored either if a statement ended the transaction (ON CONFLICT
// ROLLBACK, RAISE(ROLLBACK), a server's time limit), even if fn ignored its
// error: what fn sends after that is refused, for outside the transaction it
// would be stored at once. To be sure of it, tx asks the connection before
// each statement that follows a failed one or a query; on a server that costs
// a request. Statements that begin or end a transaction are refused, while
// SAVEPOINT, ROLLBACK TO and RELEASE work. Rows that fn leaves open are closed.
//
// fn must use tx only until it returns, and must not call methods without a Tx
// with the context it is given: they would wait for this very transaction, and
// return ErrInUpdate. It holds the write lock, so it should not wait for
// anything else either; a server undoes a transaction that is open for 5
// seconds while another waits.
//
// If the process dies before Update returns, everything is stored or nothing.
func (s *Store) Update(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error {
	if err := s.admit(ctx); err != nil {
		return err
	}
	if err := s.takeTurn(ctx); err != nil {
		return err
	}
	defer s.endTurn()

	var failure error // fn's own
	err := s.transact(ctx, func(conn *sql.Conn, _ string) error {
		tx := &updateTx{db: s.db, conn: conn}
		defer tx.finish()
		if failure = fn(context.WithValue(ctx, updateKey{s.db}, true), tx); failure != nil {
			return failure
		}
		return tx.finish()
	})
	if failure != nil {
		return failure
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
	db   *sql.DB
	conn *sql.Conn

	mu      sync.Mutex // held while a statement runs
	unsure  bool       // a statement failed, or a query may fail later where this cannot see it
	failure error      // of the first statement that failed
	gone    error      // why nothing is let through any more
	rows    []*sql.Rows
	cancels []context.CancelFunc // of single rows, which cannot be closed otherwise
}

func (t *updateTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.admit(ctx, query); err != nil {
		return nil, err
	}
	result, err := t.conn.ExecContext(ctx, query, args...)
	t.note(err)
	if strings.Contains(strings.TrimRight(query, "; \t\r\n"), ";") {
		t.unsure = true // some drivers run several statements, and a later one may be a COMMIT
	}
	return result, err
}

func (t *updateTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.admit(ctx, query); err != nil {
		return nil, err
	}
	rows, err := t.conn.QueryContext(ctx, query, args...)
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
		// Only database/sql can make a Row; it makes one with this error.
		return t.db.QueryRowContext(refusedContext{ctx, err}, query)
	}
	ctx, cancel := context.WithCancel(ctx)
	t.cancels = append(t.cancels, cancel)
	row := t.conn.QueryRowContext(ctx, query, args...)
	t.note(row.Err())
	t.unsure = true
	return row
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
	if t.unsure {
		if still, _ := inTransaction(t.conn); !still {
			t.gone = errTransactionGone
			if t.failure != nil {
				t.gone = fmt.Errorf("%w: %w", errTransactionGone, t.failure)
			}
			return t.gone
		}
	}
	return nil
}

func (t *updateTx) note(err error) {
	if err != nil {
		t.unsure = true
		if t.failure == nil {
			t.failure = err
		}
	}
}

// finish closes what the function left open, so that the transaction can end,
// and lets nothing more through. It returns why the transaction must not be
// committed, if so.
func (t *updateTx) finish() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, rows := range t.rows {
		rows.Close()
	}
	for _, cancel := range t.cancels {
		cancel()
	}
	t.rows, t.cancels = nil, nil
	err := t.gone
	t.gone = sql.ErrTxDone
	return err
}

// endsTransaction reports whether a statement would begin or end a transaction
// rather than work within one.
func endsTransaction(query string) bool {
	first, rest := cutWord(query)
	switch first {
	case "BEGIN", "COMMIT", "END":
		return true
	case "ROLLBACK": // but ROLLBACK [TRANSACTION] TO a savepoint
		second, rest := cutWord(rest)
		if second == "TRANSACTION" {
			second, _ = cutWord(rest)
		}
		return second != "TO"
	}
	return false
}

// cutWord returns the first word of a statement, in upper case, and what
// follows it. It skips white space, comments and empty statements.
func cutWord(query string) (word, rest string) {
	for {
		query = strings.TrimLeft(query, " \t\r\n\f;\ufeff")
		switch {
		case strings.HasPrefix(query, "--"):
			_, query, _ = strings.Cut(query, "\n")
		case strings.HasPrefix(query, "/*"):
			_, query, _ = strings.Cut(query[2:], "*/")
		default:
			end := strings.IndexFunc(query, func(r rune) bool {
				return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
			})
			if end < 0 {
				end = len(query)
			}
			return strings.ToUpper(query[:end]), query[end:]
		}
	}
}

// refusedContext is a context that has ended with an error of our own.
type refusedContext struct {
	context.Context
	err error
}

var ended = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (refusedContext) Done() <-chan struct{} { return ended }
func (c refusedContext) Err() error          { return c.err }
