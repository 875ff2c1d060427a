package outbox

import (
	"context"

	"example.com/outbox/internal/engine"
)

// Subscribe returns a channel that gets a value after this Store has committed
// something that may let a row be claimed: Append, Rearm, RearmStale, Requeue,
// Retry, and an Update with AppendTx, RearmTx or RetryTx in it. Values that nobody
// has received yet are one: a receiver looks for rows after each, and misses none
// that was there before it. The channel is never closed. Call cancel to be told no
// more.
//
// Commits of other Stores, of other processes and of the program's own transactions
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

// Watch notices that a database file has been written to, by this process or
// another. It holds a connection that does nothing else. It is safe for concurrent
// use.
type Watch struct{ watch *engine.Watch }

// Watch starts to watch the database. It returns errors.ErrUnsupported, wrapped,
// if that cannot be done: on a server, in memory, and on a pool of the program's
// whose limit would leave the Store no connection beside its watches. On an
// embedded replica it sees no more than the local file. Close the Watch before
// the Store. Its other errors are those of the database.
func (s *Store) Watch(ctx context.Context) (*Watch, error) {
	watch, err := s.db.Watch(ctx)
	if err != nil {
		return nil, err
	}
	return &Watch{watch}, nil
}

// Changed reports whether anything was committed to the database since it was
// asked last, or since the Watch began. It costs about 10 µs and takes no lock;
// while another locks readers out, nothing is committed yet. An error does not
// count as asked. After Close, and once the Store or the program's pool is closed,
// it is ErrClosed.
func (w *Watch) Changed(ctx context.Context) (bool, error) { return w.watch.Changed(ctx) }

// Close ends the Watch.
func (w *Watch) Close() error { return w.watch.Close() }
