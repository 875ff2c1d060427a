package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"runtime/debug"

	"example.com/outbox/sqlbatch"
)

// After a panic inside a query, database/sql keeps the connection locked for
// good: whoever closes it waits for ever, and the pool never gets its place
// back. Rows that are closed because their context ended are closed on a
// goroutine of database/sql, where a panic ends the program. So on a database
// that Open opened, a panic of the driver becomes an error, and its connection is
// closed rather than used again.

// guardedConn is a driver's connection whose panics are errors.
type guardedConn struct {
	driver.Conn
	witness
	broken error // why no call is made any more; database/sql makes them one at a time

	prepared *prepared // nil: the driver keeps no statements
}

// witness logs the panics of a driver.
type witness struct {
	logger *slog.Logger
	secret secret
}

// recovered turns a panic into an error. It must be deferred itself.
func (w witness) recovered(err *error) {
	if value := recover(); value != nil {
		broken := w.secret.keptFrom(brokenError{fmt.Errorf("the driver panicked: %v", value)})
		w.logger.Error("outbox: the driver panicked", "panic", broken.Error(), "stack", string(debug.Stack()))
		*err = broken
	}
}

// note looks at the outcome of a call that recovered has seen.
func (c *guardedConn) note(err *error) {
	if errors.Is(*err, driver.ErrBadConn) {
		*err = brokenError{errors.New((*err).Error())}
	}
	if isBroken(*err) {
		c.broken = *err
	}
}

func (c *guardedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (result driver.Result, err error) {
	execer, ok := c.Conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip // database/sql prepares the statement instead
	}
	if c.broken != nil {
		return nil, c.broken
	}
	defer c.note(&err)
	defer c.recovered(&err)
	if c.prepared != nil {
		if statement := c.prepared.find(ctx, c.Conn, query); statement != nil {
			if result, err = statement.ExecContext(ctx, args); err != nil {
				c.prepared.drop(query)
			}
			return result, err
		}
	}
	return execer.ExecContext(ctx, query, args)
}

func (c *guardedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	queryer, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	if c.broken != nil {
		return nil, c.broken
	}
	defer c.note(&err)
	defer c.recovered(&err)
	if c.prepared != nil {
		if statement := c.prepared.find(ctx, c.Conn, query); statement != nil {
			rows, err := statement.QueryContext(ctx, args)
			if err != nil {
				c.prepared.drop(query)
				return nil, err
			}
			statement.busy = true
			return &guardedRows{rows, c, statement}, nil
		}
	}
	return c.guardRows(queryer.QueryContext(ctx, query, args))
}

func (c *guardedConn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

func (c *guardedConn) PrepareContext(ctx context.Context, query string) (statement driver.Stmt, err error) {
	if c.broken != nil {
		return nil, c.broken
	}
	defer c.note(&err)
	defer c.recovered(&err)
	statement, err = prepare(ctx, c.Conn, query)
	if modern, ok := statement.(contextStmt); ok && err == nil {
		return &guardedStmt{modern, c}, nil
	}
	return statement, err // of an old driver: left as it is
}

func (c *guardedConn) ResetSession(ctx context.Context) (err error) {
	resetter, ok := c.Conn.(driver.SessionResetter)
	if !ok {
		return nil
	}
	defer c.recovered(&err)
	return resetter.ResetSession(ctx)
}

// IsValid makes the pool close a connection instead of using it again.
func (c *guardedConn) IsValid() (valid bool) {
	if c.broken != nil {
		return false
	}
	validator, ok := c.Conn.(driver.Validator)
	if !ok {
		return true
	}
	defer c.recovered(&c.broken)
	return validator.IsValid()
}

func (c *guardedConn) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return driver.ErrSkip
}

func (c *guardedConn) Close() (err error) {
	defer c.recovered(&err)
	if c.prepared != nil {
		c.prepared.close()
	}
	return c.Conn.Close()
}

type guardedStmt struct {
	contextStmt
	conn *guardedConn
}

