package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// drain measures how fast rows are claimed and completed until none is left, or
// until time is up: a slow system is not waited for.
func (b *bench) drain(ctx context.Context, q Queue, _ string) (Figures, error) {
	b.rows.next, b.live = 0, 0
	if err := b.fill(ctx, q, b.spec.Rows, 0); err != nil {
		return nil, err
	}
	if d, ok := q.(Dispatcher); ok {
		return b.drainByItself(ctx, d)
	}
	start := time.Now()
	done, size, err := b.workOff(ctx, q, start)
	took := time.Since(start)
	if err != nil {
		return nil, err
	}
	if want := b.rows.bytesOf(0, b.spec.Rows); done == b.spec.Rows && size != want {
		return nil, fmt.Errorf("payloads of %d bytes came back and should have %d", size, want)
	}
	return Figures{"rows/s": float64(done) / took.Seconds()}, expectLive(ctx, q, b.spec.Rows-done)
}

// steady is drain while the rows come in.
func (b *bench) steady(ctx context.Context, q Queue, _ string) (Figures, error) {
	const batch = 10
	var (
		staged  = make(chan error, 1)
		start   = time.Now()
		working = start.Add(b.spec.Time)
		stagedN atomic.Int64
	)
	go func() {
		for n := 0; n < b.spec.Rows && time.Now().Before(working); n += batch {
			if err := q.Append(ctx, b.rows.batch(batch, 0)); err != nil {
				staged <- err
				return
			}
			stagedN.Add(batch)
		}
		staged <- nil
	}()
	done, _, err := b.workOff(ctx, q, start)
	took := time.Since(start)
	if err := errors.Join(err, <-staged); err != nil {
		return nil, err
	}
	return Figures{"rows/s": float64(done) / took.Seconds()}, expectLive(ctx, q, int(stagedN.Load())-done)
}

// workOff has Workers claim and complete until Rows are done or time is up. It
// returns how many they were, and how many bytes of payload they had.
func (b *bench) workOff(ctx context.Context, q Queue, start time.Time) (done int, size int64, err error) {
	const idle = time.Millisecond
	var (
		rows, bytes atomic.Int64
		failed      atomic.Bool
		errs        = make([]error, b.spec.Workers)
		workers     sync.WaitGroup
	)
	for i := range b.spec.Workers {
		workers.Go(func() {
			for rows.Load() < int64(b.spec.Rows) && time.Since(start) < b.spec.Time && !failed.Load() {
				claimed, err := q.Claim(ctx, b.spec.Batch)
				if err == nil && len(claimed) == 0 {
					time.Sleep(idle)
					continue
				}
				if err == nil {
					err = q.Complete(ctx, claimed)
				}
				if err != nil {
					errs[i] = err
					failed.Store(true)
					return
				}
				rows.Add(int64(len(claimed)))
				for _, row := range claimed {
					bytes.Add(int64(len(row.Payload)))
				}
			}
		})
	}
	workers.Wait()
	return int(rows.Load()), bytes.Load(), errors.Join(errs...)
}

// drainByItself measures a system that hands out and settles by itself.
func (b *bench) drainByItself(ctx context.Context, q Dispatcher) (Figures, error) {
	var handled atomic.Int64
	all := make(chan struct{})
	start := time.Now()
	stop, err := q.Dispatch(ctx, func([]byte) {
		if handled.Add(1) == int64(b.spec.Rows) {
			close(all)
		}
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-all:
		err = waitForLive(ctx, q, 0)
	case <-time.After(b.spec.Time):
	}
	left, liveErr := q.Live(ctx)
	took := time.Since(start)
	if err := errors.Join(err, liveErr, stop()); err != nil {
		return nil, err
	}
	if done, seen := b.spec.Rows-left, int(handled.Load()); done == 0 || done > seen {
		return nil, fmt.Errorf("%d rows were handled and %d settled", seen, done)
	}
	return Figures{"rows/s": float64(b.spec.Rows-left) / took.Seconds()}, nil
}

// waitForLive waits until so many rows are left, as what was handled is settled
// a little later.
func waitForLive(ctx context.Context, q Queue, want int) error {
	const patience = 10 * time.Second
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		err := expectLive(ctx, q, want)
		if err == nil || time.Since(start) > patience {
			return err
		}
	}
}
