package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"math/rand/v2"
	"time"

	"example.com/outbox/sqlbatch"
)

// A BEGIN IMMEDIATE waits for the lock in a queue of the server's. In version
// 0.24 one that has stood there for 15 ms may wake before its turn; if the server
// is just checkpointing, it tries anew and leaves its place behind. When that
// comes up nobody is there to take it, and for 5 seconds, or until the same stream
// begins again, nobody gets the lock. (acquire_timeout_duration in its
// connection_manager.rs.) Nodes that write without a pause bring this about within
// seconds if there are eight of them.
//
// So a node whose BEGIN stood in the queue for longer than a moment rests before
// it sends the next, while its calls gather on this side: the queue stays short.
// And if its BEGIN may have left a place behind, it begins once more after that, on
// the same stream, with nothing to do: it takes the place, should that have come up
// by then. How long BEGIN waited it learns from the server's own clock.

// What a BEGIN waits beyond a moment, the node rests many times over, however many
// nodes there are.
const (
	shortWait   = 3 * time.Millisecond
	riskyWait   = 12 * time.Millisecond // with a margin, since the clock is a coarse one
	restFactor  = 10
	longestRest = 200 * time.Millisecond

	mostTries    = 5
	placeTimeout = 10 * time.Second // a server lets a BEGIN wait for 5
)

// queued is a connection whose BEGIN has waited. It belongs to whose turn it is in
// the line.
type queued struct {
	conn   *sql.Conn // nil: none
	waited time.Duration
}

// keep takes a connection over if its BEGIN has waited, and reports whether it did.
func (q *queued) keep(conn *sql.Conn, waited time.Duration) bool {
	if waited <= shortWait {
		return false
	}
	if q.conn != nil {
		q.conn.Close()
	}
	*q = queued{conn, waited}
	return true
}

// rest keeps the line from sending for a while, and gives the connection back.
func (q *queued) rest() {
	for tries := 0; ; tries++ {
		pause := min(restFactor*(q.waited-shortWait), longestRest)
		time.Sleep(pause/2 + rand.N(pause)) // nodes must not come back together
		if q.waited < riskyWait || tries == mostTries {
			break
		}
		q.waited = takePlace(q.conn) // it may leave another behind
		if q.waited <= shortWait {
			break
		}
	}
	q.conn.Close()
	*q = queued{}
}

// takePlace begins and ends a transaction, and returns how long it waited.
func takePlace(conn *sql.Conn) (waited time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), placeTimeout)
	defer cancel()
	_ = conn.Raw(func(c any) error {
		batch, ok := batchConn(c)
		if !ok {
			return nil
		}
		results, err := batch.Batch(ctx, []sqlbatch.Step{
			{Query: serverClock},
			{Query: immediate},
			{Query: "COMMIT", If: sqlbatch.OK(1)},
			{Query: serverClock},
		})
		if err == nil && len(results) == 4 {
			waited = between(results[0].Rows, results[3].Rows)
		}
		return nil
	})
	return waited
}

// serverClock is a query for the server's time in milliseconds.
const serverClock = "SELECT CAST(1000 * unixepoch('subsec') AS INTEGER)"

// between returns the time between two answers to serverClock, or 0 if they are
// none.
func between(from, to [][]driver.Value) time.Duration {
	start, ok := millisecond(from)
	end, okay := millisecond(to)
	if !ok || !okay {
		return 0
	}
	return time.Duration(end-start) * time.Millisecond
}

func millisecond(rows [][]driver.Value) (n int64, ok bool) {
	if len(rows) == 1 && len(rows[0]) == 1 {
		n, ok = rows[0][0].(int64)
	}
	return n, ok
}
