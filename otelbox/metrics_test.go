package otelbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"example.com/outbox/otelbox"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

const route = "messaging.destination.name=parcels,messaging.system=outbox,outbox.namespace=acme"

// parcel is a row of route.
var parcel = outbox.Row{Namespace: "acme", TaskQueue: "parcels"}

// refusal is an error with a type of its own.
type refusal struct{}

func (*refusal) Error() string { return "refused" }

func TestClaimsOutcomesAndDurationsAreCountedByRoute(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		for _, activity := range []string{"ship", "ship", "refuse", "give up", "accept"} {
			row := parcel
			row.ActivityType = activity
			b.append(row)
		}
		b.append(outbox.Row{})
		require.NoError(t, b.dispatch(func(_ context.Context, row outbox.Row) error {
			time.Sleep(2 * time.Second)
			switch row.ActivityType {
			case "refuse":
				return &refusal{}
			case "give up":
				return fmt.Errorf("tried: %w", dispatch.Permanent(fmt.Errorf("asked: %w", &refusal{})))
			case "accept":
				return dispatch.Accepted
			}
			return nil
		}, dispatch.Options{ShutdownTimeout: time.Minute}, nil))
		const other = "messaging.destination.name=default,messaging.system=outbox,outbox.namespace=default"
		named := func(operation, route string) string {
			return strings.Replace(route, ",messaging.system", ",messaging.operation.name="+operation+",messaging.system", 1)
		}
		all := b.collect()
		require.Equal(t, points{named("claim", route): 5, named("claim", other): 1}, all["messaging.client.consumed.messages"])
		require.Equal(t, points{
			route + ",outbox.outcome=completed": 2,
			route + ",outbox.outcome=retried":   1,
			route + ",outbox.outcome=failed":    1,
			route + ",outbox.outcome=accepted":  1,
			other + ",outbox.outcome=completed": 1,
		}, all["outbox.settled.messages"])
		require.Equal(t, points{
			named("process", route): 2 + 2 + 2,
			"error.type=*otelbox_test.refusal," + named("process", route): 2 + 2,
			named("process", other): 2,
		}, all["messaging.process.duration"])
	})
}

func TestMetricsAreOfTheDocumentedKindsAndNameNoRow(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		row := parcel
		row.Status, row.ClaimedAt = outbox.Claimed, time.Now().Add(-time.Hour)
		b.append(row)
		b.exec(`CREATE TRIGGER broken BEFORE UPDATE ON outbox WHEN NEW.status = 'done' BEGIN SELECT RAISE(ABORT, 'broken'); END`)
		require.NoError(t, b.dispatch(func(context.Context, outbox.Row) error { return nil }, dispatch.Options{}, func() { b.exec(`DROP TRIGGER broken`) }))
		kinds := make(map[string]string)
		keys := make(map[attribute.Key]bool)
		for _, m := range b.gather() {
			kind, sets := describe(t, m)
			require.NotEmpty(t, m.Description)
			kinds[m.Name] = kind + ", " + m.Unit
			for _, set := range sets {
				for _, kv := range set.ToSlice() {
					keys[kv.Key] = true
				}
			}
		}
		require.Equal(t, map[string]string{
			"messaging.client.consumed.messages": "counter, {message}",
			"messaging.process.duration":         "histogram, s",
			"outbox.queue.duration":              "histogram, s",
			"outbox.in_flight.messages":          "up-down counter, {message}",
			"outbox.settled.messages":            "counter, {message}",
			"outbox.recovered.messages":          "counter, {message}",
			"outbox.store.errors":                "counter, {error}",
			"outbox.oldest_due.age":              "gauge, s",
		}, kinds)
		require.Equal(t, map[attribute.Key]bool{
			"messaging.system": true, "messaging.destination.name": true, "messaging.operation.name": true,
			"outbox.namespace": true, "outbox.outcome": true, "outbox.operation": true,
		}, keys)
	})
}

