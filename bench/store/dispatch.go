package store

import (
	"context"
	"errors"
	"log/slog"

	"example.com/outbox"
	"example.com/outbox/bench/workload"
	"example.com/outbox/dispatch"
)

// dispatcher is a queue that package dispatch works off, with as many handlers
// as the peers have.
type dispatcher struct{ *Queue }

const handlers = 100

// Dispatched returns what opens a store with a driver that package dispatch
// works off.
func Dispatched(driver string) workload.Opener {
	return func(ctx context.Context, path string, full bool) (workload.Queue, error) {
		q, err := open(ctx, driver, path, full)
		if err != nil {
			return nil, err
		}
		return dispatcher{q}, nil
	}
}

func (d dispatcher) Claim(context.Context, int) ([]workload.Claimed, error) {
	return nil, workload.ErrUnsupported
}

func (d dispatcher) Complete(context.Context, []workload.Claimed) error {
	return workload.ErrUnsupported
}

func (d dispatcher) Dispatch(ctx context.Context, handle func([]byte)) (stop func() error, err error) {
	loop := dispatch.New(d.Store, func(_ context.Context, row outbox.Row) error {
		handle(row.Input.Data)
		return nil
	}, &dispatch.Options{Concurrency: handlers, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- loop.Run(ctx) }()
	return func() error {
		cancel()
		return errors.Join(<-ended)
	}, nil
}
