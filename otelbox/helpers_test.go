package otelbox_test

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"example.com/outbox/otelbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	_ "github.com/tursodatabase/go-libsql"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// bench is a store in memory with instruments on it, in a bubble whose clock
// advances when nothing is left to do.
type bench struct {
	t           *testing.T
	store       *outbox.Store
	instruments *otelbox.Instruments
	reader      *sdkmetric.ManualReader
	meters      *sdkmetric.MeterProvider
	spans       *tracetest.SpanRecorder
	tracers     *sdktrace.TracerProvider
}

// inBubble runs test. What it starts, and what the instruments do, must have
// ended when it returns.
func inBubble(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, err := outbox.Open(context.Background(), "libsql", ":memory:", &outbox.Options{Logger: quiet()})
		require.NoError(t, err)
		b := &bench{t: t, store: store, reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
		b.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(b.reader))
		b.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(b.spans))
		b.instruments = b.instrument()
		test(t, b)
		require.NoError(t, b.instruments.Close())
		require.Len(t, b.spans.Started(), len(b.spans.Ended()), "every span has ended")
		outboxtest.Check(t, store)
		require.NoError(t, store.Close())
	})
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func (b *bench) instrument(attributes ...attribute.KeyValue) *otelbox.Instruments {
	b.t.Helper()
	instruments, err := otelbox.New(b.store, &otelbox.Options{MeterProvider: b.meters, TracerProvider: b.tracers, Attributes: attributes})
	require.NoError(b.t, err)
	return instruments
}

// dispatch runs a dispatcher until meanwhile has returned, and returns what Run
// did. Without one it runs until there is nothing left to do.
func (b *bench) dispatch(handler dispatch.Handler, opts dispatch.Options, meanwhile func()) error {
	if opts.Observer.Started == nil {
		opts.Observer = b.instruments.Observer()
	}
	opts.Logger = quiet()
	ctx, stop := context.WithCancel(b.t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- dispatch.New(b.store, handler, &opts).Run(ctx) }()
	synctest.Wait()
	if meanwhile != nil {
		meanwhile()
	}
	stop()
	return <-ended
}

// append stages a row and returns its key.
func (b *bench) append(row outbox.Row) string {
	b.t.Helper()
	row.WorkflowID = uuid.New()
	if row.ActivityType == "" {
		row.ActivityType = "ship"
	}
	_, err := b.store.Append(b.t.Context(), row)
	require.NoError(b.t, err)
	return outbox.DispatchKey(row.WorkflowID, row.Ordinal)
}

func (b *bench) exec(statement string) {
	b.t.Helper()
	require.NoError(b.t, b.store.Update(b.t.Context(), func(ctx context.Context, tx outbox.Tx) error {
		_, err := tx.ExecContext(ctx, statement)
		return err
	}))
}

// points are what was collected of one metric, by its attributes in the form
// "key=value,key=value", sorted by key. A histogram's point is its sum.
type points map[string]float64

// collect returns all metrics by their names.
func (b *bench) collect() map[string]points {
	b.t.Helper()
	all := make(map[string]points)
	for _, m := range b.gather() {
		all[m.Name] = pointsOf(b.t, m)
	}
	return all
}

func (b *bench) gather() []metricdata.Metrics {
	b.t.Helper()
	var gathered metricdata.ResourceMetrics
	require.NoError(b.t, b.reader.Collect(b.t.Context(), &gathered))
	var all []metricdata.Metrics
	for _, scope := range gathered.ScopeMetrics {
		all = append(all, scope.Metrics...)
	}
	return all
}

func pointsOf(t testing.TB, m metricdata.Metrics) points {
	t.Helper()
	found := make(points)
	add := func(set attribute.Set, value float64) {
		found[set.Encoded(attribute.DefaultEncoder())] = value
	}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, point := range data.DataPoints {
			add(point.Attributes, float64(point.Value))
		}
	case metricdata.Gauge[float64]:
		for _, point := range data.DataPoints {
			add(point.Attributes, point.Value)
		}
	case metricdata.Histogram[float64]:
		for _, point := range data.DataPoints {
			add(point.Attributes, point.Sum)
		}
	default:
		t.Fatalf("%s is a %T", m.Name, m.Data)
	}
	return found
}
