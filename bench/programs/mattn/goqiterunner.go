package main

import (
	"context"
	"database/sql"
	"time"

	"example.com/outbox/bench/workload"
	"maragu.dev/goqite/jobs"
)

// runnerQueue has goqite's own runner work its jobs off.
type runnerQueue struct{ *batchedQueue }

// jobName is that of all jobs.
const jobName = "job"

func openRunner(ctx context.Context, path string, full bool) (workload.Queue, error) {
	q, err := openGoqite(ctx, path, full, manyConnections)
	if err != nil {
		return nil, err
	}
	return &runnerQueue{&batchedQueue{q}}, nil
}

func (q *runnerQueue) Append(ctx context.Context, rows []workload.Row) error {
	return q.within(ctx, func(tx *sql.Tx) error {
		for _, row := range rows {
			if _, err := jobs.CreateTx(ctx, tx, q.queue, jobName, message(row)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (q *runnerQueue) Claim(context.Context, int) ([]workload.Claimed, error) {
	return nil, workload.ErrUnsupported
}

func (q *runnerQueue) Complete(context.Context, []workload.Claimed) error {
	return workload.ErrUnsupported
}

// Dispatch polls as often as it may.
func (q *runnerQueue) Dispatch(ctx context.Context, handle func([]byte)) (stop func() error, err error) {
	runner := jobs.NewRunner(jobs.NewRunnerOpts{Limit: 100, PollInterval: time.Millisecond, Queue: q.queue})
	runner.Register(jobName, func(_ context.Context, body []byte) error {
		handle(body)
		return nil
	})
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runner.Start(ctx)
	}()
	return func() error {
		cancel()
		<-ended
		return nil
	}, nil
}
