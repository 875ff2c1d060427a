package otelbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name of the instrumentation scope.
const scope = "otelbox"

// Options configures Instruments. A nil *Options means the zero value.
type Options struct {
	// MeterProvider is where metrics go. Nil: the global one.
	MeterProvider metric.MeterProvider

	// TracerProvider is where spans go. Nil: the global one.
	TracerProvider trace.TracerProvider

	// Attributes are added to every metric and span, to tell the stores of one
	// process apart. Without them, only the oldest_due.age of the last store is
	// reported. Nil: none.
	Attributes []attribute.KeyValue

	// Now is the clock for computing ages. It should be the Store's. Nil:
	// time.Now.
	Now func() time.Time
}

// Instruments are the metrics and the tracer of one store. Any number of
// Dispatchers on it may share them.
type Instruments struct {
	tracer     trace.Tracer
	metrics    metrics
	gauge      metric.Registration
	attributes []attribute.KeyValue
	now        func() time.Time
}

// New makes the instruments and registers the gauge of the oldest due row, which
// asks the store until Close is called.
func New(store *outbox.Store, opts *Options) (*Instruments, error) {
	if opts == nil {
		opts = &Options{}
	}
	i := &Instruments{attributes: slices.Clone(opts.Attributes), now: opts.Now}
	if i.now == nil {
		i.now = time.Now
	}
	tracers, meters := opts.TracerProvider, opts.MeterProvider
	if tracers == nil {
		tracers = otel.GetTracerProvider()
	}
	if meters == nil {
		meters = otel.GetMeterProvider()
	}
	i.tracer = tracers.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))
	meter := meters.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))
	var err error
	if i.metrics, err = newMetrics(meter); err != nil {
		return nil, fmt.Errorf("otelbox: %w", err)
	}
	if i.gauge, err = i.observeAge(meter, store); err != nil {
		return nil, fmt.Errorf("otelbox: %w", err)
	}
	return i, nil
}

// Close unregisters the gauge, so that it no longer asks the store. Call it before
// you close the store; otherwise collecting metrics reports outbox.ErrClosed.
// Observers keep working. Closing again does nothing.
func (i *Instruments) Close() error { return i.gauge.Unregister() }

// Observer returns the Observer for the Options of a Dispatcher.
func (i *Instruments) Observer() dispatch.Observer {
	return dispatch.Observer{
		Claimed:    i.claimed,
		Started:    i.started,
		Settled:    i.settled,
		Recovered:  i.recovered,
		StoreError: i.storeError,
	}
}

func (i *Instruments) claimed(rows []outbox.Row) {
	for _, row := range rows {
		i.metrics.claimed.AddSet(context.Background(), 1, i.route(row, semconv.MessagingOperationName("claim")))
	}
}

func (i *Instruments) started(ctx context.Context, row outbox.Row) context.Context {
	ctx = i.startSpan(ctx, row)
	waited := max(i.now().Sub(row.VisibleAfter), 0) // clocks may differ
	route := metric.WithAttributeSet(i.route(row))
	i.metrics.queued.Record(ctx, waited.Seconds(), route)
	i.metrics.inFlight.Add(ctx, 1, route)
	return ctx
}

func (i *Instruments) settled(ctx context.Context, row outbox.Row, outcome dispatch.Outcome, took time.Duration, err error) {
	process := []attribute.KeyValue{semconv.MessagingOperationName(processing)}
	if failed(err) {
		process = append(process, errorType(err))
	}
	i.metrics.processed.RecordSet(ctx, took.Seconds(), i.route(row, process...))
	i.metrics.inFlight.Add(ctx, -1, metric.WithAttributeSet(i.route(row)))
	i.metrics.settled.Add(ctx, 1, metric.WithAttributeSet(i.route(row, outcomeKey.String(string(outcome)))))
	endSpan(ctx, outcome, err)
}

func (i *Instruments) recovered(row outbox.Row, outcome dispatch.Outcome) {
	set := i.route(row, outcomeKey.String(string(outcome)))
	i.metrics.recovered.Add(context.Background(), 1, metric.WithAttributeSet(set))
}

func (i *Instruments) storeError(operation string, _ error) {
	set := i.set(operationKey.String(operation))
	i.metrics.storeErrors.Add(context.Background(), 1, metric.WithAttributeSet(set))
}
