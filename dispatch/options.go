package dispatch

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
)

// Handler handles a claimed row. Its context ends when the claim is lost, when
// Options.HandlerTimeout is over, or when a shutdown has waited long enough;
// context.Cause tells which (outbox.ErrClaimLost, ErrHandlerTimeout, ErrShutdown).
// It ends, too, once the row is settled: what goes on after Accepted needs another.
// The row, its payload included, is the handler's own.
type Handler func(ctx context.Context, row outbox.Row) error

// Options configures a Dispatcher. A nil *Options means the zero value, which is
// good for production on one machine. Where zero means a default, so does any
// negative value. Its functions may be called from several goroutines at once,
// and must not panic: of a handler alone a panic is an error.
type Options struct {
	// Scopes are the routes to claim, taken in turn, a few rows of each. Nil:
	// whatever is due, the longest due first and whatever node it is pinned to;
	// or, with AllRoutes or MaxPerNamespace, all routes in turn.
	Scopes []outbox.Scope

	// AllRoutes takes all routes that have due rows in turn, rather than what
	// has been due for longest: a tenant with a hundred thousand rows then delays
	// another's first row by one round at most. A node's own routes are told by
	// Node; unpinned ones are always among them.
	AllRoutes bool

	// Node is this node's name, for AllRoutes and MaxPerNamespace without
	// Scopes: rows pinned to it are claimed beside those that are unpinned.
	Node string

	// Concurrency is how many handlers run at once. Zero: 32.
	Concurrency int

	// MaxPerNamespace is how many rows of a namespace may be claimed at once,
	// by anyone: as many more are claimed as the store counts fewer. Several
	// processes that claim at the same moment can exceed it. It is asked before
	// each claim. Nil: no limit. See Limit for one figure. Without Scopes it
	// implies AllRoutes.
	MaxPerNamespace func(namespace string) int

	// Held returns the workflows that are paused. It is asked before each
	// claim; their rows stay pending. Nil: none.
	Held func() []uuid.UUID

	// MaxAttempts is how often a row is dispatched before it is a dead letter.
	// Zero: 20.
	MaxAttempts uint32

	// Backoff is how long a row waits after its n-th attempt failed, n counting
	// from 0. Nil: Exponential(time.Second, time.Hour).
	Backoff func(attempt uint32) time.Duration

	// MaxClaims is how often a row may be claimed without being settled, as it
	// is if it kills its worker; when its claim goes stale once more it becomes a
	// dead letter. Counted is its Fence less its Attempt, so claims that a shutdown
	// gave back, and those of a life before Rearm or Requeue, count as well.
	// Zero: 20.
	MaxClaims int64

	// HandlerTimeout ends a handler's context. Zero: no limit.
	HandlerTimeout time.Duration

	// PollInterval is how long the loop sleeps at most before it looks for rows
	// again. It is woken earlier by rows of its Store, by commits of others to
	// the same file, and when a row falls due, so this matters on servers and
	// replicas. Zero: 1 s.
	PollInterval time.Duration

	// Lease is how old a claim may become before it counts as stale and is
	// taken back, by this or another Dispatcher on the database: all should be
	// given the same. A running handler's claim is extended three times in a
	// lease. What a handler Accepted is not: who took it over extends it with
	// Store.Extend, or completes it in time. Zero: 1 minute.
	Lease time.Duration

	// ReconcileInterval is how often stale claims are looked for. Zero: half
	// the Lease.
	ReconcileInterval time.Duration

	// ShutdownTimeout is how long handlers may go on when Run's context has
	// ended, before their own contexts end. Zero: 10 s.
	ShutdownTimeout time.Duration

	// Terminal reports whether a workflow has ended, so that its rows are
	// settled rather than dispatched again. It is asked about the workflows of
	// stale claims before these are taken back, and at the start about every
	// workflow with a live row. If it returns an error, nothing is taken back
	// until it is asked again, a ReconcileInterval later. Nil: none has ended.
	Terminal func(ctx context.Context, workflowID uuid.UUID) (bool, error)

	// Observer is told what happens. The zero value hears nothing.
	Observer Observer

	// Logger gets errors of the store, stale claims and dead letters as
	// warnings, and other outcomes as debug messages. Nil: slog.Default().
	Logger *slog.Logger

	// Now is the clock that instants are computed with. It must not differ
	// from the Store's by much: claims are told stale by it. Nil: Store.Now.
	Now func() time.Time
}

// Limit is a MaxPerNamespace of one figure for all namespaces.
func Limit(rows int) func(namespace string) int {
	return func(string) int { return rows }
}

// Exponential is a Backoff that starts at first, doubles with each attempt up to
// longest, and varies by up to a half of that downwards, so that what failed
// together does not come back together. Durations that are not positive count
// as a nanosecond.
func Exponential(first, longest time.Duration) func(attempt uint32) time.Duration {
	first, longest = max(first, 1), max(longest, 1)
	return func(attempt uint32) time.Duration {
		pause := longest
		if attempt < 63 && first <= math.MaxInt64>>attempt {
			pause = min(first<<attempt, longest)
		}
		return pause - rand.N(pause/2+1)
	}
}

func (o Options) withDefaults(store *outbox.Store) Options {
	setDefault(&o.Concurrency, 32)
	setDefault(&o.MaxClaims, 20)
	setDefault(&o.PollInterval, time.Second)
	setDefault(&o.Lease, time.Minute)
	setDefault(&o.ReconcileInterval, max(o.Lease/2, 1))
	setDefault(&o.ShutdownTimeout, 10*time.Second)
	if o.MaxAttempts == 0 {
		o.MaxAttempts = 20
	}
	if o.Backoff == nil {
		o.Backoff = Exponential(time.Second, time.Hour)
	}
	if o.Held == nil {
		o.Held = func() []uuid.UUID { return nil }
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = store.Now
	}
	o.AllRoutes = o.Scopes == nil && (o.AllRoutes || o.MaxPerNamespace != nil)
	return o
}

func setDefault[T int | int64 | time.Duration](option *T, value T) {
	if *option <= 0 {
		*option = value
	}
}
