package engine

import (
	"database/sql"
	"sync"
	"sync/atomic"
	"time"
)

// A libSQL server (0.24) can lose its write lock until it is restarted: a
// transaction that had to wait for the lock may leave a second place in the
// queue for it behind, and when that place's turn comes and its connection is
// closed, nobody ever gets the lock again. Four nodes that write without a pause
// bring this about within seconds over go-libsql, which closes the server's
// connection together with every COMMIT that it executes. It does not if COMMIT
// is sent as a query, which costs one request more. Then the next transaction on
// that connection takes the place, or the server gives it up when it closes the
// connection, 10 seconds later.
//
// So while nodes contend, COMMIT is a query, and its connection is kept for the
// next transaction. Nothing else may use it, for that would keep the server from
// closing it.

// contention knows whether other nodes write to the server at the same time,
// which shows in how long BEGIN takes. A nil one is of a database where that
// does not matter.
type contention struct {
	mu     sync.Mutex
	usual  time.Duration // that COMMIT takes, which waits for nobody
	waits  int           // BEGINs in a row that waited
	waited time.Time     // the last of them
	until  time.Time     // nodes contend
	kept   *sql.Conn     // from the last COMMIT, for the next BEGIN
}

// noteBegin tells how long a BEGIN took. One that is slow may be an accident,
// three in a row are not.
func (c *contention) noteBegin(took time.Duration) {
	const (
		slow     = 3 * time.Millisecond
		inARow   = 3
		together = time.Second
		lasts    = 10 * time.Second
	)
	if c == nil {
		return
	}
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
func (c *contention) noteCommit(took time.Duration) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.usual == 0 {
		c.usual = took
	}
	c.usual += (min(took, 4*c.usual) - c.usual) / 4
}

// present reports whether nodes contend.
func (c *contention) present() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.until)
}

// take returns the connection that was kept, if there is one.
func (c *contention) take() *sql.Conn {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.kept
	c.kept = nil
	return conn
}

// keep takes a connection over while nodes contend, and reports whether it did.
func (c *contention) keep(conn *sql.Conn, closed *atomic.Bool) bool {
	if !c.present() {
		return false
	}
	c.mu.Lock()
	if c.kept != nil {
		c.kept.Close()
	}
	c.kept = conn
	c.mu.Unlock()
	if closed.Load() { // nobody comes for it
		c.drop()
	}
	return true
}

// drop gives the connection that was kept back to the pool.
func (c *contention) drop() {
	if conn := c.take(); conn != nil {
		conn.Close()
	}
}
