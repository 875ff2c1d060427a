// Program outbox is this module's store over go-libsql, and beside it a plain
// port of the hand-written table to the same driver.
package main

import (
	"context"

	"example.com/outbox"
	"example.com/outbox/bench/plain"
	"example.com/outbox/bench/workload"
	"github.com/google/uuid"
	_ "github.com/tursodatabase/go-libsql"
)

func main() {
	workload.Main(map[string]workload.Opener{
		"outbox":          openStore,
		"outbox-dispatch": openDispatcher,
		"port":            openPort,
	})
}

type queue struct {
	store *outbox.Store
	name  string
}

func openStore(ctx context.Context, path string, full bool) (workload.Queue, error) {
	options := &outbox.Options{Synchronous: outbox.Normal}
	if full {
		options.Synchronous = outbox.Full
	}
	store, err := outbox.Open(ctx, "libsql", "file:"+path, options)
	if err != nil {
		return nil, err
	}
	return &queue{store, "file:" + path}, nil
}

func (q *queue) Append(ctx context.Context, rows []workload.Row) error {
	staged := make([]outbox.Row, len(rows))
	for i, row := range rows {
		staged[i] = outbox.Row{
			DispatchKey:  row.Key,
			WorkflowID:   uuid.UUID(row.Workflow),
			Ordinal:      uint64(row.Ordinal),
			ActivityType: plain.ActivityType,
			Input:        outbox.Payload{ContentType: plain.ContentType, Data: row.Payload},
		}
		if row.Delay > 0 {
			staged[i].VisibleAfter = now().Add(row.Delay)
		}
	}
	_, err := q.store.Append(ctx, staged...)
	return err
}

func (q *queue) Claim(ctx context.Context, limit int) ([]workload.Claimed, error) {
	rows, err := q.store.Claim(ctx, limit)
	if err != nil {
		return nil, err
	}
	claimed := make([]workload.Claimed, len(rows))
	for i, row := range rows {
		claimed[i] = workload.Claimed{Payload: row.Input.Data, Handle: row.Ref()}
	}
	return claimed, nil
}

func (q *queue) Complete(ctx context.Context, claimed []workload.Claimed) error {
	refs := make([]outbox.Ref, len(claimed))
	for i, row := range claimed {
		refs[i] = row.Handle.(outbox.Ref)
	}
	return q.store.Complete(ctx, refs...)
}

func (q *queue) Live(ctx context.Context) (int, error) {
	n, err := q.store.CountInFlight(ctx, outbox.DefaultRoute)
	return int(n), err
}

func (q *queue) Snapshot(ctx context.Context) (func() error, error) {
	return workload.HoldSnapshot(ctx, "libsql", q.name)
}

func (q *queue) Close() error { return q.store.Close() }
