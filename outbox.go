package outbox

import (
	"context"
	"database/sql"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Store is a durable outbox in one database. It is safe for concurrent use by
// any number of goroutines, and so are several Stores, in one process or many,
// over the same database.
type Store struct {
	db          *sql.DB
	opened      target // what Open made of the data source name; hostDatabase for New
	now         func() time.Time
	logger      *slog.Logger
	busyTimeout time.Duration
	sharedCache bool       // an in-memory database that other pools of this process may open
	connector   *connector // of the pool, if Open made it

	subscribers subscribers
	watches     atomic.Int32 // on connections of a host's pool

	turns  turns
	closed atomic.Bool
	idle   atomic.Bool // the last claim found nothing: on a server, look before the next

	crowd     crowd
	abandoned struct {
		sync.Mutex
		calls int // of the driver, left to themselves and still under way
	}
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
	// locked (other processes, or the host's own transactions) before it
	// returns ErrBusy. Waiting for goroutines of this Store is bounded by the
	// context alone. A server's own wait comes on top. Zero: 10 seconds.
	// Negative: no wait.
	BusyTimeout time.Duration

	// Synchronous is what a file database opened by Open promises after a
	// power loss; New leaves it to the host. Zero: Full.
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

// New returns a Store over the host's own database, whose settings, schema and
// closing stay the host's: it does no I/O, and expects the tables that Migrate
// or the statements of Schema have made. The driver's own busy timeout, if the
// host set one, delays ErrBusy but not the end of a context, except in a …Tx
// method on a transaction or connection of the host's. A panic of the driver
// reaches the caller; one inside a query also costs the pool a connection.
func New(db *sql.DB, opts *Options) *Store {
	return newStore(db, hostDatabase, opts)
}

func newStore(db *sql.DB, opened target, opts *Options) *Store {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{
		db:          db,
		opened:      opened,
		now:         opts.Now,
		logger:      opts.Logger,
		busyTimeout: opts.BusyTimeout,
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.logger == nil {
		s.logger = slog.Default()
	}
	if s.busyTimeout == 0 {
		s.busyTimeout = defaultBusyTimeout
	}
	return s
}

// Now tells the time by the clock of the Store.
func (s *Store) Now() time.Time { return s.now() }

// Close makes every later call return ErrClosed, and closes the database if
// Open opened it: an in-memory one is gone then. Calls under way end as they
// would have. Closing again does nothing.
func (s *Store) Close() error {
	if s.closed.Swap(true) || s.opened == hostDatabase {
		return nil
	}
	s.crowd.drop()
	return s.db.Close()
}

// admit reports why a call may not start, if so.
func (s *Store) admit(ctx context.Context) error {
	if s.closed.Load() {
		return ErrClosed
	}
	if insideUpdate(ctx, s.db) {
		return ErrInUpdate
	}
	return ctx.Err()
}
