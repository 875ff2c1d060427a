package dispatch

import (
	"context"
	"errors"
	"sync"
)

// RunAll runs Dispatchers until ctx ends, and returns when all have stopped, with
// their errors joined. One that ends before, because its Store was closed, is
// logged and does not stop the others. Give them one Pool to bound the handlers
// of all; Run each by itself if Stores come and go.
func RunAll(ctx context.Context, dispatchers ...*Dispatcher) error {
	errs := make([]error, len(dispatchers))
	var all sync.WaitGroup
	for i, d := range dispatchers {
		all.Go(func() {
			errs[i] = d.Run(ctx)
			if errs[i] != nil && ctx.Err() == nil {
				d.opts.Logger.Warn("dispatch: a dispatcher ended, others go on", "error", errs[i])
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
