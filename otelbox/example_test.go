package otelbox_test

import (
	"context"
	"fmt"
	"log"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"example.com/outbox/otelbox"
	"github.com/google/uuid"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// A program would give its providers an exporter, where this one looks at what
// they would have exported.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store, err := outbox.Open(ctx, "libsql", ":memory:", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	metrics, spans := sdkmetric.NewManualReader(), tracetest.NewSpanRecorder()
	instruments, err := otelbox.New(store, &otelbox.Options{
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(metrics)),
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer instruments.Close()

	row := outbox.Row{WorkflowID: uuid.New(), TaskQueue: "parcels", ActivityType: "ship"}
	if _, err := store.Append(ctx, row); err != nil {
		log.Fatal(err)
	}
	dispatcher := dispatch.New(store, func(ctx context.Context, row outbox.Row) error {
		trace.SpanFromContext(ctx).AddEvent("packed") // the span of this dispatch
		stop()
		return nil
	}, &dispatch.Options{Observer: instruments.Observer()})
	if err := dispatcher.Run(ctx); err != nil {
		log.Fatal(err)
	}

	for _, span := range spans.Ended() {
		fmt.Println("span:", span.Name(), span.Events()[0].Name)
	}
	var collected metricdata.ResourceMetrics
	if err := metrics.Collect(context.Background(), &collected); err != nil {
		log.Fatal(err)
	}
	for _, metric := range collected.ScopeMetrics[0].Metrics {
		fmt.Println("metric:", metric.Name, metric.Unit)
	}
	// Unordered output:
	// span: process parcels packed
	// metric: messaging.client.consumed.messages {message}
	// metric: messaging.process.duration s
	// metric: outbox.queue.duration s
	// metric: outbox.in_flight.messages {message}
	// metric: outbox.settled.messages {message}
	// metric: outbox.oldest_due.age s
}
