package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// retryBusy repeats attempt while others keep the database locked, until
// timeout is over or ctx ends. The waiting is done here because drivers wait
// without looking at the context.
func retryBusy(ctx context.Context, timeout time.Duration, attempt func() error) error {
	const shortest, longest = 100 * time.Microsecond, 10 * time.Millisecond
	start := time.Now() // the driver's own wait counts
	for pause := shortest; ; pause = min(2*pause, longest) {
		err := attempt()
		if err == nil || !isBusy(err) || errors.Is(err, ErrBusy) {
			return err
		}
		left := timeout - time.Since(start)
		if left <= 0 {
			return fmt.Errorf("%w: %w", ErrBusy, err)
		}
		// Waiters that started together must not come back together.
		timer := time.NewTimer(min(left, pause/2+rand.N(pause/2)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}
