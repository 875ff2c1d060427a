package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
)

// Watch notices that a database file was written to, by this process or another.
// It holds a connection that does nothing else. It is safe for concurrent use.
type Watch struct {
	db      *DB
	mu      sync.Mutex
	conn    watchedConn
	seen    int64
	calling bool // a call of the driver was begun and has not returned; if it panicked, it never will
}

// watchedConn is a connection beside the pool, or one of the program's pool.
type watchedConn interface {
	dataVersion(ctx context.Context) (int64, error)
	Close() error
}

// Watch starts to watch the database. It returns errors.ErrUnsupported, wrapped,
// if that cannot be done: on a server, in memory, and on a pool of the program's
// whose limit would leave no connection beside its watches.
func (db *DB) Watch(ctx context.Context) (*Watch, error) {
	if err := db.admit(ctx); err != nil {
		return nil, err
	}
	conn, err := db.watchedConn(ctx)
	if err != nil {
		return nil, db.explain(ctx, "watch", err)
	}
	w := &Watch{db: db, conn: conn}
	kept := false
	defer func() {
		if !kept {
			w.Close()
		}
	}()
	err = db.retryBusy(ctx, func() (err error) {
		w.seen, err = w.dataVersion(ctx)
		return err
	})
	if err != nil {
		if !isBusy(err) && !isEnded(err) && !isUnavailable(err) {
			err = errors.Join(errors.ErrUnsupported, err)
		}
		return nil, db.explain(ctx, "watch", err)
	}
	kept = true
	return w, nil
}

func (db *DB) watchedConn(ctx context.Context) (watchedConn, error) {
	switch {
	case db.owned && db.connector.kind == fileTarget:
		conn, err := db.connector.Connect(ctx)
		return ownConn{conn}, err
	case !db.owned && db.reserveWatch():
		conn, err := db.pool.Conn(ctx)
		if err != nil {
			db.watches.Add(-1)
		}
		return pooledConn{conn, db}, err
	}
	return nil, errors.ErrUnsupported
}

// reserveWatch counts a watch on the program's pool, unless that would leave no
// other connection.
func (db *DB) reserveWatch() bool {
	watches := int(db.watches.Add(1))
	if most := db.pool.Stats().MaxOpenConnections; most > 0 && watches >= most {
		db.watches.Add(-1)
		return false
	}
	return true
}

// Changed reports whether anything was committed to the database since it was
// asked last, or since the Watch began. While another locks readers out, nothing
// is committed yet. An error does not count as asked.
func (w *Watch) Changed(ctx context.Context) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.db.isClosed() {
		return false, ErrClosed
	}
	version, err := w.dataVersion(ctx)
	switch {
	case isBusy(err):
		return false, nil
	case err != nil:
		return false, w.db.explain(ctx, "watch", err)
	}
	changed := version != w.seen
	w.seen = version
	return changed, nil
}

func (w *Watch) dataVersion(ctx context.Context) (version int64, err error) {
	w.calling = true
	version, err = w.conn.dataVersion(ctx)
	w.calling = false
	return version, err
}

// Close ends the Watch. A Changed after it is an error. After a panic of the
// driver nobody waits for the connection, which may be locked for good.
func (w *Watch) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	conn := w.conn
	w.conn = closedConn{}
	if w.calling {
		w.calling = false
		go conn.Close()
		return nil
	}
	return conn.Close()
}

// isClosed reports whether the DB was closed, or the program's pool was. A
// connection in use outlasts its pool, but the pool gives no other.
func (db *DB) isClosed() bool {
	if db.closed.Load() {
		return true
	}
	_, err := db.pool.Conn(ended)
	return isPoolClosed(err)
}

// ended is a context with which a pool gives no connection, and says whether it
// is closed.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

type ownConn struct{ driver.Conn }

func (c ownConn) dataVersion(ctx context.Context) (int64, error) {
	value, err := queryDriver(ctx, c.Conn, dataVersion)
	if err != nil {
		return 0, err
	}
	version, ok := value.(int64)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	return version, nil
}

type pooledConn struct {
	*sql.Conn
	db *DB
}

func (c pooledConn) Close() error {
	defer c.db.watches.Add(-1)
	return c.Conn.Close()
}

func (c pooledConn) dataVersion(ctx context.Context) (version int64, err error) {
	err = c.QueryRowContext(ctx, dataVersion).Scan(&version)
	return version, err
}

type closedConn struct{}

func (closedConn) dataVersion(context.Context) (int64, error) { return 0, ErrClosed }
func (closedConn) Close() error                               { return nil }

// dataVersion changes when another connection has committed,
// see https://www.sqlite.org/pragma.html#pragma_data_version.
const dataVersion = "PRAGMA data_version"
