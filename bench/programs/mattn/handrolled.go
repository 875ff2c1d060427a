package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"example.com/outbox/bench/plain"
	"example.com/outbox/bench/workload"
	"github.com/google/uuid"
)

// handrolled is what a program does that has a table instead of a library:
// prepared statements, immediate transactions, one connection that writes.
type handrolled struct {
	db                      *sql.DB
	name                    string
	insert, claim, complete *sql.Stmt
}

type handle struct{ id, fence int64 }

func openHandrolled(ctx context.Context, path string, full bool) (workload.Queue, error) {
	db, err := open(path, full, "&_txlock=immediate", 1)
	if err != nil {
		return nil, err
	}
	h := &handrolled{db: db, name: "file:" + path}
	for _, statement := range []string{plain.Table, plain.PendingIndex, plain.ClaimedIndex} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	for _, prepared := range []struct {
		to   **sql.Stmt
		text string
	}{{&h.insert, plain.Insert}, {&h.claim, plain.Claim}, {&h.complete, plain.Complete}} {
		if *prepared.to, err = db.PrepareContext(ctx, prepared.text); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return h, nil
}

func (h *handrolled) within(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := h.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (h *handrolled) Append(ctx context.Context, rows []workload.Row) error {
	return h.within(ctx, func(tx *sql.Tx) error {
		insert := tx.StmtContext(ctx, h.insert)
		now := time.Now().UTC()
		for _, row := range rows {
			_, err := insert.ExecContext(ctx, row.Key, uuid.UUID(row.Workflow).String(), row.Ordinal,
				plain.ActivityType, row.Payload, now.Add(row.Delay).Format(plain.Instant),
				plain.Route, plain.Route, plain.ContentType, now.Format(plain.Instant))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (h *handrolled) Claim(ctx context.Context, limit int) (claimed []workload.Claimed, err error) {
	return claimed, h.within(ctx, func(tx *sql.Tx) error {
		rows, err := tx.StmtContext(ctx, h.claim).QueryContext(ctx, time.Now().UTC().Format(plain.Instant), limit)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var (
				handle                                               handle
				ordinal, attempt                                     int64
				key, workflow, activity, namespace, queue, mediaType string
				visible, created                                     string
				payload                                              []byte
			)
			if err := rows.Scan(&handle.id, &key, &workflow, &ordinal, &activity, &payload, &attempt, &visible,
				&namespace, &queue, &mediaType, &handle.fence, &created); err != nil {
				return err
			}
			claimed = append(claimed, workload.Claimed{Payload: payload, Handle: handle})
		}
		return rows.Err()
	})
}

func (h *handrolled) Complete(ctx context.Context, claimed []workload.Claimed) error {
	return h.within(ctx, func(tx *sql.Tx) error {
		complete := tx.StmtContext(ctx, h.complete)
		now := time.Now().UTC().Format(plain.Instant)
		for _, row := range claimed {
			handle := row.Handle.(handle)
			result, err := complete.ExecContext(ctx, now, handle.id, handle.fence)
			if err != nil {
				return err
			}
			if n, err := result.RowsAffected(); err != nil || n != 1 {
				return fmt.Errorf("claim of row %d was lost: %w", handle.id, err)
			}
		}
		return nil
	})
}

func (h *handrolled) Live(ctx context.Context) (int, error) { return count(ctx, h.db, plain.Live) }

func (h *handrolled) Snapshot(ctx context.Context) (func() error, error) {
	return workload.HoldSnapshot(ctx, "sqlite3", h.name)
}

func (h *handrolled) Close() error { return h.db.Close() }
