package hrana

import (
	"context"
	"database/sql/driver"

	"example.com/outbox/sqlbatch"
)

// batch is the text of a batch being written. A query of Defer comes first, and
// everything else runs only if it succeeded.
type batch struct {
	request *request
	steps   int // without the deferred one
	shift   int // 1 if there is a deferred one
}

func (c *conn) newBatch(sizeHint int) (*batch, *Error) {
	b := &batch{request: newRequest(sizeHint + len(c.deferred))}
	b.request.text = append(b.request.text, `{"type":"batch","batch":{"steps":[`...)
	if c.deferred == "" {
		return b, nil
	}
	if err := b.statement(c.deferred, nil); err != nil {
		return nil, err
	}
	b.request.text = append(b.request.text, '}')
	b.shift = 1
	return b, nil
}

// statement begins a step; the condition and the closing brace are the caller's.
func (b *batch) statement(query string, args []driver.NamedValue) (err *Error) {
	b.request.text = append(b.request.text, `{"stmt":`...)
	b.request.text, err = appendStatement(b.request.text, query, args)
	return err
}

func (b *batch) add(query string, args []driver.NamedValue, condition sqlbatch.Condition) *Error {
	if b.steps+b.shift > 0 {
		b.request.text = append(b.request.text, ',')
	}
	if err := b.statement(query, args); err != nil {
		return err
	}
	if b.shift == 1 || condition.Kind != sqlbatch.KindAlways {
		text, err := append(b.request.text, `,"condition":`...), (*Error)(nil)
		if b.shift == 1 {
			text = append(text, `{"type":"and","conds":[{"type":"ok","step":0},`...)
		}
		if text, err = appendCondition(text, condition, b.steps, b.shift); err != nil {
			return err
		}
		if b.shift == 1 {
			text = append(text, `]}`...)
		}
		b.request.text = text
	}
	b.request.text = append(b.request.text, '}')
	b.steps++
	return nil
}

// runBatch sends a batch and returns a result or an error for each of its steps,
// or neither for one that did not run.
func (c *conn) runBatch(ctx context.Context, b *batch) ([]*result, []*Error, *Error) {
	if err := c.usable(); err != nil {
		return nil, nil, err
	}
	b.request.text = append(b.request.text, `]}}`...)
	reply, err := c.send(ctx, b.request, kindBatch)
	if err != nil {
		return nil, nil, err
	}
	if reply.err != nil {
		return nil, nil, batchError(reply.err)
	}
	if n := b.steps + b.shift; len(reply.steps) != n || len(reply.stepErrors) != n {
		c.stream.forget()
		c.dead = invalid("%d results and %d errors for %d steps", len(reply.steps), len(reply.stepErrors), n)
		return nil, nil, c.dead
	}
	if b.shift == 1 {
		if err := reply.stepErrors[0]; err != nil {
			err.outcome = nothing
			return nil, nil, err
		}
		c.deferred = ""
	}
	for _, err := range reply.stepErrors {
		if err != nil {
			statementError(err)
		}
	}
	return reply.steps[b.shift:], reply.stepErrors[b.shift:], nil
}

// Batch implements [sqlbatch.Conn].
func (c *conn) Batch(ctx context.Context, steps []sqlbatch.Step) ([]sqlbatch.Result, error) {
	if len(steps) == 0 {
		return nil, nil
	}
	size := 0
	args := make([][]driver.NamedValue, len(steps))
	for i, step := range steps {
		var err error
		if args[i], err = convertAll(step.Args); err != nil {
			return nil, err
		}
		size += 128 + len(step.Query) + sizeOf(args[i])
	}
	b, err := c.newBatch(size)
	if err != nil {
		return nil, err
	}
	for i, step := range steps {
		if err := b.add(step.Query, args[i], step.If); err != nil {
			return nil, err
		}
	}
	results, errs, err := c.runBatch(ctx, b)
	if err != nil {
		return nil, err
	}
	public := make([]sqlbatch.Result, len(steps))
	for i := range public {
		switch {
		case errs[i] != nil:
			public[i] = sqlbatch.Result{Ran: true, Err: errs[i]}
		case results[i] != nil:
			public[i] = sqlbatch.Result{Ran: true, Columns: results[i].columns, Rows: results[i].rows,
				RowsAffected: results[i].rowsAffected, LastInsertID: results[i].lastInsertID}
		}
	}
	return public, nil
}
