package dispatch

import (
	"context"
	"log/slog"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
)

// Handler handles a claimed row. Its context ends when the claim is lost
// (context.Cause is then outbox.ErrClaimLost), when it has run for
// Options.HandlerTimeout (ErrHandlerTimeout), and when a shutdown has waited long
// enough (ErrShutdown). It also ends once the row is settled, so work that goes on
// after Accepted needs a context of its own.
//
// The handler may keep and change the row and its payload.
type Handler func(ctx context.Context, row outbox.Row) error

// Options configures a Dispatcher. A nil *Options means the zero value, which is
// good for production on one machine. Where zero stands for a default, every
// negative value stands for the same default.
//
// The functions may be called from several goroutines at once. A panic in one of
// them does not end the process: it is logged, and each field says what happens
// next. An error whose methods panic is replaced by one that says so. The
// functions, other than the handler, must not call runtime.Goexit, which includes
// testing.T.FailNow.
type Options struct {
	// Scopes are the routes to claim, taken in turn, a few rows of each. Nil:
	// the rows that have been due longest, whatever their route or node; or,
	// with AllRoutes or MaxPerNamespace, all routes in turn.
	Scopes []outbox.Scope

	// AllRoutes takes all routes that have due rows in turn, instead of the rows
	// that have been due longest. One tenant with a hundred thousand rows then
	// delays the first row of another by one round at most. Routes pinned to
	// Node and unpinned routes are taken. Ignored with Scopes.
	AllRoutes bool

	// Node is this node's name, for AllRoutes and for MaxPerNamespace without
	// Scopes: rows pinned to it are claimed along with unpinned ones.
	Node string

	// Concurrency is how many handlers run at once. Zero: 32, or with a Pool
	// as many as the Pool allows.
	Concurrency int

	// Pool is shared with other Dispatchers, usually of other Stores: together
	// they run no more handlers at once than the Pool allows. Nil: Concurrency
	// alone is the limit.
	Pool *Pool

	// MaxPerNamespace is how many rows of a namespace may be claimed at once,
	// whoever claimed them. A result below zero counts as zero. Before each
	// claim it is asked, and the rows already claimed are counted; several
	// processes that claim at the same moment can exceed the limit. If it
	// panics, nothing of that namespace is claimed until it is asked again.
	// Without Scopes it implies AllRoutes. Nil: no limit. See Limit.
	MaxPerNamespace func(namespace string) int

	// HeldContext returns the workflows that are held, that is paused. Their
	// rows stay pending. It is asked before each claim, so a row that was
	// claimed just before its workflow was paused may still start just after.
	// If it fails or panics, nothing is claimed until it answers again; it is
	// asked again after a pause that grows up to 10 s. Nil: none.
	HeldContext func(ctx context.Context) ([]uuid.UUID, error)

	// Held is a HeldContext that cannot fail, for a list that is at hand. With
	// both, the workflows that either returns are held.
	Held func() []uuid.UUID

	// MaxAttempts is how many attempts a row has: when the last one fails, the
	// row becomes a dead letter. Zero: 20.
	MaxAttempts int

	// Backoff is how long a row waits after its n-th attempt failed, n counting
	// from 0. If it is not positive, the row is due at once. If Backoff panics,
	// the default is used. Nil: Exponential(time.Second, time.Hour).
	Backoff func(attempt uint32) time.Duration

	// MaxClaims is how many claims of a row may end without its being settled,
	// as happens if it kills its worker. A row whose claim goes stale once more
	// becomes a dead letter. What is counted is its Fence less its Attempt, so
	// claims that a shutdown gave back, and those before a Rearm or Requeue,
	// count as well. Zero: 20.
	MaxClaims int

	// HandlerTimeout ends a handler's context. Zero: no limit.
	HandlerTimeout time.Duration

	// PollInterval is the longest that the loop sleeps before it looks for rows
	// again. Rows staged through its Store, commits by others to the same file,
	// and a row falling due all wake it sooner, so this matters on servers and
	// replicas. Zero: 1 s.
	PollInterval time.Duration

	// Lease is the age at which a claim is stale and is taken back, by this or
	// another Dispatcher on the database. Give all of them the same. While a
	// handler runs, its claim is extended three times in a lease, and no
	// Dispatcher of this process on the same Store takes it back, even after
	// the machine was suspended. Work that was Accepted is not extended: whoever
	// took it over calls Store.Extend, or completes it in time. Zero: 1 minute.
	Lease time.Duration

	// ReconcileInterval is how often the Dispatcher looks for stale claims.
	// Zero: half the Lease.
	ReconcileInterval time.Duration

	// ShutdownTimeout is how long handlers may go on after Run's context has
	// ended, before their own contexts end. Zero: 10 s.
	ShutdownTimeout time.Duration

	// Terminal reports whether a workflow has ended, so that its rows are
	// settled instead of dispatched. It is asked about the workflows of stale
	// claims before these are taken back, and at the start about every
	// workflow with a live row. If it fails or panics, nothing is taken back
	// until it is asked again, a ReconcileInterval later. Nil: none has ended.
	Terminal func(ctx context.Context, workflowID uuid.UUID) (bool, error)

	// Observer is told what happens. Its zero value ignores everything.
	Observer Observer

	// Logger gets trouble, stale claims and dead letters as warnings, and other
	// outcomes as debug messages. Trouble that repeats (the same operation, the
	// same kind of error) is logged at once, and then at intervals that grow
	// from 1 s to 10 minutes, with the number left out. Nil: slog.Default().
	Logger *slog.Logger

	// Now is the clock for the instants that the Dispatcher computes. It must
	// not differ much from the Store's, which sets the times of claims. If it
	// panics, Store.Now is used. Nil: Store.Now.
	Now func() time.Time
}

// withDefaults fills in what is unset, except the functions.
func (o Options) withDefaults() Options {
	setDefault(&o.Concurrency, o.Pool.sizeOr(32))
	setDefault(&o.MaxAttempts, 20)
	setDefault(&o.MaxClaims, 20)
	setDefault(&o.PollInterval, time.Second)
	setDefault(&o.Lease, time.Minute)
	setDefault(&o.ReconcileInterval, max(o.Lease/2, 1))
	setDefault(&o.ShutdownTimeout, 10*time.Second)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Logger = slog.New(guardedHandler{o.Logger.Handler()})
	o.AllRoutes = o.Scopes == nil && (o.AllRoutes || o.MaxPerNamespace != nil)
	return o
}

func setDefault[T int | time.Duration](option *T, value T) {
	if *option <= 0 {
		*option = value
	}
}
