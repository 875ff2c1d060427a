package otelbox

import (
	"context"
	"errors"
	"strings"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// spanKey is the key of the dispatch's span in a context. The current span may be
// another, which a wrapper around the Observer has started.
type spanKey struct{}

// startSpan starts a trace of its own. A span in the context of Run would last as
// long as the program, so it is not the parent.
func (i *Instruments) startSpan(ctx context.Context, row outbox.Row) context.Context {
	ctx, span := i.tracer.Start(ctx, processing+" "+row.TaskQueue,
		trace.WithNewRoot(),
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(i.attributes...),
		trace.WithAttributes(spanAttributes(row)...))
	return context.WithValue(ctx, spanKey{}, span)
}

func spanAttributes(row outbox.Row) []attribute.KeyValue {
	attributes := []attribute.KeyValue{
		system(),
		semconv.MessagingOperationName(processing),
		semconv.MessagingOperationTypeProcess,
		semconv.MessagingDestinationName(row.TaskQueue),
		semconv.MessagingMessageID(row.DispatchKey),
		semconv.MessagingMessageBodySize(len(row.Input.Data)),
		namespaceKey.String(row.Namespace),
		workflowIDKey.String(row.WorkflowID.String()),
		activityTypeKey.String(row.ActivityType),
		attemptKey.Int64(int64(row.Attempt)),
		fenceKey.Int64(row.Fence),
	}
	if row.Node != "" {
		attributes = append(attributes, nodeKey.String(row.Node))
	}
	if row.RunID.Valid {
		attributes = append(attributes, runIDKey.String(row.RunID.UUID.String()))
	}
	return attributes
}

// endSpan ends the span that startSpan has started.
func endSpan(ctx context.Context, outcome dispatch.Outcome, err error) {
	span, ok := ctx.Value(spanKey{}).(trace.Span)
	if !ok {
		return
	}
	span.SetAttributes(outcomeKey.String(string(outcome)))
	if failed(err) && span.IsRecording() {
		recordError(span, err)
	}
	span.End()
}

// recordError does what Span.RecordError does, with two differences: the type is
// that of the error within Permanent and the like, and the stack of a panic is not
// in the message.
func recordError(span trace.Span, err error) {
	kind, message := errorType(err), err.Error()
	exception := []attribute.KeyValue{semconv.ExceptionType(kind.Value.AsString())}
	var panicked *dispatch.PanicError
	if errors.As(err, &panicked) {
		message = strings.TrimSpace(strings.Replace(message, string(panicked.Stack), "", 1))
		exception = append(exception, semconv.ExceptionStacktrace(string(panicked.Stack)))
	}
	message = strings.ToValidUTF8(message, "\uFFFD") // exporters refuse a whole batch otherwise
	span.AddEvent(semconv.ExceptionEventName, trace.WithAttributes(append(exception, semconv.ExceptionMessage(message))...))
	span.SetAttributes(kind)
	span.SetStatus(codes.Error, message)
}
