package otelbox

import (
	"context"
	"errors"

	"example.com/outbox"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"
)

type metrics struct {
	claimed     messagingconv.ClientConsumedMessages
	processed   messagingconv.ProcessDuration
	queued      metric.Float64Histogram
	inFlight    metric.Int64UpDownCounter
	settled     metric.Int64Counter
	recovered   metric.Int64Counter
	storeErrors metric.Int64Counter
}

func newMetrics(meter metric.Meter) (m metrics, err error) {
	var errs [7]error
	m.claimed, errs[0] = messagingconv.NewClientConsumedMessages(meter)
	m.processed, errs[1] = messagingconv.NewProcessDuration(meter,
		// The conventions' boundaries, and beyond: activities may take minutes.
		metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10,
			30, 60, 300, 900, 3600))
	m.queued, errs[2] = meter.Float64Histogram("outbox.queue.duration",
		metric.WithUnit("s"),
		metric.WithDescription("Time from when a row fell due to the start of its handler."),
		// From a row that is taken at once to one that waited in a backlog for a day.
		metric.WithExplicitBucketBoundaries(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
			30, 60, 300, 900, 3600, 21600, 86400))
	m.inFlight, errs[3] = meter.Int64UpDownCounter("outbox.in_flight.messages",
		metric.WithUnit("{message}"),
		metric.WithDescription("Number of rows whose handler runs or whose outcome is being stored."))
	m.settled, errs[4] = meter.Int64Counter("outbox.settled.messages",
		metric.WithUnit("{message}"),
		metric.WithDescription("Number of handlers that ended, by what became of their rows."))
	m.recovered, errs[5] = meter.Int64Counter("outbox.recovered.messages",
		metric.WithUnit("{message}"),
		metric.WithDescription("Number of stale claims that were taken back or settled, by what became of their rows."))
	m.storeErrors, errs[6] = meter.Int64Counter("outbox.store.errors",
		metric.WithUnit("{error}"),
		metric.WithDescription("Number of errors of the store, by what the dispatcher was doing."))
	return m, errors.Join(errs[:]...)
}

// observeAge registers the gauge of the oldest due row.
func (i *Instruments) observeAge(meter metric.Meter, store *outbox.Store) (metric.Registration, error) {
	age, err := meter.Float64ObservableGauge("outbox.oldest_due.age",
		metric.WithUnit("s"),
		metric.WithDescription("How long the pending row that has been due longest has been due; 0 if none is due."))
	if err != nil {
		return nil, err
	}
	set := metric.WithAttributeSet(i.set())
	return meter.RegisterCallback(func(ctx context.Context, observer metric.Observer) error {
		due, ok, err := store.NextVisible(ctx)
		if err != nil {
			return err
		}
		var seconds float64
		if ok {
			seconds = max(i.now().Sub(due), 0).Seconds()
		}
		observer.ObserveFloat64(age, seconds, set)
		return nil
	}, age)
}
