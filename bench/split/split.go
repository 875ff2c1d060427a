// Package split tells where the time of a claim goes. It stands between the
// store and its driver and measures the driver's calls, and then has the driver
// run the claim's own statement again with other values to return, and undoes
// that.
package split

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/outbox/bench/store"
	"example.com/outbox/bench/workload"
)

// The parts of a claim, which add up to the whole.
const (
	Whole   = "whole µs"
	Look    = "look µs"
	Begin   = "begin µs"
	Compile = "compile µs"
	Update  = "update µs"
	Pack    = "pack µs"
	Copy    = "copy µs"
	Commit  = "commit µs"
	SQL     = "database/sql µs"
	Rest    = "rest µs"
)

// queue is a store whose driver's calls are measured.
type queue struct {
	*store.Queue
	recorder *recorder
	again    *sql.DB // for running the statement again
}

// With returns what opens such a store with a driver.
func With(driver string) workload.Opener {
	return func(ctx context.Context, path string, full bool) (workload.Queue, error) {
		name := "split-" + driver
		recorder, err := wrap(driver, name)
		if err != nil {
			return nil, err
		}
		opened, err := store.With(name)(ctx, path, full)
		if err != nil {
			return nil, err
		}
		again, err := sql.Open(name, "file:"+path)
		if err != nil {
			return nil, errors.Join(err, opened.Close())
		}
		again.SetMaxOpenConns(1)
		return &queue{opened.(*store.Queue), recorder, again}, nil
	}
}

func (q *queue) Close() error { return errors.Join(q.again.Close(), q.Queue.Close()) }

// Split claims, and returns the parts of that claim.
func (q *queue) Split(ctx context.Context, limit int) (workload.Figures, []workload.Claimed, error) {
	q.recorder.reset()
	start := time.Now()
	claimed, err := q.Claim(ctx, limit)
	whole := time.Since(start)
	if err != nil {
		return nil, nil, err
	}
	var main, look, begin, commit, all statement
	for _, s := range q.recorder.seen() {
		all.took += s.took
		switch {
		case strings.HasPrefix(s.text, "BEGIN"):
			begin.took += s.took
		case strings.HasPrefix(s.text, "COMMIT"):
			commit.took += s.took
		case strings.Contains(s.text, returning) && s.rows > main.rows:
			main = s
		default: // before the transaction
			look.took += s.took
		}
	}
	if main.rows == 0 {
		return nil, nil, errors.New("split: the claim has no statement that returns its rows")
	}
	repeated, err := q.repeat(ctx, main)
	if err != nil {
		return nil, nil, fmt.Errorf("split: the claim's statement, repeated: %w", err)
	}
	pack, copied := repeated.asIs-repeated.unpacked, repeated.unpacked-repeated.bare
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	return workload.Figures{
		Whole:   micros(whole),
		Look:    micros(look.took),
		Begin:   micros(begin.took),
		Compile: micros(repeated.compile),
		Update:  micros(main.took - repeated.compile - pack - copied),
		Pack:    micros(pack),
		Copy:    micros(copied),
		Commit:  micros(commit.took),
		SQL:     micros(repeated.databaseSQL),
		Rest:    micros(whole - all.took - repeated.databaseSQL),
	}, claimed, nil
}

const returning = "RETURNING "

// repetition is what the statement takes of the driver: as it is; with values of
// the same size that SQLite need not put together; with next to none; and to be
// compiled alone. databaseSQL is what goes by above the driver until the values
// are scanned.
type repetition struct {
	asIs, unpacked, bare, compile, databaseSQL time.Duration
}

func (q *queue) repeat(ctx context.Context, main statement) (repetition, error) {
	const times = 5
	conn, err := q.again.Conn(ctx)
	if err != nil {
		return repetition{}, err
	}
	defer conn.Close()
	args := make([]any, len(main.args))
	for i, arg := range main.args {
		args[i] = arg.Value
	}
	head := main.text[:strings.LastIndex(main.text, returning)] + returning
	var asIs, unpacked, bare, compile, above []time.Duration
	for range times { // interleaved, as everywhere
		whole, inDriver, sizes, err := q.undone(ctx, conn, main.text, args)
		if err != nil {
			return repetition{}, err
		}
		asIs, above = append(asIs, inDriver), append(above, whole-inDriver)
		// The sizes of a row stand for all of them.
		blobs := make([]string, len(sizes))
		for i, size := range sizes {
			blobs[i] = fmt.Sprintf("zeroblob(%d)", size)
		}
		for _, variant := range []struct {
			values string
			took   *[]time.Duration
		}{{strings.Join(blobs, ", "), &unpacked}, {"1", &bare}} {
			_, inDriver, _, err := q.undone(ctx, conn, head+variant.values, args)
			if err != nil {
				return repetition{}, err
			}
			*variant.took = append(*variant.took, inDriver)
		}
		took, err := q.compile(ctx, conn, main.text, args)
		if err != nil {
			return repetition{}, err
		}
		compile = append(compile, took)
	}
	return repetition{median(asIs), median(unpacked), median(bare), median(compile), median(above)}, nil
}

// undone runs a statement in a transaction that is rolled back.
func (q *queue) undone(ctx context.Context, conn *sql.Conn, text string, args []any) (whole, inDriver time.Duration, sizes []int, err error) {
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return 0, 0, nil, err
	}
	defer func() {
		_, undo := conn.ExecContext(ctx, "ROLLBACK")
		err = errors.Join(err, undo)
	}()
	q.recorder.reset()
	start := time.Now()
	rows, err := conn.QueryContext(ctx, text, args...)
	if err != nil {
		return 0, 0, nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return 0, 0, nil, err
	}
	values, into := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return 0, 0, nil, err
		}
		sizes = sizes[:0]
		for _, value := range values {
			sizes = append(sizes, len(value))
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return 0, 0, nil, err
	}
	whole = time.Since(start)
	return whole, q.recorder.taken(), sizes, nil
}

// compile has the statement compiled and not run.
func (q *queue) compile(ctx context.Context, conn *sql.Conn, text string, args []any) (time.Duration, error) {
	q.recorder.reset()
	rows, err := conn.QueryContext(ctx, "EXPLAIN "+text, args...)
	if err != nil {
		return 0, err
	}
	err = rows.Close()
	return q.recorder.taken(), err
}

func (r *recorder) taken() (sum time.Duration) {
	for _, s := range r.seen() {
		sum += s.took
	}
	return sum
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}
