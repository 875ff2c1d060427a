// Package sqlbatch says what a database/sql connection can do whose driver runs
// several statements in one request to a server, so that code can use it without
// importing that driver. Package hrana of this module has such connections.
//
// Reach one through (*sql.Conn).Raw:
//
//	err := conn.Raw(func(c any) error {
//		batch, ok := c.(sqlbatch.Conn)
//		if !ok {
//			return errNoBatches
//		}
//		results, err := batch.Batch(ctx, []sqlbatch.Step{
//			{Query: "BEGIN IMMEDIATE"},
//			{Query: "UPDATE account SET cents = cents - ? WHERE id = ?", Args: []any{100, 1}, If: sqlbatch.OK(0)},
//			{Query: "UPDATE account SET cents = cents + ? WHERE id = ?", Args: []any{100, 2}, If: sqlbatch.OK(1)},
//			{Query: "COMMIT", If: sqlbatch.OK(2)},
//			{Query: "ROLLBACK", If: sqlbatch.Not(sqlbatch.Autocommit())},
//		})
//		…
//	})
//
// A batch is no transaction by itself: without a BEGIN in it each step is stored
// on its own. The steps run in their order, and each only if its condition holds.
// A step that fails does not end the batch; conditions do that.
package sqlbatch

import (
	"context"
	"database/sql/driver"
)

// Conn is met by a driver.Conn that runs several statements in one request. Like
// every driver.Conn it is used by one goroutine at a time.
type Conn interface {
	// Batch runs the steps in one request and returns a result for each of
	// them, in their order. Its error is non-nil only if the request as such
	// failed, and then there are no results; [NothingDone] and [Lost] tell what
	// became of it. What a step did wrong is in its Result.
	Batch(ctx context.Context, steps []Step) ([]Result, error)

	// Defer makes a query, such as BEGIN IMMEDIATE, travel in front of the next
	// statement or batch, in the same request. If the query fails, the
	// statement or batch is not run, and the query's error is returned as that
	// of the call, with NothingDone. The query then stays in front of the next
	// one, until it has succeeded: what follows a BEGIN that failed never runs
	// outside a transaction. Another call of Defer replaces it, and "" drops it.
	// So does giving the connection back to its pool.
	//
	// In a batch, positions in conditions do not count the query.
	Defer(query string)

	// InTransaction reports whether a transaction was open when the server last
	// answered. A deferred BEGIN that was not sent yet opens none. After an
	// error it tells whether the transaction is still there: the server, a
	// trigger or an ON CONFLICT ROLLBACK may have ended it, and what is sent
	// next would then be stored at once.
	InTransaction() bool
}

// Step is a statement of a batch.
type Step struct {
	// Query is one statement.
	Query string

	// Args are its arguments, as for ExecContext: values for its parameters in
	// their order, or sql.Named values, but not both. nil, bool, integers,
	// floats, string, []byte, time.Time and driver.Valuer are taken.
	Args []any

	// If is the condition under which it runs. The zero value holds always.
	If Condition
}

// Result is what became of a step.
type Result struct {
	// Ran reports whether the condition of the step held, so that it was tried.
	// A step that did not run has no error.
	Ran bool

	// Err is why it failed, or nil. It is an [Error].
	Err error

	// Columns are the names of the result's columns, as the server says them.
	Columns []string

	// Rows are the rows that it returned, of int64, float64, string, []byte or
	// nil. They belong to the caller.
	Rows [][]driver.Value

	// RowsAffected counts the rows that an INSERT, UPDATE or DELETE changed.
	RowsAffected int64

	// LastInsertID is the rowid of the last row that an INSERT inserted.
	LastInsertID int64
}
