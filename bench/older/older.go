// Package older is the way of the store whose files ours reads, in Go and over
// any driver: one table with the first thirteen columns of ours, its key, one
// index, the payload as a JSON envelope, and for each call BEGIN IMMEDIATE, one
// plain statement a row and COMMIT. It has no fences, no reasons and no instants
// of settling, and it is told nothing of what a row was before.
package older

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"example.com/outbox/bench/plain"
	"example.com/outbox/bench/workload"
	"github.com/google/uuid"
)

const (
	table = `CREATE TABLE outbox (
	dispatch_key TEXT PRIMARY KEY,
	workflow_id TEXT NOT NULL,
	ordinal INTEGER NOT NULL,
	activity_type TEXT NOT NULL,
	input BLOB NOT NULL,
	status TEXT NOT NULL,
	attempt INTEGER NOT NULL,
	visible_after TEXT NOT NULL,
	claimed_at TEXT,
	run_id TEXT,
	namespace TEXT,
	task_queue TEXT,
	node TEXT
)`
	index = `CREATE INDEX outbox_due ON outbox (status, visible_after)`

	insert = `INSERT INTO outbox (dispatch_key, workflow_id, ordinal, activity_type, input, status, attempt, visible_after,
	namespace, task_queue)
VALUES (?, ?, ?, ?, ?, 'pending', 0, ?, ?, ?) ON CONFLICT (dispatch_key) DO NOTHING`

	// The columns come as blobs where a driver would take a text for an instant.
	dueRows = `SELECT dispatch_key, workflow_id, ordinal, activity_type, input, attempt, CAST(visible_after AS BLOB), run_id,
	namespace, task_queue, node
FROM outbox WHERE status = 'pending' AND visible_after <= ? ORDER BY visible_after LIMIT ?`

	claim    = `UPDATE outbox SET status = 'claimed', claimed_at = ? WHERE dispatch_key = ?`
	complete = `UPDATE outbox SET status = 'done', claimed_at = NULL WHERE dispatch_key = ?`
	retry    = `UPDATE outbox SET status = 'pending', claimed_at = NULL, attempt = ?, visible_after = ? WHERE dispatch_key = ?`
	fail     = `UPDATE outbox SET status = 'failed', claimed_at = NULL WHERE dispatch_key = ?`

	unsettled = `SELECT DISTINCT workflow_id FROM outbox WHERE status IN ('pending', 'claimed')`
	live      = `SELECT count(*) FROM outbox WHERE status IN ('pending', 'claimed')`
)

// queue is such a store. As it has one connection, its callers take turns.
type queue struct {
	mu   sync.Mutex // guards conn
	db   *sql.DB
	conn *sql.Conn
}

// With returns what opens such a store with a driver.
func With(driver string) workload.Opener {
	return func(ctx context.Context, path string, full bool) (workload.Queue, error) {
		db, err := sql.Open(driver, "file:"+path)
		if err != nil {
			return nil, err
		}
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		q := &queue{db: db, conn: conn}
		if err := q.create(ctx, full); err != nil {
			return nil, errors.Join(err, q.Close())
		}
		return q, nil
	}
}

func (q *queue) create(ctx context.Context, full bool) error {
	var mode string
	if err := q.conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return err
	}
	synchronous := "PRAGMA synchronous = NORMAL"
	if full {
		synchronous = "PRAGMA synchronous = FULL"
	}
	for _, statement := range []string{synchronous, table, index} {
		if _, err := q.conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (q *queue) within(ctx context.Context, fn func() error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, err := q.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if err := fn(); err != nil {
		_, undo := q.conn.ExecContext(ctx, "ROLLBACK")
		return errors.Join(err, undo)
	}
	_, err := q.conn.ExecContext(ctx, "COMMIT")
	return err
}

func (q *queue) Append(ctx context.Context, rows []workload.Row) error {
	return q.within(ctx, func() error {
		now := time.Now()
		for _, row := range rows {
			if _, err := q.conn.ExecContext(ctx, insert, row.Key, uuid.UUID(row.Workflow).String(), row.Ordinal,
				plain.ActivityType, envelope(row.Payload), instant(row.Due(now)), row.Namespace, plain.Route); err != nil {
				return err
			}
		}
		return nil
	})
}

// dueRow is what a claim hands out.
type dueRow struct {
	key, workflow, activity         string
	ordinal, attempt                int64
	visible                         []byte
	run, namespace, taskQueue, node sql.NullString
	input                           []byte
}

func (q *queue) Claim(ctx context.Context, limit int) (claimed []workload.Claimed, err error) {
	return claimed, q.within(ctx, func() error {
		now := instant(time.Now())
		rows, err := q.due(ctx, now, limit)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := q.one(ctx, claim, now, row.key); err != nil {
				return err
			}
			payload, err := opened(row.input)
			if err != nil {
				return err
			}
			claimed = append(claimed, workload.Claimed{Payload: payload, Handle: row.key})
		}
		return nil
	})
}

