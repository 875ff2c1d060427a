package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"example.com/outbox/bench/workload"
	"github.com/mikestefanello/backlite"
)

// backliteQueue calls backlite, whose dispatcher is its only way to claim.
type backliteQueue struct {
	db     *sql.DB
	client *backlite.Client // that stages
}

const backliteWorkers = 100

// task is the payload as it is.
type task struct{ json.RawMessage }

func (task) Config() backlite.QueueConfig {
	return backlite.QueueConfig{Name: "bench", MaxAttempts: 3}
}

func openBacklite(_ context.Context, path string, full bool) (workload.Queue, error) {
	db, err := open(path, full, "", manyConnections)
	if err != nil {
		return nil, err
	}
	q := &backliteQueue{db: db}
	if q.client, err = q.newClient(); err == nil {
		err = q.client.Install()
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return q, nil
}

func (q *backliteQueue) newClient() (*backlite.Client, error) {
	return backlite.NewClient(backlite.ClientConfig{DB: q.db, NumWorkers: backliteWorkers, ReleaseAfter: time.Hour})
}

func (q *backliteQueue) Append(ctx context.Context, rows []workload.Row) error {
	tasks := make([]backlite.Task, len(rows))
	for i, row := range rows {
		tasks[i] = task{row.Payload}
	}
	op := q.client.Add(tasks...).Ctx(ctx)
	if rows[0].Delay > 0 {
		op.Wait(rows[0].Delay) // the same for all
	}
	_, err := op.Save()
	return err
}

func (q *backliteQueue) Claim(context.Context, int) ([]workload.Claimed, error) {
	return nil, workload.ErrUnsupported
}

func (q *backliteQueue) Complete(context.Context, []workload.Claimed) error {
	return workload.ErrUnsupported
}

func (q *backliteQueue) Dispatch(ctx context.Context, handle func([]byte)) (func() error, error) {
	client, err := q.newClient()
	if err != nil {
		return nil, err
	}
	client.Register(backlite.NewQueue(func(_ context.Context, t task) error {
		handle(t.RawMessage)
		return nil
	}))
	running, cancel := context.WithCancel(ctx)
	client.Start(running)
	return func() error {
		cancel()
		_, err := q.db.Exec("UPDATE backlite_tasks SET claimed_at = NULL, attempts = 0 WHERE claimed_at IS NOT NULL")
		return err
	}, nil
}

func (q *backliteQueue) Live(ctx context.Context) (int, error) {
	return count(ctx, q.db, "SELECT count(*) FROM backlite_tasks")
}

func (q *backliteQueue) Close() error { return q.db.Close() }
