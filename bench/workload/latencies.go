package workload

import (
	"slices"
	"time"
)

// latencies are how long calls took.
type latencies struct {
	times []time.Duration
	sum   time.Duration
}

func (l *latencies) add(took time.Duration) {
	l.times = append(l.times, took)
	l.sum += took
}

func (l *latencies) figures() Figures {
	slices.Sort(l.times)
	at := func(share float64) float64 {
		return milliseconds(l.times[int(share*float64(len(l.times)-1))])
	}
	return Figures{"p50 ms": at(0.5), "p99 ms": at(0.99), "worst ms": at(1)}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