func (q *queue) due(ctx context.Context, now string, limit int) (due []dueRow, err error) {
	rows, err := q.conn.QueryContext(ctx, dueRows, now, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r dueRow
		if err := rows.Scan(&r.key, &r.workflow, &r.ordinal, &r.activity, &r.input, &r.attempt, &r.visible, &r.run,
			&r.namespace, &r.taskQueue, &r.node); err != nil {
			return nil, err
		}
		due = append(due, r)
	}
	return due, rows.Err()
}

// one runs a statement that must change one row.
func (q *queue) one(ctx context.Context, statement string, args ...any) error {
	result, err := q.conn.ExecContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return fmt.Errorf("%d rows were changed and should be 1: %w", n, err)
	}
	return nil
}

func (q *queue) Complete(ctx context.Context, claimed []workload.Claimed) error {
	return q.within(ctx, func() error {
		for _, row := range claimed {
			if err := q.one(ctx, complete, row.Handle); err != nil {
				return err
			}
		}
		return nil
	})
}

func (q *queue) Retry(ctx context.Context, row workload.Claimed) error {
	return q.within(ctx, func() error {
		return q.one(ctx, retry, 1, instant(time.Now().Add(workload.RetryDelay)), row.Handle)
	})
}

func (q *queue) Fail(ctx context.Context, row workload.Claimed) error {
	return q.within(ctx, func() error { return q.one(ctx, fail, row.Handle) })
}

func (q *queue) Live(ctx context.Context) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	err = q.conn.QueryRowContext(ctx, live).Scan(&n)
	return n, err
}

func (q *queue) Unsettled(ctx context.Context) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	rows, err := q.conn.QueryContext(ctx, unsettled)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var workflows []uuid.UUID
	for rows.Next() {
		var workflow uuid.UUID
		if err := rows.Scan(&workflow); err != nil {
			return 0, err
		}
		workflows = append(workflows, workflow)
	}
	return len(workflows), rows.Err()
}

func (q *queue) Close() error { return errors.Join(q.conn.Close(), q.db.Close()) }

func instant(t time.Time) string { return t.UTC().Format(plain.Instant) }

// The envelope of a payload: its bytes are an array of numbers.
const (
	envelopeStart = `{"content_type":"Json","bytes":[`
	envelopeEnd   = `]}`
)

func envelope(payload []byte) []byte {
	text := make([]byte, 0, len(envelopeStart)+4*len(payload)+len(envelopeEnd))
	text = append(text, envelopeStart...)
	for i, b := range payload {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendUint(text, uint64(b), 10)
	}
	return append(text, envelopeEnd...)
}

// opened is the reverse of envelope. It reads only what that writes, so that no
// reader of JSON slows this way down.
func opened(text []byte) ([]byte, error) {
	if len(text) < len(envelopeStart)+len(envelopeEnd) || string(text[:len(envelopeStart)]) != envelopeStart {
		return nil, errors.New("the input is no envelope")
	}
	payload := make([]byte, 0, len(text)/3)
	var number uint
	for _, c := range text[len(envelopeStart) : len(text)-len(envelopeEnd)] {
		if c == ',' {
			payload, number = append(payload, byte(number)), 0
			continue
		}
		number = 10*number + uint(c-'0')
	}
	return append(payload, byte(number)), nil
}
