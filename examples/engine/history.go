package main

import (
	"context"
	"fmt"

	"example.com/outbox"
	"github.com/google/uuid"
)

// The history is the engine's own table in the outbox's database.
const (
	historyTable = `CREATE TABLE IF NOT EXISTS history (
	workflow_id TEXT NOT NULL,
	number      INTEGER NOT NULL,  -- from 1 in each workflow
	run_id      TEXT NOT NULL,
	what        TEXT NOT NULL,
	detail      TEXT NOT NULL,
	PRIMARY KEY (workflow_id, number)
) WITHOUT ROWID`

	selectHistory = `SELECT run_id, what, detail FROM history WHERE workflow_id = ? ORDER BY number`
	insertEvent   = `INSERT INTO history (workflow_id, number, run_id, what, detail) VALUES (?, ?, ?, ?, ?)`
)

// replay reads a workflow. The history of one that does not exist is empty.
func replay(ctx context.Context, tx outbox.Tx, id uuid.UUID) (*workflow, error) {
	rows, err := tx.QueryContext(ctx, selectHistory, id.String())
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	defer rows.Close()
	w := &workflow{id: id}
	for rows.Next() {
		var e event
		if err := rows.Scan(&e.run, &e.what, &e.detail); err != nil {
			return nil, fmt.Errorf("read history: %w", err)
		}
		w.apply(e)
	}
	return w, rows.Err()
}

// record makes something happen in the present run, or starts a new one.
func (w *workflow) record(ctx context.Context, tx outbox.Tx, what, detail string) error {
	e := event{run: w.run, what: what, detail: detail}
	if what == started {
		e.run = uuid.New()
	}
	_, err := tx.ExecContext(ctx, insertEvent, w.id.String(), len(w.history)+1, e.run.String(), what, detail)
	if err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	w.apply(e)
	return nil
}
