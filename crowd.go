package outbox

import (
	"context"
	"database/sql"
	"sync"
	"time"
)

// A libSQL server (0.24) can lose its write lock until it is started anew: a
// transaction that had to wait for the lock may leave a second place in the
// queue for it behind, and when that is called up and its connection is closed,
// nobody ever gets the lock again. Four nodes that write without a pause bring
// it about within seconds, since the driver closes the server's connection
// together with every COMMIT that it executes. It does not if COMMIT is sent as
// a query, which costs one request more. Then the next transaction on that
// connection takes the place, or the server gives it up when it closes the
// connection, 10 seconds later.
//
// So in a crowd, COMMIT is a query, and its connection is kept for the next
// transaction. Nothing else may use it, for that would keep the server from
// closing it.

// crowd knows whether other nodes write to the server at the same time, which
// shows in how long BEGIN takes.
type crowd struct {
	mu     sync.Mutex
	usual  time.Duration // that COMMIT takes, which waits for nobody
	waits  int           // BEGINs in a row that waited
	waited time.Time     // the last of them
	until  time.Time     // there is a crowd
	kept   *sql.Conn     // from the last COMMIT, for the next BEGIN
}

// noteBegin tells how long a BEGIN took. One that is slow may be an accident,
// three in a row are not.
func (c *crowd) noteBegin(took time.Duration) {
	const (
		slow     = 3 * time.Millisecond
		inARow   = 3
		together = time.Second
		lasts    = 10 * time.Second
	)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if took < slow+2*c.usual || now.Sub(c.waited) > together {
		c.waits = 0
	}
	if took < slow+2*c.usual {
		return
	}
	c.waited = now
	if c.waits++; c.waits >= inARow {
		c.until = now.Add(lasts)
	}
}

// noteCommit tells how long a COMMIT took.
func (c *crowd) noteCommit(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.usual == 0 {
		c.usual = took
	}
	c.usual += (min(took, 4*c.usual) - c.usual) / 4
}

func (c *crowd) present() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.until)
}

// take returns the connection that was kept, if there is one.
func (c *crowd) take() *sql.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.kept
	c.kept = nil
	return conn
}

// keep takes over a connection.
func (c *crowd) keep(conn *sql.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept != nil {
		c.kept.Close()
	}
	c.kept = conn
}

// drop gives the connection that was kept back to the pool.
func (c *crowd) drop() {
	if conn := c.take(); conn != nil {
		conn.Close()
	}
}

// writingConn is a connection for a transaction.
func (s *Store) writingConn(ctx context.Context) (*sql.Conn, error) {
	if conn := s.crowd.take(); conn != nil {
		return conn, nil
	}
	return s.db.Conn(ctx)
}

// giveBack ends the use of a connection for a transaction that was committed.
func (s *Store) giveBack(conn *sql.Conn) {
	if s.opened != serverDatabase || !s.crowd.present() {
		conn.Close()
		return
	}
	s.crowd.keep(conn)
	if s.closed.Load() {
		s.crowd.drop()
	}
}
