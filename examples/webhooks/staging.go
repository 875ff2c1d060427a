package main

import (
	"context"
	"fmt"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
)

// The history is the example's own table in the outbox's database: what
// happened to each workflow. A real engine's is longer; what matters is that
// both change in one transaction, so that neither tells of what the other has
// not got.
const (
	historyTable = `CREATE TABLE IF NOT EXISTS history (
	workflow_id TEXT NOT NULL,
	what        TEXT NOT NULL,  -- received, delivered or stopped
	detail      TEXT NOT NULL,
	PRIMARY KEY (workflow_id, what, detail)
) WITHOUT ROWID`

	// A run after a crash tells some of it again.
	insertHistory = `INSERT INTO history (workflow_id, what, detail) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`

	selectReceived   = `SELECT workflow_id FROM history WHERE what = 'received'`
	countOfDelivered = `SELECT count(*) FROM history WHERE what = 'delivered'`
)

func createHistory(ctx context.Context, store *outbox.Store) error {
	err := store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
		_, err := tx.ExecContext(ctx, historyTable)
		return err
	})
	if err != nil {
		return fmt.Errorf("create history: %w", err)
	}
	return nil
}

func writeHistory(ctx context.Context, tx outbox.Tx, workflow uuid.UUID, what, detail string) error {
	if _, err := tx.ExecContext(ctx, insertHistory, workflow.String(), what, detail); err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	return nil
}

// readHistory returns the workflows that were received, and how many rows were
// delivered.
func readHistory(ctx context.Context, store *outbox.Store) (received map[uuid.UUID]bool, delivered int, err error) {
	received = make(map[uuid.UUID]bool)
	err = store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
		if err := tx.QueryRowContext(ctx, countOfDelivered).Scan(&delivered); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, selectReceived)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var workflow uuid.UUID
			if err := rows.Scan(&workflow); err != nil {
				return err
			}
			received[workflow] = true
		}
		return rows.Err()
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read history: %w", err)
	}
	return received, delivered, nil
}

// stage writes each delivery down in a transaction of its own: that it was
// received, and a row for each subscriber. If the process dies, a delivery is
// there whole or not at all; what is there is passed over by the next run.
//
// One row is not left to the dispatchers: it is staged as claimed, and returned
// for somebody who goes away with it. If it was there before, there is none.
func stage(ctx context.Context, store *outbox.Store, deliveries []delivery, progress *progress) (away []outbox.Row, err error) {
	roles := castRoles(deliveries)
	for i, delivery := range deliveries {
		rows := fanOut(delivery)
		if delivery.workflow == roles.stops {
			// These are due so late that the workflow is stopped before.
			for j := range rows[1:] {
				rows[1+j].VisibleAfter = time.Now().AddDate(1, 0, 0)
			}
		}
		var taken []outbox.Row
		for j := range rows {
			if rows[j].DispatchKey == roles.away {
				rows[j].Status, rows[j].ClaimedAt = outbox.Claimed, time.Now()
				taken = append(taken, rows[j])
				taken[0].Fence = 1 // as every row has that is staged as claimed
			}
		}
		var duplicates []string
		err := store.Update(ctx, func(ctx context.Context, tx outbox.Tx) (err error) {
			if err := writeHistory(ctx, tx, delivery.workflow, "received", delivery.title()); err != nil {
				return err
			}
			duplicates, err = store.AppendTx(ctx, tx, rows...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("stage delivery %d: %w", i+1, err)
		}
		if len(duplicates) == 0 {
			away = append(away, taken...)
		}
		progress.staged(i+1, len(rows)-len(duplicates))
	}
	return away, nil
}

// fanOut returns the rows of a delivery, one for each subscriber.
func fanOut(d delivery) []outbox.Row {
	rows := make([]outbox.Row, len(subscribers))
	for i, subscriber := range subscribers {
		rows[i] = outbox.Row{
			DispatchKey:  outbox.DispatchKey(d.workflow, uint64(i)), // as it is by default
			WorkflowID:   d.workflow,
			Ordinal:      uint64(i),
			Namespace:    subscriber.scope.Namespace,
			TaskQueue:    subscriber.scope.TaskQueue,
			Node:         subscriber.scope.Node,
			ActivityType: activityPrefix + d.Event,
			Input:        outbox.Payload{ContentType: "application/json", Data: d.Payload},
		}
	}
	return rows
}

const activityPrefix = "deliver:"

// title is a short name of a delivery for people.
func (d delivery) title() string {
	title := d.Event
	if d.Action != "" {
		title += "." + d.Action
	}
	return title + " of " + d.Repository
}
