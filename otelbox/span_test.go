package otelbox_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// attributesOf returns a span's attributes by key, as texts.
func attributesOf(attributes []attribute.KeyValue) map[string]string {
	all := make(map[string]string)
	for _, kv := range attributes {
		all[string(kv.Key)] = kv.Value.String()
	}
	return all
}

// spanOf dispatches a row with a handler and returns the one span that ended.
func (b *bench) spanOf(handler dispatch.Handler) sdktrace.ReadOnlySpan {
	b.t.Helper()
	b.append(parcel)
	require.NoError(b.t, b.dispatch(handler, dispatch.Options{}, nil))
	require.Len(b.t, b.spans.Ended(), 1)
	return b.spans.Ended()[0]
}

func TestSpanOfADispatchSaysWhatItIsAbout(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		row := outbox.Row{
			Namespace: "acme", TaskQueue: "parcels", ActivityType: "ship", Ordinal: 7, Attempt: 2, Node: "eu-1",
			RunID: uuid.NullUUID{UUID: uuid.New(), Valid: true}, Input: outbox.Payload{Data: []byte("a bicycle")},
		}
		key := b.append(row)
		staged, err := b.store.Get(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, b.dispatch(func(context.Context, outbox.Row) error { return nil },
			dispatch.Options{AllRoutes: true, Node: "eu-1"}, nil))
		require.Len(t, b.spans.Ended(), 1)
		span := b.spans.Ended()[0]
		require.Equal(t, "process parcels", span.Name())
		require.Equal(t, trace.SpanKindConsumer, span.SpanKind())
		require.Equal(t, codes.Unset, span.Status().Code)
		require.Empty(t, span.Events())
		require.Equal(t, map[string]string{
			"messaging.system":            "outbox",
			"messaging.operation.name":    "process",
			"messaging.operation.type":    "process",
			"messaging.destination.name":  "parcels",
			"messaging.message.id":        key,
			"messaging.message.body.size": "9",
			"outbox.namespace":            "acme",
			"outbox.node":                 "eu-1",
			"outbox.workflow.id":          staged.WorkflowID.String(),
			"outbox.run.id":               row.RunID.UUID.String(),
			"outbox.activity.type":        "ship",
			"outbox.attempt":              "2",
			"outbox.fence":                "1",
			"outbox.outcome":              "completed",
		}, attributesOf(span.Attributes()))
	})
}

func TestHandlersContextCarriesTheSpan(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.append(parcel)
		require.NoError(t, b.dispatch(func(ctx context.Context, _ outbox.Row) error {
			_, child := b.tracers.Tracer("host").Start(ctx, "pack")
			child.End()
			return nil
		}, dispatch.Options{}, nil))
		ended := b.spans.Ended()
		require.Len(t, ended, 2)
		require.Equal(t, "pack", ended[0].Name())
		require.Equal(t, ended[1].SpanContext(), ended[0].Parent())
	})
}

func TestSpanIsARootAlsoWhenRunIsPartOfATrace(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		observer := b.instruments.Observer()
		ctx, around := b.tracers.Tracer("host").Start(t.Context(), "serve")
		row := parcel
		observer.Settled(observer.Started(ctx, row), row, dispatch.Completed, 0, nil)
		around.End()
		span := b.spans.Ended()[0]
		require.Equal(t, "process parcels", span.Name())
		require.False(t, span.Parent().IsValid())
		require.NotEqual(t, around.SpanContext().TraceID(), span.SpanContext().TraceID())
	})
}

