package engine

import (
	"context"
	"database/sql"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// DB is a database that calls are run on. It is safe for concurrent use.
type DB struct {
	pool      *sql.DB
	config    Config
	owned     bool       // Open opened it, and Close closes it
	shared    bool       // an in-memory database that other pools of this process may open
	connector *connector // of the pool, if Open made it

	known atomic.Pointer[Abilities]

	line       line
	contention *contention // of nodes on a server whose driver sends statements one at a time; nil elsewhere
	queued     queued      // the connection that is to rest on a server that takes batches
	closed     atomic.Bool
	watches    atomic.Int32 // on connections of the program's pool

	leftBehind struct {
		sync.Mutex
		calls int // of the driver, that outlast their contexts
	}
}

// Config is what a DB needs to know beside the database.
type Config struct {
	Now         func() (string, error) // the clock; instants are opaque
	BusyTimeout time.Duration          // how long others may keep the database locked
	Logger      *slog.Logger           // is told when a driver panics
	Tables      []string               // to be locked one by one in a shared cache
	LockTable   string                 // to be locked when a transaction of the program's may not have the write lock yet

	// Invalid makes the error for an argument that is refused.
	Invalid func(field, reason string) error
}

// Over returns a DB over the program's own pool. It does no I/O.
func Over(pool *sql.DB, config Config) *DB {
	return &DB{pool: pool, config: config}
}

// Close makes every later call return ErrClosed, and closes the pool if Open
// made it. Closing again does nothing.
func (db *DB) Close() error {
	if db.closed.Swap(true) || !db.owned {
		return nil
	}
	db.contention.drop()
	return db.pool.Close()
}

// Waiting returns how many calls stand in line behind the one that writes.
func (db *DB) Waiting() int { return db.line.length() }

// updateKey marks the context of a function inside Update on this database.
type updateKey struct{ pool *sql.DB }

// admit reports why a call may not start, if so.
func (db *DB) admit(ctx context.Context) error {
	if db.closed.Load() {
		return ErrClosed
	}
	if ctx.Value(updateKey{db.pool}) != nil {
		return ErrInUpdate
	}
	return ctx.Err()
}

// witness is who sees a driver panic.
func (db *DB) witness() witness {
	if db.connector != nil {
		return db.connector.witness
	}
	return witness{logger: db.config.Logger}
}

func (db *DB) retryBusy(ctx context.Context, attempt func() error) error {
	return retryBusy(ctx, db.config.BusyTimeout, attempt)
}

// widen lets the pool have a connection more for a call that outlasts its
// context, since that may never return: a network can swallow an answer, and
// the driver waits for it without end.
func (db *DB) widen(by int) {
	if db.contention == nil {
		return
	}
	db.leftBehind.Lock()
	defer db.leftBehind.Unlock()
	db.leftBehind.calls += by
	db.pool.SetMaxOpenConns(maxConnections + db.leftBehind.calls)
}

// maxConnections bounds the pool of a database that Open opened. One
// connection writes at a time; the others read.
const maxConnections = 8

// run runs a call in a transaction whose write lock is held. That may be
// committed if there is no error.
func (db *DB) run(ctx context.Context, tx Tx, call *Call, can Abilities) error {
	now, err := db.config.Now()
	if err != nil {
		return err
	}
	if err := Run(ctx, tx, call.Plan(now, can)...); err != nil {
		return err
	}
	if call.Then != nil {
		if err := call.Then(ctx, tx, now); err != nil {
			return err
		}
	}
	return ctx.Err()
}