// describe returns a metric's kind and the attributes of its points.
func describe(t testing.TB, m metricdata.Metrics) (kind string, sets []attribute.Set) {
	t.Helper()
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		kind = "up-down counter"
		if data.IsMonotonic {
			kind = "counter"
		}
		for _, point := range data.DataPoints {
			sets = append(sets, point.Attributes)
		}
	case metricdata.Histogram[float64]:
		kind = "histogram"
		for _, point := range data.DataPoints {
			sets = append(sets, point.Attributes)
		}
	case metricdata.Gauge[float64]:
		kind = "gauge"
		for _, point := range data.DataPoints {
			sets = append(sets, point.Attributes)
		}
	}
	return kind, sets
}

func TestQueueDurationRunsFromWhenTheRowFellDueAlsoForARetry(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.append(parcel)
		time.Sleep(3 * time.Second)
		require.NoError(t, b.dispatch(func(_ context.Context, row outbox.Row) error {
			if row.Attempt == 0 {
				return errors.New("later")
			}
			return nil
		}, dispatch.Options{Backoff: func(uint32) time.Duration { return time.Hour }}, func() { time.Sleep(2 * time.Hour) }))
		require.Equal(t, points{route: 3}, b.collect()["outbox.queue.duration"], "the retry started when it fell due")
	})
}

func TestInFlightRisesWhileHandlersRunAndFallsAlsoWhenTheyAreLeftBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.append(parcel)
		b.append(parcel)
		release := make(chan struct{})
		err := b.dispatch(func(context.Context, outbox.Row) error {
			<-release
			return nil
		}, dispatch.Options{ShutdownTimeout: time.Second}, func() {
			require.Equal(t, points{route: 2}, b.collect()["outbox.in_flight.messages"])
		})
		require.ErrorContains(t, err, "2 handlers")
		close(release)
		all := b.collect()
		require.Equal(t, points{route: 0}, all["outbox.in_flight.messages"])
		require.Equal(t, points{route + ",outbox.outcome=returned": 2}, all["outbox.settled.messages"])
	})
}

func TestStaleClaimsAreCountedByWhatBecameOfThem(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		row := parcel
		row.Status, row.ClaimedAt = outbox.Claimed, time.Now().Add(-time.Hour)
		b.append(row)
		b.append(row)
		require.NoError(t, b.dispatch(func(context.Context, outbox.Row) error { return nil }, dispatch.Options{}, nil))
		require.Equal(t, points{route + ",outbox.outcome=returned": 2}, b.collect()["outbox.recovered.messages"])
	})
}

func TestErrorsOfTheStoreAreCountedByOperation(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.append(parcel)
		b.exec(`CREATE TRIGGER broken BEFORE UPDATE ON outbox BEGIN SELECT RAISE(ABORT, 'broken'); END`)
		require.NoError(t, b.dispatch(func(context.Context, outbox.Row) error { return nil }, dispatch.Options{}, nil))
		require.Equal(t, points{"outbox.operation=claim": 1}, b.collect()["outbox.store.errors"])
		b.exec(`DROP TRIGGER broken`)
	})
}

func TestOldestDueAgeIsThatOfTheRowDueForLongestAndZeroIfNoneIs(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		age := func() points { return b.collect()["outbox.oldest_due.age"] }
		require.Equal(t, points{"": 0}, age(), "no row at all")
		row := parcel
		row.VisibleAfter = time.Now().Add(time.Minute)
		b.append(row)
		require.Equal(t, points{"": 0}, age(), "none that is due")
		time.Sleep(90 * time.Second)
		b.append(parcel)
		require.Equal(t, points{"": 30}, age())
		require.NoError(t, b.dispatch(func(context.Context, outbox.Row) error { return nil }, dispatch.Options{}, nil))
		require.Equal(t, points{"": 0}, age(), "all is done")
	})
}

