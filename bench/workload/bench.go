package workload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// bench measures one spec on one system.
type bench struct {
	spec Spec
	open Opener
	dir  string
	rows *source

	made   int   // databases so far
	filled Queue // what claims are measured on, round after round
	live   int   // rows in it
}

// prepare fills the database of the claims, which is too large to be made anew
// for every round.
func (b *bench) prepare(ctx context.Context) error {
	var delay time.Duration
	switch b.spec.Kind {
	case Claim, Unsettled, Split:
	case Delayed:
		delay = 24 * time.Hour
	default:
		return nil
	}
	q, _, err := b.new(ctx)
	if err != nil {
		return err
	}
	b.filled = q
	if b.spec.Settled > 0 {
		a, ok := q.(Archiver)
		if !ok {
			return ErrUnsupported
		}
		if err := b.fillWith(ctx, a.AppendSettled, b.spec.Settled, 0); err != nil {
			return err
		}
	}
	return b.fill(ctx, q, b.spec.Rows, delay)
}

// round measures once, and fails if a row is missing or left over.
func (b *bench) round(ctx context.Context) (Figures, error) {
	switch b.spec.Kind {
	case Append:
		return b.onNew(ctx, b.append)
	case Crowd:
		return b.onNew(ctx, b.crowd)
	case Claim, Delayed:
		if b.spec.Kind == Delayed {
			return b.claimDelayed(ctx)
		}
		return b.claim(ctx)
	case Drain:
		return b.onNew(ctx, b.drain)
	case Steady:
		return b.onNew(ctx, b.steady)
	case Life:
		return b.onNew(ctx, b.life)
	case CompleteOne, RetryOne, FailOne:
		return b.onNew(ctx, b.settle)
	case Unsettled:
		return b.unsettled(ctx)
	case Split:
		return b.split(ctx)
	}
	return nil, fmt.Errorf("there is no kind %q", b.spec.Kind)
}

func (b *bench) close() error {
	if b.filled == nil {
		return nil
	}
	return b.filled.Close()
}

// new makes a database of its own in a directory of its own.
func (b *bench) new(ctx context.Context) (q Queue, path string, err error) {
	b.made++
	dir := filepath.Join(b.dir, fmt.Sprint(b.made))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, "", err
	}
	path = filepath.Join(dir, "queue.db")
	q, err = b.open(ctx, path, b.spec.Full)
	return q, path, err
}

func (b *bench) onNew(ctx context.Context, measure func(context.Context, Queue, string) (Figures, error)) (Figures, error) {
	q, path, err := b.new(ctx)
	if err != nil {
		return nil, err
	}
	figures, err := measure(ctx, q, path)
	return figures, errors.Join(err, q.Close(), os.RemoveAll(filepath.Dir(path)))
}

// fanOut is how many rows a workflow of a backlog has.
const fanOut = 100

// fill appends rows in workflows of fanOut. Many of them share a transaction, so
// that a large backlog takes minutes and not hours.
func (b *bench) fill(ctx context.Context, q Queue, rows int, delay time.Duration) error {
	err := b.fillWith(ctx, q.Append, rows, delay)
	if err == nil {
		b.live += rows
	}
	return err
}

func (b *bench) fillWith(ctx context.Context, stage func(context.Context, []Row) error, rows int, delay time.Duration) error {
	const transaction = 10_000
	for rows > 0 {
		var batch []Row
		for len(batch) < min(rows, transaction) {
			batch = append(batch, b.rows.batch(min(fanOut, rows-len(batch)), delay)...)
		}
		if err := stage(ctx, batch); err != nil {
			return err
		}
		rows -= len(batch)
	}
	return nil
}

// expectLive fails if the queue has not exactly so many unsettled rows.
func expectLive(ctx context.Context, q Queue, want int) error {
	got, err := q.Live(ctx)
	if err == nil && got != want {
		err = fmt.Errorf("%d rows are live and should be %d", got, want)
	}
	return err
}
