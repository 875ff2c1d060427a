package hrana

import (
	"context"
	"database/sql/driver"
	"io"
	"strings"
)

// rows hands out the rows of an answer, which is there as a whole.
type rows struct {
	*result
	next int
}

var _ driver.RowsColumnTypeDatabaseTypeName = (*rows)(nil)

func (r *rows) Columns() []string { return r.columns }

func (r *rows) Close() error { return nil }

func (r *rows) Next(dest []driver.Value) error {
	if r.next == len(r.rows) {
		return io.EOF
	}
	copy(dest, r.rows[r.next])
	r.rows[r.next] = nil
	r.next++
	return nil
}

// ColumnTypeDatabaseTypeName returns the type that a column was declared with.
func (r *rows) ColumnTypeDatabaseTypeName(column int) string {
	return strings.ToUpper(r.types[column])
}

type execResult struct{ lastInsertID, rowsAffected int64 }

func (r execResult) LastInsertId() (int64, error) { return r.lastInsertID, nil }
func (r execResult) RowsAffected() (int64, error) { return r.rowsAffected, nil }

// stmt is a statement of Prepare, which is a text: the server parses it each time.
type stmt struct {
	c     *conn
	query string
}

var (
	_ driver.StmtExecContext  = (*stmt)(nil)
	_ driver.StmtQueryContext = (*stmt)(nil)
)

// PrepareContext sends nothing, so it finds no mistakes.
func (c *conn) PrepareContext(_ context.Context, query string) (driver.Stmt, error) {
	return &stmt{c, query}, nil
}

// Prepare is for a database/sql of long ago.
func (c *conn) Prepare(query string) (driver.Stmt, error) { return &stmt{c, query}, nil }

func (s *stmt) Close() error  { return nil }
func (s *stmt) NumInput() int { return -1 } // the server counts

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.ExecContext(ctx, s.query, args)
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.QueryContext(ctx, s.query, args)
}

// Exec is for a database/sql of long ago.
func (s *stmt) Exec(args []driver.Value) (driver.Result, error) {
	return s.ExecContext(context.Background(), ordinals(args))
}

// Query is for a database/sql of long ago.
func (s *stmt) Query(args []driver.Value) (driver.Rows, error) {
	return s.QueryContext(context.Background(), ordinals(args))
}

func ordinals(args []driver.Value) []driver.NamedValue {
	named := make([]driver.NamedValue, len(args))
	for i, arg := range args {
		named[i] = driver.NamedValue{Ordinal: i + 1, Value: arg}
	}
	return named
}
