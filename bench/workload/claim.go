package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// claim claims and completes, and refills what it took.
func (b *bench) claim(ctx context.Context) (Figures, error) {
	var claims, completes, appends latencies
	for range b.spec.Samples {
		start := time.Now()
		claimed, err := b.filled.Claim(ctx, b.spec.Batch)
		if errors.Is(err, ErrUnsupported) {
			return b.dispatch(ctx)
		}
		if err != nil {
			return nil, err
		}
		claims.add(time.Since(start))
		if err := expectRows(claimed, b.spec.Batch, b.spec.Size); err != nil {
			return nil, err
		}
		start = time.Now()
		if err := b.filled.Complete(ctx, claimed); err != nil {
			return nil, err
		}
		completes.add(time.Since(start))
		b.live -= len(claimed)
		start = time.Now()
		if err := b.fill(ctx, b.filled, len(claimed), 0); err != nil {
			return nil, err
		}
		appends.add(time.Since(start))
	}
	return Figures{
		"append ms":   appends.figures()["p50 ms"],
		"claim ms":    claims.figures()["p50 ms"],
		"complete ms": completes.figures()["p50 ms"],
		"completed/s": float64(b.spec.Batch*b.spec.Samples) / completes.sum.Seconds(),
	}, expectLive(ctx, b.filled, b.live)
}

// dispatch measures a system that hands out by itself: how long it takes from
// its start until Batch of its workers have a row in their hands.
func (b *bench) dispatch(ctx context.Context) (Figures, error) {
	q, ok := b.filled.(Dispatcher)
	if !ok {
		return nil, ErrUnsupported
	}
	var claims latencies
	for range b.spec.Samples {
		inHand := make(chan struct{}, b.spec.Batch)
		done := make(chan struct{})
		running, cancel := context.WithCancel(ctx)
		start := time.Now()
		stop, err := q.Dispatch(running, func([]byte) {
			inHand <- struct{}{}
			<-done
		})
		if err != nil {
			cancel()
			return nil, err
		}
		for range b.spec.Batch {
			<-inHand
		}
		claims.add(time.Since(start))
		cancel() // before the workers go on, so that it does not claim more
		close(done)
		if err := stop(); err != nil {
			return nil, err
		}
	}
	return Figures{"claim ms": claims.figures()["p50 ms"]}, expectLive(ctx, q, b.spec.Rows)
}

// claimDelayed claims the one row that is due, and completes it.
func (b *bench) claimDelayed(ctx context.Context) (Figures, error) {
	var claims latencies
	for range b.spec.Samples {
		if err := b.filled.Append(ctx, b.rows.batch(1, 0)); err != nil {
			return nil, err
		}
		took, err := b.claimOne(ctx)
		if err != nil {
			return nil, err
		}
		claims.add(took)
	}
	return Figures{"claim ms": claims.figures()["p50 ms"]}, expectLive(ctx, b.filled, b.live)
}

func (b *bench) claimOne(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	claimed, err := b.filled.Claim(ctx, b.spec.Batch)
	took := time.Since(start)
	if errors.Is(err, ErrUnsupported) {
		return b.dispatchOne(ctx)
	}
	if err != nil {
		return 0, err
	}
	if err := expectRows(claimed, 1, b.spec.Size); err != nil {
		return 0, err
	}
	return took, b.filled.Complete(ctx, claimed)
}

func (b *bench) dispatchOne(ctx context.Context) (time.Duration, error) {
	q, ok := b.filled.(Dispatcher)
	if !ok {
		return 0, ErrUnsupported
	}
	var once sync.Once
	inHand := make(chan struct{})
	start := time.Now()
	stop, err := q.Dispatch(ctx, func([]byte) { once.Do(func() { close(inHand) }) })
	if err != nil {
		return 0, err
	}
	<-inHand
	took := time.Since(start)
	if err := waitForLive(ctx, q, b.live); err != nil {
		return 0, err
	}
	return took, stop()
}

// expectRows fails unless so many rows came with the payloads that they were
// given.
func expectRows(claimed []Claimed, rows, size int) error {
	if len(claimed) != rows {
		return fmt.Errorf("%d rows were claimed and should be %d", len(claimed), rows)
	}
	for _, row := range claimed {
		if len(row.Payload) != size {
			return fmt.Errorf("a payload has %d bytes and should have %d", len(row.Payload), size)
		}
	}
	return nil
}

// split takes claims apart. Each part is the median of all samples, so that the
// parts add up to about the whole.
func (b *bench) split(ctx context.Context) (Figures, error) {
	s, ok := b.filled.(Splitter)
	if !ok {
		return nil, ErrUnsupported
	}
	parts := make(map[string][]float64)
	for range b.spec.Samples {
		figures, claimed, err := s.Split(ctx, b.spec.Batch)
		if err == nil {
			err = expectRows(claimed, b.spec.Batch, b.spec.Size)
		}
		if err == nil {
			err = s.Complete(ctx, claimed)
		}
		if err == nil {
			err = b.fill(ctx, s, len(claimed), 0)
		}
		if err != nil {
			return nil, err
		}
		for part, took := range figures {
			parts[part] = append(parts[part], took)
		}
	}
	figures := make(Figures)
	for part, all := range parts {
		slices.Sort(all)
		figures[part] = all[len(all)/2]
	}
	return figures, expectLive(ctx, s, b.spec.Rows)
}
