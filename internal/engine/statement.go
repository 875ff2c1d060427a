package engine

import (
	"context"
	"database/sql"
)

// Tx runs statements in one transaction. *sql.Tx and *sql.Conn meet it, and so
// does [UpdateTx].
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Row is a row that a statement returned.
type Row interface {
	Scan(dest ...any) error
}

// Statement is one statement of a call, with what becomes of its answer. At most
// one of Row and Changed is set; a statement that returns rows needs Row.
type Statement struct {
	Query string
	Args  []any

	Row     func(Row) error                      // is told each row that it returns
	Changed func(rows, lastInsertID int64) error // is told what it changed; needs Abilities.Counts

	// Means is what it means if the statement fails by [Fail].
	Means error

	// Unless reports whether the statement can be left out. It is asked only
	// where statements run one at a time.
	Unless func() bool

	// Else returns what to run instead when the statement has failed, and so has
	// done nothing; nil: the call fails. It needs Abilities.SecondTry.
	Else func(error) []Statement
}

// Run runs statements one after the other, until one fails or ctx ends.
func Run(ctx context.Context, tx Tx, statements ...Statement) error {
	for i := range statements {
		if err := ctx.Err(); err != nil {
			return err
		}
		statement := &statements[i]
		if statement.Unless != nil && statement.Unless() {
			continue
		}
		err := statement.run(ctx, tx)
		if err != nil && statement.Else != nil {
			if instead := statement.Else(err); instead != nil {
				err = Run(ctx, tx, instead...)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Fail is an SQL expression that fails when it is evaluated.
const Fail = "abs(-9223372036854775808)"

func (s *Statement) run(ctx context.Context, tx Tx) error {
	err := s.send(ctx, tx)
	if s.Means != nil && isFail(err) {
		return s.Means
	}
	return err
}

func (s *Statement) send(ctx context.Context, tx Tx) error {
	if s.Row != nil {
		return Query(ctx, tx, s.Query, s.Args, s.Row)
	}
	result, err := tx.ExecContext(ctx, s.Query, s.Args...)
	if err != nil || s.Changed == nil {
		return err
	}
	changed, err := result.RowsAffected()
	if err != nil {
		return err
	}
	lastInsertID, err := result.LastInsertId()
	if err != nil {
		return err
	}
	return s.Changed(changed, lastInsertID)
}

// Query runs a statement that returns rows and calls scan for each. Errors of
// a statement may show only while its rows are read, or after them.
func Query(ctx context.Context, tx Tx, query string, args []any, scan func(Row) error) error {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Count runs a statement and returns how many rows it returned.
func Count(ctx context.Context, tx Tx, query string, args ...any) (n int, err error) {
	err = Query(ctx, tx, query, args, func(Row) error {
		n++
		return nil
	})
	return n, err
}

// Ints runs a query for one integer a row.
func Ints(ctx context.Context, tx Tx, query string, args ...any) (list []int64, err error) {
	err = Query(ctx, tx, query, args, func(row Row) error {
		var n int64
		if err := row.Scan(&n); err != nil {
			return err
		}
		list = append(list, n)
		return nil
	})
	return list, err
}

// Texts runs a query for one text a row, which it must cast to a blob to keep
// drivers from reading an instant into it.
func Texts(ctx context.Context, tx Tx, query string, args ...any) (list []string, err error) {
	err = Query(ctx, tx, query, args, func(row Row) error {
		var raw sql.RawBytes
		if err := row.Scan(&raw); err != nil {
			return err
		}
		list = append(list, string(raw))
		return nil
	})
	return list, err
}
