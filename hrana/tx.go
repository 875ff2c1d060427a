package hrana

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"

	"example.com/outbox/sqlbatch"
)

// tx is a transaction of BeginTx.
type tx struct {
	c    *conn
	ctx  context.Context // that of BeginTx, as Commit and Rollback have none
	gone bool            // it ended, and not by Commit or Rollback
}

// rollbackTimeout bounds a ROLLBACK, whose context may have ended before.
const rollbackTimeout = 5 * time.Second

// BeginTx begins a transaction. Every isolation level but serializable, which is
// what SQLite has, is refused, and so is ReadOnly, which the server does not enforce.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if level := sql.IsolationLevel(opts.Isolation); level != sql.LevelDefault && level != sql.LevelSerializable {
		return nil, refuse(sqlbatch.CodeUnsupported, "isolation level %s", level)
	}
	if opts.ReadOnly {
		return nil, refuse(sqlbatch.CodeUnsupported, "read-only transactions")
	}
	query := "BEGIN"
	if c.stream.to.immediate {
		query = "BEGIN IMMEDIATE"
	}
	if _, err := c.run(ctx, query, nil); err != nil {
		return nil, err
	}
	c.tx = &tx{c: c, ctx: ctx}
	return c.tx, nil
}

// Begin is for a database/sql of long ago.
func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

// Commit waits for no longer than the context of BeginTx allows.
func (t *tx) Commit() error {
	_, err := t.c.run(t.ctx, "COMMIT", nil)
	t.c.tx = nil
	if err != nil {
		return err // if it is still open, the pool closes the connection
	}
	return nil
}

func (t *tx) Rollback() error {
	c := t.c
	defer func() { c.tx = nil }()
	c.deferred = ""
	if t.gone || c.dead != nil && isGone(c.dead) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), rollbackTimeout)
	defer cancel()
	if _, err := c.run(ctx, "ROLLBACK", nil); err != nil && !t.gone && !(c.dead != nil && isGone(c.dead)) {
		return err
	}
	return nil
}
