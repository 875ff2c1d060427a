// Package store is this module's store as a queue of the benchmark, over any
// driver.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"example.com/outbox"
	"example.com/outbox/bench/plain"
	"example.com/outbox/bench/workload"
	"github.com/google/uuid"
)

// Queue is a store over one file.
type Queue struct {
	*outbox.Store
	pool   *sql.DB // the host's; nil if Open made it
	driver string
	name   string
}

// With returns what opens a store with a driver.
func With(driver string) workload.Opener {
	return func(ctx context.Context, path string, full bool) (workload.Queue, error) {
		return open(ctx, driver, path, full)
	}
}

func open(ctx context.Context, driver, path string, full bool) (*Queue, error) {
	options := &outbox.Options{Synchronous: outbox.Normal}
	if full {
		options.Synchronous = outbox.Full
	}
	name := "file:" + path
	store, err := outbox.Open(ctx, driver, name, options)
	if err != nil {
		return nil, err
	}
	return &Queue{Store: store, driver: driver, name: name}, nil
}

// connections is how many Open lets a pool have.
const connections = 8

// On returns what makes a store over a pool of a host's, as large as those of
// Open and with a WAL. The parameters are what its driver is told beside the
// name. synchronous is SQLite's default, which is FULL.
func On(driver, parameters string) workload.Opener {
	return func(ctx context.Context, path string, full bool) (workload.Queue, error) {
		if !full {
			return nil, errors.New("the pool of a host is measured at FULL")
		}
		name := "file:" + path
		pool, err := sql.Open(driver, name+parameters)
		if err != nil {
			return nil, err
		}
		pool.SetMaxOpenConns(connections)
		pool.SetMaxIdleConns(connections)
		q := &Queue{Store: outbox.New(pool, nil), pool: pool, driver: driver, name: name}
		var mode string
		err = pool.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode)
		if err == nil && mode != "wal" {
			err = fmt.Errorf("the journal mode is %q", mode)
		}
		if err == nil {
			err = q.Migrate(ctx)
		}
		if err != nil {
			return nil, errors.Join(err, q.Close())
		}
		return q, nil
	}
}

// Close closes the host's pool too.
func (q *Queue) Close() error {
	err := q.Store.Close()
	if q.pool != nil {
		err = errors.Join(err, q.pool.Close())
	}
	return err
}

func (q *Queue) Append(ctx context.Context, rows []workload.Row) error {
	_, err := q.Store.Append(ctx, q.staged(rows)...)
	return err
}

// AppendSettled stores rows that are done.
func (q *Queue) AppendSettled(ctx context.Context, rows []workload.Row) error {
	staged := q.staged(rows)
	for i := range staged {
		staged[i].Status = outbox.Done
	}
	_, err := q.Store.Append(ctx, staged...)
	return err
}

func (q *Queue) staged(rows []workload.Row) []outbox.Row {
	staged := make([]outbox.Row, len(rows))
	for i, row := range rows {
		staged[i] = outbox.Row{
			DispatchKey:  row.Key,
			WorkflowID:   uuid.UUID(row.Workflow),
			Ordinal:      uint64(row.Ordinal),
			Namespace:    row.Namespace,
			ActivityType: plain.ActivityType,
			Input:        outbox.Payload{ContentType: plain.ContentType, Data: row.Payload},
			VisibleAfter: row.At,
		}
		if row.Delay > 0 {
			staged[i].VisibleAfter = row.Due(q.Now())
		}
	}
	return staged
}

func (q *Queue) Claim(ctx context.Context, limit int) ([]workload.Claimed, error) {
	rows, err := q.Store.Claim(ctx, limit)
	if err != nil {
		return nil, err
	}
	claimed := make([]workload.Claimed, len(rows))
	for i, row := range rows {
		claimed[i] = workload.Claimed{Payload: row.Input.Data, Handle: row.Ref()}
	}
	return claimed, nil
}

func (q *Queue) Complete(ctx context.Context, claimed []workload.Claimed) error {
	refs := make([]outbox.Ref, len(claimed))
	for i, row := range claimed {
		refs[i] = row.Handle.(outbox.Ref)
	}
	return q.Store.Complete(ctx, refs...)
}

var errCause = errors.New("the receiver did not answer")

func (q *Queue) Retry(ctx context.Context, row workload.Claimed) error {
	return q.Store.Retry(ctx, row.Handle.(outbox.Ref), 1, q.Now().Add(workload.RetryDelay), errCause)
}

func (q *Queue) Fail(ctx context.Context, row workload.Claimed) error {
	return q.Store.Fail(ctx, row.Handle.(outbox.Ref), errCause)
}

// Live counts by namespace, as the store does; rows are in more than the default
// one where all are spread.
func (q *Queue) Live(ctx context.Context) (int, error) {
	routes, err := q.PendingRoutes(ctx)
	if err != nil {
		return 0, err
	}
	namespaces := map[string]bool{outbox.DefaultRoute: true}
	for _, route := range routes {
		namespaces[route.Namespace] = true
	}
	live := 0
	for namespace := range namespaces {
		n, err := q.CountInFlight(ctx, namespace)
		if err != nil {
			return 0, err
		}
		live += int(n)
	}
	return live, nil
}

func (q *Queue) Unsettled(ctx context.Context) (int, error) {
	workflows, err := q.UnsettledWorkflows(ctx)
	return len(workflows), err
}

func (q *Queue) Snapshot(ctx context.Context) (func() error, error) {
	return workload.HoldSnapshot(ctx, q.driver, q.name)
}
