package workload

import (
	"context"
	"errors"
	"time"
)

// Queue is one of the systems that are compared, over one database file.
type Queue interface {
	// Append stages rows in one transaction, or in one each if the system
	// knows no other way.
	Append(ctx context.Context, rows []Row) error

	// Claim takes up to limit due rows, with their payloads.
	Claim(ctx context.Context, limit int) ([]Claimed, error)

	// Complete settles what was claimed.
	Complete(ctx context.Context, claimed []Claimed) error

	// Live counts the rows that are not settled.
	Live(ctx context.Context) (int, error)

	Close() error
}

// Dispatcher is a Queue that hands rows out by itself and settles them when the
// handler returns. It need not have Claim and Complete.
type Dispatcher interface {
	Queue

	// Dispatch hands rows to handle, on many goroutines, until the context ends
	// or stop is called, which also makes what was claimed and not settled
	// pending again.
	Dispatch(ctx context.Context, handle func(payload []byte)) (stop func() error, err error)
}

// Settler is a Queue whose rows can also be settled in the other ways.
type Settler interface {
	Queue

	// Retry makes a claimed row pending again, to be claimed an hour later.
	Retry(ctx context.Context, row Claimed) error

	// Fail settles a claimed row for good.
	Fail(ctx context.Context, row Claimed) error
}

// Lister is a Queue that knows its workflows.
type Lister interface {
	Queue

	// Unsettled counts the workflows that have a row that is not settled, by
	// listing them.
	Unsettled(ctx context.Context) (int, error)
}

// Archiver is a Queue that can be given rows which were settled elsewhere.
type Archiver interface {
	Queue

	// AppendSettled stores rows that are done.
	AppendSettled(ctx context.Context, rows []Row) error
}

// Splitter is a Queue that can tell where the time of a claim goes.
type Splitter interface {
	Queue

	// Split claims up to limit rows, and returns what parts that took.
	Split(ctx context.Context, limit int) (Figures, []Claimed, error)
}

// RetryDelay is how long after its Retry a row can be claimed again.
const RetryDelay = time.Hour

// ErrUnsupported is returned by Claim and Complete of a Dispatcher that has none.
var ErrUnsupported = errors.New("the system has no such call")

// Row is one row to be staged.
type Row struct {
	Key      string
	Workflow [16]byte // a UUID
	Ordinal  int
	Delay    time.Duration
	Payload  []byte // JSON, as some of the systems take nothing else

	Namespace string    // the route, where a system knows routes
	At        time.Time // when it is due; zero: after Delay
}

// Due is when the row can be claimed if it is staged at now.
func (r *Row) Due(now time.Time) time.Time {
	if r.At.IsZero() {
		return now.Add(r.Delay)
	}
	return r.At
}

// Claimed is a row that was claimed: its payload, and what the system needs to
// settle it.
type Claimed struct {
	Payload []byte
	Handle  any
}

// Opener opens a new database or the one at path, in WAL mode.
type Opener func(ctx context.Context, path string, full bool) (Queue, error)