func TestSpanOfAFailedHandlerHasItsError(t *testing.T) {
	address := &url.Error{Op: "Post", URL: "/", Err: errors.New("refused")}
	for name, c := range map[string]struct {
		err     error
		outcome string
		kind    string
	}{
		"retried":                {err: address, outcome: "retried", kind: "*url.Error"},
		"wrapped":                {err: fmt.Errorf("ship: %w", address), outcome: "retried", kind: "*url.Error"},
		"retried later":          {err: dispatch.RetryAfter(1, address), outcome: "retried", kind: "*url.Error"},
		"permanent":              {err: dispatch.Permanent(address), outcome: "failed", kind: "*url.Error"},
		"permanent in the midst": {err: fmt.Errorf("a: %w", dispatch.Permanent(fmt.Errorf("b: %w", address))), outcome: "failed", kind: "*url.Error"},
		"wrapping nothing":       {err: dispatch.Permanent(fmt.Errorf("a: %w", error(nil))), outcome: "failed", kind: "*fmt.wrapError"},
		"with a type of its own": {err: fmt.Errorf("ship: %w", &typed{}), outcome: "retried", kind: "no_stock"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				span := b.spanOf(func(_ context.Context, row outbox.Row) error {
					if row.Attempt == 0 {
						return c.err
					}
					return nil
				})
				require.Equal(t, sdktrace.Status{Code: codes.Error, Description: c.err.Error()}, span.Status())
				attributes := attributesOf(span.Attributes())
				require.Equal(t, c.outcome, attributes["outbox.outcome"])
				require.Equal(t, c.kind, attributes["error.type"])
				require.Len(t, span.Events(), 1)
				require.Equal(t, "exception", span.Events()[0].Name)
				require.Equal(t, map[string]string{"exception.type": c.kind, "exception.message": c.err.Error()},
					attributesOf(span.Events()[0].Attributes))
				for set := range b.collect()["messaging.process.duration"] {
					require.Contains(t, set, "error.type="+c.kind)
				}
			})
		})
	}
}

type typed struct{}

func (*typed) Error() string     { return "none left" }
func (*typed) ErrorType() string { return "no_stock" }

func TestSpanOfAPanicHasItsStackApartFromItsMessage(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		span := b.spanOf(func(context.Context, outbox.Row) error { panic("ouch") })
		require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "dispatch: the handler panicked: ouch"}, span.Status())
		event := attributesOf(span.Events()[0].Attributes)
		require.Equal(t, "dispatch: the handler panicked: ouch", event["exception.message"])
		require.Equal(t, "*dispatch.PanicError", event["exception.type"])
		require.Contains(t, event["exception.stacktrace"], "TestSpanOfAPanicHasItsStack")
	})
}

func TestMessageOfAnErrorIsMadeValidText(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		span := b.spanOf(func(context.Context, outbox.Row) error { return dispatch.Permanent(errors.New("bad \xff byte")) })
		require.Equal(t, "bad \uFFFD byte", span.Status().Description)
	})
}

func TestAcceptedIsNoError(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		span := b.spanOf(func(context.Context, outbox.Row) error { return fmt.Errorf("handed over: %w", dispatch.Accepted) })
		require.Equal(t, codes.Unset, span.Status().Code)
		require.Empty(t, span.Events())
		attributes := attributesOf(span.Attributes())
		require.Equal(t, "accepted", attributes["outbox.outcome"])
		require.NotContains(t, attributes, "error.type")
	})
}

func TestSpanOfAHandlerThatWasLeftBehindEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.append(parcel)
		release := make(chan struct{})
		require.Error(t, b.dispatch(func(context.Context, outbox.Row) error {
			<-release
			return nil
		}, dispatch.Options{ShutdownTimeout: 1}, nil))
		close(release)
		require.Len(t, b.spans.Ended(), 1)
		span := b.spans.Ended()[0]
		require.Equal(t, dispatch.ErrShutdown.Error(), span.Status().Description)
		require.Equal(t, "returned", attributesOf(span.Attributes())["outbox.outcome"])
	})
}

func TestHostThatWrapsTheObserverMayPutASpanOfItsOwnIntoTheContext(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		inner := b.instruments.Observer()
		wrapped := inner
		var own trace.Span
		wrapped.Started = func(ctx context.Context, row outbox.Row) context.Context {
			ctx, own = b.tracers.Tracer("host").Start(inner.Started(ctx, row), "own")
			return ctx
		}
		b.append(parcel)
		require.NoError(t, b.dispatch(func(context.Context, outbox.Row) error { return nil }, dispatch.Options{Observer: wrapped}, nil))
		require.Len(t, b.spans.Ended(), 1)
		require.Equal(t, "process parcels", b.spans.Ended()[0].Name())
		own.End()
	})
}
