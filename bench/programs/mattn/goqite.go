package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"example.com/outbox/bench/workload"
	"maragu.dev/goqite"
)

// goqiteQueue calls goqite as its API goes: one message a transaction. It has no
// keys and keeps nothing of what is settled, so it has less to do.
type goqiteQueue struct {
	db    *sql.DB
	queue *goqite.Queue
}

// goqiteSchema names the file of the schema that goqite ships and does not embed.
const goqiteSchema = "GOQITE_SCHEMA"

func openGoqite(ctx context.Context, path string, full bool, connections int) (*goqiteQueue, error) {
	schema, err := os.ReadFile(os.Getenv(goqiteSchema))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", goqiteSchema, err)
	}
	db, err := open(path, full, "&_fk=true", connections)
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, string(schema)); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &goqiteQueue{db, goqite.New(goqite.NewOpts{DB: db, Name: "bench", Timeout: time.Hour})}, nil
}

func message(row workload.Row) goqite.Message {
	return goqite.Message{Body: row.Payload, Delay: row.Delay}
}

func (q *goqiteQueue) Append(ctx context.Context, rows []workload.Row) error {
	if len(rows) >= filling {
		return (&batchedQueue{q}).Append(ctx, rows)
	}
	for _, row := range rows {
		if err := q.queue.Send(ctx, message(row)); err != nil {
			return err
		}
	}
	return nil
}

// filling is how many rows come at once when a backlog is made, which is not
// measured.
const filling = 1000

func (q *goqiteQueue) Claim(ctx context.Context, limit int) (claimed []workload.Claimed, err error) {
	for range limit {
		m, err := q.queue.Receive(ctx)
		if err != nil || m == nil {
			return claimed, err
		}
		claimed = append(claimed, workload.Claimed{Payload: m.Body, Handle: m.ID})
	}
	return claimed, nil
}

func (q *goqiteQueue) Complete(ctx context.Context, claimed []workload.Claimed) error {
	for _, row := range claimed {
		if err := q.queue.Delete(ctx, row.Handle.(goqite.ID)); err != nil {
			return err
		}
	}
	return nil
}

func (q *goqiteQueue) Live(ctx context.Context) (int, error) {
	return count(ctx, q.db, "SELECT count(*) FROM goqite")
}

func (q *goqiteQueue) Close() error { return q.db.Close() }

// batchedQueue has many messages share a transaction of the caller's.
type batchedQueue struct{ *goqiteQueue }

func openBatched(ctx context.Context, path string, full bool) (workload.Queue, error) {
	q, err := openGoqite(ctx, path, full, manyConnections)
	if err != nil {
		return nil, err
	}
	return &batchedQueue{q}, nil
}

func (q *batchedQueue) within(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := q.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (q *batchedQueue) Append(ctx context.Context, rows []workload.Row) error {
	return q.within(ctx, func(tx *sql.Tx) error {
		for _, row := range rows {
			if err := q.queue.SendTx(ctx, tx, message(row)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (q *batchedQueue) Claim(ctx context.Context, limit int) (claimed []workload.Claimed, err error) {
	return claimed, q.within(ctx, func(tx *sql.Tx) error {
		for range limit {
			m, err := q.queue.ReceiveTx(ctx, tx)
			if err != nil || m == nil {
				return err
			}
			claimed = append(claimed, workload.Claimed{Payload: m.Body, Handle: m.ID})
		}
		return nil
	})
}

func (q *batchedQueue) Complete(ctx context.Context, claimed []workload.Claimed) error {
	return q.within(ctx, func(tx *sql.Tx) error {
		for _, row := range claimed {
			if err := q.queue.DeleteTx(ctx, tx, row.Handle.(goqite.ID)); err != nil {
				return err
			}
		}
		return nil
	})
}
