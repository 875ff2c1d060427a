package workload

import (
	"context"
	"sync"
	"time"
)

func (b *bench) append(ctx context.Context, q Queue, _ string) (Figures, error) {
	var (
		times latencies
		rows  int
	)
	for times.sum < b.spec.Time {
		batch := b.rows.batch(b.spec.Batch, 0)
		start := time.Now()
		if err := q.Append(ctx, batch); err != nil {
			return nil, err
		}
		times.add(time.Since(start))
		rows += len(batch)
	}
	figures := times.figures()
	figures["rows/s"] = float64(rows) / times.sum.Seconds()
	return figures, expectLive(ctx, q, rows)
}

// crowd appends from many goroutines at once. How fair the system is to them
// shows in how many rows the slowest got in while the fastest got in its own.
func (b *bench) crowd(ctx context.Context, q Queue, _ string) (Figures, error) {
	var (
		each    = make([]latencies, b.spec.Workers)
		errs    = make([]error, b.spec.Workers)
		start   = time.Now()
		workers sync.WaitGroup
	)
	for i := range each {
		rows := *b.rows
		workers.Go(func() {
			for time.Since(start) < b.spec.Time {
				batch := rows.batch(b.spec.Batch, 0)
				began := time.Now()
				if errs[i] = q.Append(ctx, batch); errs[i] != nil {
					return
				}
				each[i].add(time.Since(began))
			}
		})
	}
	workers.Wait()
	took := time.Since(start)
	var all latencies
	slowest, fastest := len(each[0].times), len(each[0].times)
	for i := range each {
		if errs[i] != nil {
			return nil, errs[i]
		}
		slowest = min(slowest, len(each[i].times))
		fastest = max(fastest, len(each[i].times))
		all.times = append(all.times, each[i].times...)
	}
	rows := len(all.times) * b.spec.Batch
	figures := all.figures()
	figures["rows/s"] = float64(rows) / took.Seconds()
	figures["fairness"] = float64(slowest) / float64(fastest)
	return figures, expectLive(ctx, q, rows)
}
