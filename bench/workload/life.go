package workload

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"
)

// Snapshotter is a Queue whose WAL can be made to keep everything: while a
// reader holds a snapshot that was taken when the WAL was empty, SQLite copies
// nothing back and never starts the WAL again from its beginning.
type Snapshotter interface {
	Queue

	// Snapshot empties the WAL and holds a snapshot until release is called.
	Snapshot(ctx context.Context) (release func() error, err error)
}

// HoldSnapshot is Snapshot for a database that is opened by name.
func HoldSnapshot(ctx context.Context, driver, dataSourceName string) (release func() error, err error) {
	db, err := sql.Open(driver, dataSourceName)
	if err != nil {
		return nil, err
	}
	release = db.Close
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	release = func() error { return errors.Join(conn.Close(), db.Close()) }
	var busy, frames, copied int
	err = conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &copied)
	if err == nil && busy != 0 {
		err = errors.New("the WAL could not be emptied")
	}
	if err != nil {
		return nil, errors.Join(err, release())
	}
	if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
		return nil, errors.Join(err, release())
	}
	var tables int
	if err := conn.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master").Scan(&tables); err != nil {
		return nil, errors.Join(err, release())
	}
	return func() error {
		_, err := conn.ExecContext(ctx, "ROLLBACK")
		return errors.Join(err, conn.Close(), db.Close())
	}, nil
}

// life measures the whole life of rows, and then what claims and completions
// write.
func (b *bench) life(ctx context.Context, q Queue, path string) (Figures, error) {
	var appends, claims, completes time.Duration
	for n := 0; n < b.spec.Rows; n += b.spec.Batch {
		batch := b.rows.batch(b.spec.Batch, 0)
		start := time.Now()
		if err := q.Append(ctx, batch); err != nil {
			return nil, err
		}
		appends += time.Since(start)
	}
	for n := 0; n < b.spec.Rows; n += b.spec.Batch {
		claim, complete, err := b.pass(ctx, q)
		if err != nil {
			return nil, err
		}
		claims += claim
		completes += complete
	}
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(b.spec.Rows) }
	figures := Figures{
		"append µs":   micros(appends),
		"claim µs":    micros(claims),
		"complete µs": micros(completes),
		"life µs":     micros(appends + claims + completes),
	}
	if s, ok := q.(Snapshotter); ok {
		written, err := b.written(ctx, s, path)
		if err != nil {
			return nil, err
		}
		figures["WAL bytes"] = written
	}
	return figures, expectLive(ctx, q, 0)
}

// pass claims and completes one batch.
func (b *bench) pass(ctx context.Context, q Queue) (claim, complete time.Duration, err error) {
	start := time.Now()
	claimed, err := q.Claim(ctx, b.spec.Batch)
	if err != nil {
		return 0, 0, err
	}
	claim = time.Since(start)
	if err := expectRows(claimed, b.spec.Batch, b.spec.Size); err != nil {
		return 0, 0, err
	}
	start = time.Now()
	err = q.Complete(ctx, claimed)
	return claim, time.Since(start), err
}

// written is how many bytes a row claims and completions write to the WAL.
func (b *bench) written(ctx context.Context, q Snapshotter, path string) (float64, error) {
	for n := 0; n < b.spec.Rows; n += b.spec.Batch {
		if err := q.Append(ctx, b.rows.batch(b.spec.Batch, 0)); err != nil {
			return 0, err
		}
	}
	release, err := q.Snapshot(ctx)
	if err != nil {
		return 0, fmt.Errorf("snapshot: %w", err)
	}
	for n := 0; n < b.spec.Rows; n += b.spec.Batch {
		if _, _, err := b.pass(ctx, q); err != nil {
			return 0, errors.Join(err, release())
		}
	}
	wal, err := os.Stat(path + "-wal")
	if err := errors.Join(err, release()); err != nil {
		return 0, err
	}
	return float64(wal.Size()) / float64(b.spec.Rows), nil
}
