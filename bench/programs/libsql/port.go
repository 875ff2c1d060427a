package main

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"example.com/outbox/bench/plain"
	"example.com/outbox/bench/workload"
	"github.com/google/uuid"
)

// port is what remains of the hand-written program on go-libsql without further
// thought: the same statements, one a row. The driver keeps no statement
// prepared, and has no way to ask for an immediate transaction but to send it.
type port struct {
	mu   sync.Mutex // guards conn
	db   *sql.DB
	conn *sql.Conn
	name string
}

type portHandle struct{ id, fence int64 }

func openPort(ctx context.Context, path string, full bool) (workload.Queue, error) {
	db, err := sql.Open("libsql", "file:"+path)
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	p := &port{db: db, conn: conn, name: "file:" + path}
	synchronous := "PRAGMA synchronous = NORMAL"
	if full {
		synchronous = "PRAGMA synchronous = FULL"
	}
	var mode string
	err = conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode)
	for _, statement := range []string{synchronous, plain.Table, plain.PendingIndex, plain.ClaimedIndex} {
		if err == nil {
			_, err = conn.ExecContext(ctx, statement)
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *port) within(ctx context.Context, fn func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if err := fn(); err != nil {
		_, undo := p.conn.ExecContext(ctx, "ROLLBACK")
		return errors.Join(err, undo)
	}
	_, err := p.conn.ExecContext(ctx, "COMMIT")
	return err
}

func (p *port) Append(ctx context.Context, rows []workload.Row) error {
	return p.within(ctx, func() error {
		staged := now()
		for _, row := range rows {
			_, err := p.conn.ExecContext(ctx, plain.Insert, row.Key, uuid.UUID(row.Workflow).String(), row.Ordinal,
				plain.ActivityType, row.Payload, staged.Add(row.Delay).Format(plain.Instant),
				plain.Route, plain.Route, plain.ContentType, staged.Format(plain.Instant))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (p *port) Claim(ctx context.Context, limit int) (claimed []workload.Claimed, err error) {
	return claimed, p.within(ctx, func() error {
		rows, err := p.conn.QueryContext(ctx, plain.Claim, now().Format(plain.Instant), limit)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var (
				handle                                               portHandle
				ordinal, attempt                                     int64
				key, workflow, activity, namespace, queue, mediaType string
				payload                                              []byte
				visible, created                                     time.Time // the driver parses what looks like one
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

func (p *port) Complete(ctx context.Context, claimed []workload.Claimed) error {
	return p.within(ctx, func() error {
		at := now().Format(plain.Instant)
		for _, row := range claimed {
			handle := row.Handle.(portHandle)
			if _, err := p.conn.ExecContext(ctx, plain.Complete, at, handle.id, handle.fence); err != nil {
				return err
			}
		}
		return nil
	})
}

func (p *port) Live(ctx context.Context) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err = p.conn.QueryRowContext(ctx, plain.Live).Scan(&n)
	return n, err
}

func (p *port) Snapshot(ctx context.Context) (func() error, error) {
	return workload.HoldSnapshot(ctx, "libsql", p.name)
}

func (p *port) Close() error { return errors.Join(p.conn.Close(), p.db.Close()) }

func now() time.Time { return time.Now().UTC() }
