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

// ErrUnsupported is returned by Claim and Complete of a Dispatcher that has none.
var ErrUnsupported = errors.New("the system has no such call")

// Row is one row to be staged.
type Row struct {
	Key      string
	Workflow [16]byte // a UUID
	Ordinal  int
	Delay    time.Duration
	Payload  []byte // JSON, as some of the systems take nothing else
}

// Claimed is a row that was claimed: its payload, and what the system needs to
// settle it.
type Claimed struct {
	Payload []byte
	Handle  any
}

// Opener opens a new database or the one at path, in WAL mode.
type Opener func(ctx context.Context, path string, full bool) (Queue, error)
