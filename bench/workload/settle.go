package workload

import (
	"context"
	"fmt"
	"time"
)

// settle measures how fast claimed rows are completed, retried or failed, one a
// call.
func (b *bench) settle(ctx context.Context, q Queue, _ string) (Figures, error) {
	one, live, err := b.settlement(q)
	if err != nil {
		return nil, err
	}
	b.live = 0
	if err := b.fill(ctx, q, b.spec.Rows, 0); err != nil {
		return nil, err
	}
	var claimed []Claimed
	for len(claimed) < b.spec.Rows {
		more, err := q.Claim(ctx, b.spec.Batch)
		if err == nil {
			err = expectRows(more, min(b.spec.Batch, b.spec.Rows-len(claimed)), b.spec.Size)
		}
		if err != nil {
			return nil, err
		}
		claimed = append(claimed, more...)
	}
	var times latencies
	for _, row := range claimed {
		start := time.Now()
		if err := one(ctx, row); err != nil {
			return nil, err
		}
		times.add(time.Since(start))
	}
	figures := times.figures()
	figures["rows/s"] = float64(len(claimed)) / times.sum.Seconds()
	return figures, expectLive(ctx, q, live)
}

// settlement returns the call that is measured, and how many rows are live after
// it.
func (b *bench) settlement(q Queue) (one func(context.Context, Claimed) error, live int, err error) {
	if b.spec.Kind == CompleteOne {
		return func(ctx context.Context, row Claimed) error { return q.Complete(ctx, []Claimed{row}) }, 0, nil
	}
	s, ok := q.(Settler)
	switch {
	case !ok:
		return nil, 0, ErrUnsupported
	case b.spec.Kind == RetryOne:
		return s.Retry, b.spec.Rows, nil
	}
	return s.Fail, 0, nil
}

// unsettled lists the workflows of a backlog.
func (b *bench) unsettled(ctx context.Context) (Figures, error) {
	l, ok := b.filled.(Lister)
	if !ok {
		return nil, ErrUnsupported
	}
	var times latencies
	want := (b.spec.Rows + fanOut - 1) / fanOut
	for range b.spec.Samples {
		start := time.Now()
		got, err := l.Unsettled(ctx)
		if err != nil {
			return nil, err
		}
		times.add(time.Since(start))
		if got != want {
			return nil, fmt.Errorf("%d workflows are unsettled and should be %d", got, want)
		}
	}
	return Figures{"list ms": times.figures()["p50 ms"]}, nil
}