func (s *guardedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (result driver.Result, err error) {
	if s.conn.broken != nil {
		return nil, s.conn.broken
	}
	defer s.conn.note(&err)
	defer s.conn.recovered(&err)
	return s.contextStmt.ExecContext(ctx, args)
}

func (s *guardedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (rows driver.Rows, err error) {
	if s.conn.broken != nil {
		return nil, s.conn.broken
	}
	defer s.conn.note(&err)
	defer s.conn.recovered(&err)
	return s.conn.guardRows(s.contextStmt.QueryContext(ctx, args))
}

func (s *guardedStmt) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := s.contextStmt.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return s.conn.CheckNamedValue(value)
}

func (s *guardedStmt) Close() (err error) {
	defer s.conn.note(&err)
	defer s.conn.recovered(&err)
	return s.contextStmt.Close()
}

// guardedRows has every method that a driver's rows may have, and answers as
// database/sql would for those that the driver's do not have.
type guardedRows struct {
	driver.Rows
	conn *guardedConn
	of   *keptStmt // nil: of none that is kept
}

func (c *guardedConn) guardRows(rows driver.Rows, err error) (driver.Rows, error) {
	if err != nil {
		return nil, err
	}
	return &guardedRows{rows, c, nil}, nil
}

func (r *guardedRows) Next(values []driver.Value) (err error) {
	if r.conn.broken != nil {
		return r.conn.broken
	}
	defer r.conn.note(&err)
	defer r.conn.recovered(&err)
	return r.Rows.Next(values)
}

func (r *guardedRows) Close() (err error) {
	defer r.conn.note(&err)
	defer r.conn.recovered(&err)
	if r.of != nil {
		defer func() { r.of.busy = false }()
	}
	return r.Rows.Close()
}

func (r *guardedRows) HasNextResultSet() bool {
	rows, ok := r.Rows.(driver.RowsNextResultSet)
	return ok && rows.HasNextResultSet()
}

func (r *guardedRows) NextResultSet() (err error) {
	rows, ok := r.Rows.(driver.RowsNextResultSet)
	if !ok {
		return io.EOF
	}
	defer r.conn.note(&err)
	defer r.conn.recovered(&err)
	return rows.NextResultSet()
}

func (r *guardedRows) ColumnTypeScanType(index int) reflect.Type {
	if rows, ok := r.Rows.(driver.RowsColumnTypeScanType); ok {
		return rows.ColumnTypeScanType(index)
	}
	return reflect.TypeFor[any]()
}

func (r *guardedRows) ColumnTypeDatabaseTypeName(index int) string {
	if rows, ok := r.Rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
		return rows.ColumnTypeDatabaseTypeName(index)
	}
	return ""
}

func (r *guardedRows) ColumnTypeLength(index int) (length int64, ok bool) {
	if rows, ok := r.Rows.(driver.RowsColumnTypeLength); ok {
		return rows.ColumnTypeLength(index)
	}
	return 0, false
}

func (r *guardedRows) ColumnTypeNullable(index int) (nullable, ok bool) {
	if rows, ok := r.Rows.(driver.RowsColumnTypeNullable); ok {
		return rows.ColumnTypeNullable(index)
	}
	return false, false
}

func (r *guardedRows) ColumnTypePrecisionScale(index int) (precision, scale int64, ok bool) {
	if rows, ok := r.Rows.(driver.RowsColumnTypePrecisionScale); ok {
		return rows.ColumnTypePrecisionScale(index)
	}
	return 0, 0, false
}

// batchConn returns a driver's connection as one that takes batches, if it does.
func batchConn(c any) (sqlbatch.Conn, bool) {
	if guarded, ok := c.(*guardedConn); ok {
		c = guarded.Conn
	}
	batch, ok := c.(sqlbatch.Conn)
	return batch, ok
}

// takesBatches reports whether the driver of a connection sends batches.
func takesBatches(conn *sql.Conn) (takes bool) {
	_ = conn.Raw(func(c any) error {
		_, takes = batchConn(c)
		return nil
	})
	return takes
}
