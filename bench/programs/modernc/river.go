package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"example.com/outbox/bench/workload"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

type riverQueue struct {
	db     *sql.DB
	driver *riversqlite.Driver
	client *river.Client[*sql.Tx] // that stages
}

// job is the payload as it is.
type job struct{ json.RawMessage }

func (job) Kind() string { return "activity" }

// openRiver opens a pool of one connection, as River advises for SQLite.
func openRiver(ctx context.Context, path string, full bool) (workload.Queue, error) {
	synchronous := "NORMAL"
	if full {
		synchronous = "FULL"
	}
	db, err := sql.Open("sqlite", fmt.Sprintf(
		"file:%s?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_pragma=synchronous(%s)&_txlock=immediate", path, synchronous))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	q := &riverQueue{db: db, driver: riversqlite.New(db)}
	migrator, err := rivermigrate.New(q.driver, &rivermigrate.Config{Logger: silent()})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err == nil {
		q.client, err = river.NewClient(q.driver, &river.Config{Logger: silent()})
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return q, nil
}

func silent() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func (q *riverQueue) Append(ctx context.Context, rows []workload.Row) error {
	jobs := make([]river.InsertManyParams, len(rows))
	for i, row := range rows {
		var opts *river.InsertOpts
		if row.Delay > 0 {
			opts = &river.InsertOpts{ScheduledAt: time.Now().Add(row.Delay)}
		}
		jobs[i] = river.InsertManyParams{Args: job{row.Payload}, InsertOpts: opts}
	}
	if len(jobs) == 1 {
		_, err := q.client.Insert(ctx, jobs[0].Args, jobs[0].InsertOpts)
		return err
	}
	_, err := q.client.InsertMany(ctx, jobs)
	return err
}

// Claim is the driver's call that a client's producer makes.
func (q *riverQueue) Claim(ctx context.Context, limit int) ([]workload.Claimed, error) {
	result, err := q.driver.GetExecutor().JobGetAvailable(ctx, &riverdriver.JobGetAvailableParams{
		ClientID:       "bench",
		MaxAttemptedBy: 100,
		MaxToLock:      limit,
		Queue:          river.QueueDefault,
	})
	if err != nil {
		return nil, err
	}
	claimed := make([]workload.Claimed, len(result.Jobs))
	for i, row := range result.Jobs {
		claimed[i] = workload.Claimed{Payload: row.EncodedArgs, Handle: row.ID}
	}
	return claimed, nil
}

// Complete is the driver's call that a client's completer makes.
func (q *riverQueue) Complete(ctx context.Context, claimed []workload.Claimed) error {
	n := len(claimed)
	now := time.Now()
	params := &riverdriver.JobSetStateIfRunningManyParams{
		ID:              make([]int64, n),
		Attempt:         make([]*int, n),
		ErrData:         make([][]byte, n),
		FinalizedAt:     make([]*time.Time, n),
		MetadataDoMerge: make([]bool, n),
		MetadataUpdates: make([][]byte, n),
		ScheduledAt:     make([]*time.Time, n),
		State:           make([]rivertype.JobState, n),
	}
	for i, row := range claimed {
		params.ID[i] = row.Handle.(int64)
		params.FinalizedAt[i] = &now
		params.State[i] = rivertype.JobStateCompleted
	}
	completed, err := q.driver.GetExecutor().JobSetStateIfRunningMany(ctx, params)
	if err == nil && len(completed) != n {
		err = fmt.Errorf("%d jobs were completed and should be %d", len(completed), n)
	}
	return err
}

// worker works a job.
type worker struct {
	river.WorkerDefaults[job]
	handle func([]byte)
}

func (w *worker) Work(_ context.Context, j *river.Job[job]) error {
	w.handle(j.EncodedArgs)
	return nil
}

// Dispatch starts a client that polls as often as it may.
func (q *riverQueue) Dispatch(ctx context.Context, handle func([]byte)) (func() error, error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{handle: handle})
	client, err := river.NewClient(q.driver, &river.Config{
		FetchCooldown:     river.FetchCooldownMin,
		FetchPollInterval: river.FetchPollIntervalMin,
		Logger:            silent(),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}},
		Workers:           workers,
	})
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	return func() error { return client.Stop(ctx) }, nil
}

func (q *riverQueue) Live(ctx context.Context) (n int, err error) {
	err = q.db.QueryRowContext(ctx,
		"SELECT count(*) FROM river_job WHERE state IN ('available', 'running', 'scheduled')").Scan(&n)
	return n, err
}

func (q *riverQueue) Close() error { return q.db.Close() }
