package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"example.com/outbox/internal/engine"
)

// Store is a durable outbox in one database. It is safe for concurrent use by
// any number of goroutines, and so are several Stores, in one process or many,
// over the same database.
type Store struct {
	db     *engine.DB
	now    func() time.Time
	logger *slog.Logger

	subscribers subscribers
	idle        atomic.Bool // the last claim found nothing
}

// Tx runs statements in one transaction. *sql.Tx and *sql.Conn meet it, and so
// does what Update gives to its function.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Options configures a Store. A nil *Options means the zero value.
type Options struct {
	// Now is the clock of every instant that the store writes or compares
	// with. Nil: time.Now. It must be safe for concurrent use, and may step in
	// either direction: no row is lost and no fence repeats.
	Now func() time.Time

	// Logger is told about rows that cannot be decoded. Nil: slog.Default().
	Logger *slog.Logger

	// BusyTimeout is how long a call waits for others that keep the database
	// locked (other processes, or the program's own transactions) before it
	// returns ErrBusy. Waiting for goroutines of this Store is bounded by the
	// context alone. A server's own wait comes on top. Zero: 10 seconds.
	// Negative: no wait.
	BusyTimeout time.Duration

	// Synchronous is what a file database opened by Open promises after a
	// power loss; New leaves it to the program. Zero: Full.
	Synchronous Synchronous
}

// Synchronous is a durability level of SQLite, see
// https://www.sqlite.org/pragma.html#pragma_synchronous. Either survives the
// death of the process at any moment.
type Synchronous int

const (
	Full   Synchronous = iota // a call that returned survives a power loss
	Normal                    // a power loss may take the last calls, whole; the file stays consistent
)

const defaultBusyTimeout = 10 * time.Second

// New returns a Store over your own database. Its settings, its schema and closing
// it stay yours: New does no I/O, and expects the tables that Migrate or the
// statements of Schema have made. The first call looks at a connection to find out
// what the database can do, so that on a local one goroutines share commits. A busy
// timeout that you set in the driver delays ErrBusy but not the end of a context,
// except in a …Tx method on your own transaction or connection. A panic of the
// driver reaches the caller; one inside a query also costs the pool a connection.
func New(db *sql.DB, opts *Options) *Store {
	s, config := newStore(opts)
	s.db = engine.Over(db, config)
	return s
}

func newStore(opts *Options) (*Store, engine.Config) {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{now: opts.Now, logger: opts.Logger}
	if s.now == nil {
		s.now = time.Now
	}
	if s.logger == nil {
		s.logger = slog.Default()
	}
	return s, engine.Config{
		Now:         s.instant,
		BusyTimeout: cmp.Or(opts.BusyTimeout, defaultBusyTimeout),
		Logger:      s.logger,
		Tables:      []string{"outbox", "outbox_payload"},
		LockTable:   "outbox_schema",
		Invalid: func(field, reason string) error {
			return &InvalidError{Index: -1, Field: field, Reason: reason}
		},
	}
}

// Now tells the time by the clock of the Store.
func (s *Store) Now() time.Time { return s.now() }

// instant is the present as it is stored.
func (s *Store) instant() (string, error) {
	now, ok := encodeInstant(s.now())
	if !ok {
		return "", &InvalidError{Index: -1, Field: "Options.Now", Reason: "returned a year outside 0000-9999"}
	}
	return now, nil
}

// Close makes every later call return ErrClosed, and closes the database if Open
// opened it: an in-memory one is gone then. Calls under way end as they would
// have. Its error is the driver's. Closing again does nothing.
func (s *Store) Close() error { return s.db.Close() }

// place is where a writing call runs: in a transaction of its own, or inside one
// that the caller has begun.
type place struct {
	tx    Tx
	given bool
}

var alone place

func inside(tx Tx) place { return place{tx, true} }

// write runs a call at a place. If it makes rows claimable, those who wait for
// such are woken once it is committed.
func (s *Store) write(ctx context.Context, at place, wakes bool, call *engine.Call) error {
	if !at.given {
		if wakes {
			defer s.wake()
		}
		return s.db.Write(ctx, call)
	}
	if wakes {
		defer s.wakeAfter(at.tx)
	}
	return s.db.WriteIn(ctx, at.tx, call)
}

// subscribers are told when rows may have become claimable.
type subscribers struct {
	mu       sync.Mutex
	channels map[chan struct{}]struct{}
}

// wake makes the next claim go straight for the rows, and wakes who waits for
// them.
func (s *Store) wake() {
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

// wakeAfter is wake for the caller's transaction. That of an Update tells when it
// is committed; of any other this is not known, so it wakes now.
func (s *Store) wakeAfter(tx Tx) {
	if tx, ok := tx.(*engine.UpdateTx); ok {
		tx.OnCommit(s.wake)
		return
	}
	s.wake()
}
