package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
)

// subscribers are told when rows may have become claimable.
type subscribers struct {
	mu       sync.Mutex
	channels map[chan struct{}]struct{}
}

// Subscribe returns a channel that gets a value after this Store has committed
// something that may let a row be claimed: Append, Rearm, RearmStale, Requeue,
// Retry, and an Update with AppendTx or RearmTx in it. Values that nobody has
// received yet are one: a receiver looks for rows after each, and misses none
// that was there before it. The channel is never closed. Call cancel to be told
// no more.
//
// Commits of other Stores, of other processes and of the host's own transactions
// are not among them; see Watch.
func (s *Store) Subscribe() (wake <-chan struct{}, cancel func()) {
	channel := make(chan struct{}, 1)
	s.subscribers.mu.Lock()
	defer s.subscribers.mu.Unlock()
	if s.subscribers.channels == nil {
		s.subscribers.channels = make(map[chan struct{}]struct{})
	}
	s.subscribers.channels[channel] = struct{}{}
	return channel, func() {
		s.subscribers.mu.Lock()
		defer s.subscribers.mu.Unlock()
		delete(s.subscribers.channels, channel)
	}
}

// stagedIn is staged for a transaction of the caller's: that of an Update tells
// when it is committed.
func (s *Store) stagedIn(tx Tx) {
	if tx, ok := tx.(*updateTx); ok {
		tx.staged.Store(true)
		return
	}
	s.staged()
}

// staged makes the next claim go straight for the rows, and wakes who waits for
// them.
func (s *Store) staged() {
	s.idle.Store(false)
	s.subscribers.mu.Lock()
	defer s.subscribers.mu.Unlock()
	for channel := range s.subscribers.channels {
		select {
		case channel <- struct{}{}:
		default: // it has one to receive already
		}
	}
}

// Watch notices that a database file has been written to by whomever, another
// process for example. It holds a connection that does nothing else. It is safe
// for concurrent use.
type Watch struct {
	mu   sync.Mutex
	conn watchedConn
	seen int64
}

// watchedConn is a connection beside the pool, or one of a host's pool.
type watchedConn interface {
	dataVersion(ctx context.Context) (int64, error)
	Close() error
}

// Watch starts to watch the database. It returns errors.ErrUnsupported, wrapped,
// if that cannot be done: on a server, in memory, and on a pool of the host's
// whose limit would leave the Store no connection beside its watches. On an
// embedded replica it sees no more than the local file. Close the Watch before
// the Store.
func (s *Store) Watch(ctx context.Context) (*Watch, error) {
	if err := s.admit(ctx); err != nil {
		return nil, err
	}
	var conn watchedConn
	switch {
	case s.opened == fileDatabase:
		own, err := s.connector.Connect(ctx)
		if err != nil {
			return nil, s.explain(ctx, "watch", err)
		}
		conn = ownConn{own}
	case s.opened == hostDatabase && s.reserveWatch():
		pooled, err := s.db.Conn(ctx)
		if err != nil {
			s.watches.Add(-1)
			return nil, s.explain(ctx, "watch", err)
		}
		conn = pooledConn{pooled, s}
	default:
		return nil, &opError{"watch", errors.ErrUnsupported}
	}
	var seen int64
	err := s.retryBusy(ctx, func() (err error) {
		seen, err = conn.dataVersion(ctx)
		return err
	})
	if err != nil {
		conn.Close()
		if !isBusy(err) && !isEnded(err) && !isUnavailable(err) {
			err = errors.Join(errors.ErrUnsupported, err)
		}
		return nil, s.explain(ctx, "watch", err)
	}
	return &Watch{conn: conn, seen: seen}, nil
}

// reserveWatch counts a watch on a pool of the host's, unless that would leave no
// connection to the Store.
func (s *Store) reserveWatch() bool {
	watches := int(s.watches.Add(1))
	if most := s.db.Stats().MaxOpenConnections; most > 0 && watches >= most {
		s.watches.Add(-1)
		return false
	}
	return true
}

// Changed reports whether anything was committed to the database since it was
// asked last, or since the Watch began. It costs about 10 µs and takes no lock;
// while another locks readers out, nothing is committed yet. An error does not
// count as asked.
func (w *Watch) Changed(ctx context.Context) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	version, err := w.conn.dataVersion(ctx)
	switch {
	case isBusy(err):
		return false, nil
	case err != nil:
		return false, &opError{"watch", err}
	}
	changed := version != w.seen
	w.seen = version
	return changed, nil
}

// Close ends the Watch. A Changed after it is an error.
func (w *Watch) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	conn := w.conn
	w.conn = closedConn{}
	return conn.Close()
}

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
	store *Store
}

func (c pooledConn) Close() error {
	defer c.store.watches.Add(-1)
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
