package hrana

import (
	"context"
	"database/sql/driver"

	"example.com/outbox/sqlbatch"
)

// conn is a connection of the pool: a stream, and what is known about it. One
// goroutine at a time uses it.
type conn struct {
	stream stream

	inTransaction bool   // as the server last said
	deferred      string // the query in front of the next statement, or ""
	tx            *tx    // of BeginTx, or nil
	dead          *Error // why it cannot be used any more, or nil
}

var (
	_ sqlbatch.Conn             = (*conn)(nil)
	_ driver.ExecerContext      = (*conn)(nil)
	_ driver.QueryerContext     = (*conn)(nil)
	_ driver.ConnBeginTx        = (*conn)(nil)
	_ driver.ConnPrepareContext = (*conn)(nil)
	_ driver.Pinger             = (*conn)(nil)
	_ driver.SessionResetter    = (*conn)(nil)
	_ driver.Validator          = (*conn)(nil)
	_ driver.NamedValueChecker  = (*conn)(nil)
)

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	r, err := c.run(ctx, query, args)
	if err != nil {
		return nil, err
	}
	return execResult{r.lastInsertID, r.rowsAffected}, nil
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	r, err := c.run(ctx, query, args)
	if err != nil {
		return nil, err
	}
	return &rows{result: r}, nil
}

// CheckNamedValue makes an argument one that can be sent.
func (c *conn) CheckNamedValue(arg *driver.NamedValue) error { return convert(arg) }

// Ping asks the server for an answer.
func (c *conn) Ping(ctx context.Context) error {
	if _, err := c.run(ctx, "SELECT 1", nil); err != nil {
		return err
	}
	return nil
}

// ResetSession is called before the pool hands the connection out again.
func (c *conn) ResetSession(context.Context) error {
	if !c.IsValid() {
		return driver.ErrBadConn // nothing was sent, so the pool may take another one
	}
	c.deferred = ""
	return nil
}

// IsValid reports whether the pool may keep the connection. One that comes back
// inside a transaction is closed, which ends the transaction and frees its lock.
func (c *conn) IsValid() bool { return c.dead == nil && !c.inTransaction }

// Close ends the stream.
func (c *conn) Close() error {
	c.stream.close()
	c.dead = refuse(sqlbatch.CodeConnectionFailed, "the connection is closed")
	return nil
}

// Defer implements [sqlbatch.Conn].
func (c *conn) Defer(query string) { c.deferred = query }

// InTransaction implements [sqlbatch.Conn].
func (c *conn) InTransaction() bool { return c.inTransaction }

// usable returns the error for a connection or a transaction that is past use.
func (c *conn) usable() *Error {
	if c.dead != nil {
		e := *c.dead
		e.outcome = nothing // of this request
		e.message = "the connection is past use, since: " + e.message
		return &e
	}
	if c.tx != nil && c.tx.gone {
		return refuse(sqlbatch.CodeNoTransaction, "the transaction has ended by an error before")
	}
	return nil
}

// send sends a request and keeps account of the transaction. A stream that died
// inside one, or of which nobody knows what it did, makes the connection
// unusable: nothing must run outside of a transaction that was meant for one.
func (c *conn) send(ctx context.Context, r *request, kind string) (*reply, *Error) {
	r.text = append(r.text, `,{"type":"get_autocommit"}`...)
	a, err := c.stream.do(ctx, r, c.inTransaction, kind, kindAutocommit)
	if err != nil {
		if err.outcome != nothing {
			c.dead = err
		} else if c.inTransaction && isGone(err) {
			c.dead, c.inTransaction = err, false
		}
		return nil, err
	}
	if failed := a.replies[1].err; failed != nil {
		failed.outcome = lost
		c.stream.forget()
		c.dead = failed
		return nil, failed
	}
	c.inTransaction = !a.replies[1].autocommit
	if c.tx != nil && !c.inTransaction {
		c.tx.gone = true
	}
	return &a.replies[0], nil
}

// run runs one statement, in one request.
func (c *conn) run(ctx context.Context, query string, args []driver.NamedValue) (*result, *Error) {
	if c.deferred != "" {
		return c.runBehind(ctx, query, args)
	}
	if err := c.usable(); err != nil {
		return nil, err
	}
	var err *Error
	r := newRequest(len(query) + sizeOf(args))
	r.text = append(r.text, `{"type":"execute","stmt":`...)
	if r.text, err = appendStatement(r.text, query, args); err != nil {
		return nil, err
	}
	r.text = append(r.text, '}')
	reply, err := c.send(ctx, r, kindExecute)
	if err != nil {
		return nil, err
	}
	if reply.err != nil {
		return nil, statementError(reply.err)
	}
	return reply.result, nil
}

// runBehind runs a statement with the deferred query in front of it.
func (c *conn) runBehind(ctx context.Context, query string, args []driver.NamedValue) (*result, *Error) {
	b, err := c.newBatch(len(query) + sizeOf(args))
	if err != nil {
		return nil, err
	}
	if err := b.add(query, args, sqlbatch.Condition{}); err != nil {
		return nil, err
	}
	results, errs, err := c.runBatch(ctx, b)
	if err != nil {
		return nil, err
	}
	if errs[0] != nil {
		return nil, errs[0]
	}
	if results[0] == nil {
		c.stream.forget()
		c.dead = invalid("the statement was left out")
		return nil, c.dead
	}
	return results[0], nil
}

// sizeOf guesses how much room arguments need in a request.
func sizeOf(args []driver.NamedValue) int {
	size := 0
	for _, arg := range args {
		size += 48
		switch v := arg.Value.(type) {
		case string:
			size += len(v)
		case []byte:
			size += len(v) * 4 / 3
		}
	}
	return size
}