func TestOldestDueAgeIsMissingWhenTheStoreCannotTell(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		other, err := outbox.Open(t.Context(), "libsql", ":memory:", nil)
		require.NoError(t, err)
		instruments, err := otelbox.New(other, &otelbox.Options{
			MeterProvider: b.meters, TracerProvider: b.tracers, Attributes: []attribute.KeyValue{attribute.String("store", "other")},
		})
		require.NoError(t, err)
		require.Equal(t, points{"": 0, "store=other": 0}, b.collect()["outbox.oldest_due.age"], "one point a store")
		require.NoError(t, other.Close())
		var gathered metricdata.ResourceMetrics
		require.ErrorIs(t, b.reader.Collect(t.Context(), &gathered), outbox.ErrClosed)
		require.Len(t, gathered.ScopeMetrics, 1)
		require.Equal(t, points{"": 0}, pointsOf(t, gathered.ScopeMetrics[0].Metrics[0]))
		require.NoError(t, instruments.Close())
		b.collect() // without an error
	})
}

func TestAgesAreByTheClockOfTheOptionsAndNeverNegative(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		require.NoError(t, b.instruments.Close())
		ahead := time.Hour
		var err error
		b.instruments, err = otelbox.New(b.store, &otelbox.Options{
			MeterProvider: b.meters, TracerProvider: b.tracers, Now: func() time.Time { return time.Now().Add(ahead) },
		})
		require.NoError(t, err)
		b.append(parcel)
		require.Equal(t, points{"": 3600}, b.collect()["outbox.oldest_due.age"])
		ahead = -time.Hour
		require.Equal(t, points{"": 0}, b.collect()["outbox.oldest_due.age"])
		require.NoError(t, b.dispatch(func(context.Context, outbox.Row) error { return nil }, dispatch.Options{}, nil))
		require.Equal(t, points{route: 0}, b.collect()["outbox.queue.duration"])
	})
}

func TestCloseEndsTheGaugeAloneAndMayBeRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		require.NoError(t, b.instruments.Close())
		require.NoError(t, b.instruments.Close())
		b.append(parcel)
		require.NoError(t, b.dispatch(func(context.Context, outbox.Row) error { return nil }, dispatch.Options{}, nil))
		all := b.collect()
		require.NotContains(t, all, "outbox.oldest_due.age")
		require.Equal(t, points{route + ",outbox.outcome=completed": 1}, all["outbox.settled.messages"])
		require.Len(t, b.spans.Ended(), 1)
	})
}

func TestAttributesOfTheOptionsAreOnEveryMetricAndSpan(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		require.NoError(t, b.instruments.Close())
		b.instruments = b.instrument(attribute.String("store", "main"))
		b.append(parcel)
		require.NoError(t, b.dispatch(func(context.Context, outbox.Row) error { return nil }, dispatch.Options{}, nil))
		for name, points := range b.collect() {
			for set := range points {
				require.Contains(t, set, "store=main", name)
			}
		}
		require.Contains(t, b.spans.Ended()[0].Attributes(), attribute.String("store", "main"))
	})
}

func TestGlobalProvidersAreUsedUnlessOthersAreGiven(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		meters, tracers := otel.GetMeterProvider(), otel.GetTracerProvider()
		defer otel.SetMeterProvider(meters)
		defer otel.SetTracerProvider(tracers)
		otel.SetMeterProvider(b.meters)
		otel.SetTracerProvider(b.tracers)
		require.NoError(t, b.instruments.Close())
		var err error
		b.instruments, err = otelbox.New(b.store, nil)
		require.NoError(t, err)
		b.append(parcel)
		require.NoError(t, b.dispatch(func(context.Context, outbox.Row) error { return nil }, dispatch.Options{}, nil))
		all := b.collect()
		require.Equal(t, points{"": 0}, all["outbox.oldest_due.age"])
		require.Equal(t, points{route + ",outbox.outcome=completed": 1}, all["outbox.settled.messages"])
		require.Len(t, b.spans.Ended(), 1)
	})
}
