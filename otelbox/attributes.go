package otelbox

import (
	"errors"
	"fmt"
	"reflect"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// What the conventions have no names for.
const (
	namespaceKey    = attribute.Key("outbox.namespace")
	nodeKey         = attribute.Key("outbox.node")
	workflowIDKey   = attribute.Key("outbox.workflow.id")
	runIDKey        = attribute.Key("outbox.run.id")
	activityTypeKey = attribute.Key("outbox.activity.type")
	attemptKey      = attribute.Key("outbox.attempt")
	fenceKey        = attribute.Key("outbox.fence")
	outcomeKey      = attribute.Key("outbox.outcome")
	operationKey    = attribute.Key("outbox.operation")
)

// processing is the name of what a handler does.
const processing = "process"

func system() attribute.KeyValue { return semconv.MessagingSystemKey.String("outbox") }

// set adds to the attributes of all metrics.
func (i *Instruments) set(more ...attribute.KeyValue) attribute.Set {
	return attribute.NewSet(append(i.attributes[:len(i.attributes):len(i.attributes)], more...)...)
}

// route adds to the attributes of metrics that are about a row.
func (i *Instruments) route(row outbox.Row, more ...attribute.KeyValue) attribute.Set {
	return i.set(append(more, system(), semconv.MessagingDestinationName(row.TaskQueue), namespaceKey.String(row.Namespace))...)
}

// failed reports whether a handler that returned err has failed.
func failed(err error) bool { return err != nil && !errors.Is(err, dispatch.Accepted) }

// errorType looks through what only adds words to an error, or says what is to
// be done about it.
func errorType(err error) attribute.KeyValue {
	sample := errors.New("any")
	wrapped, permanent, retry := reflect.TypeOf(fmt.Errorf("%w", sample)), reflect.TypeOf(dispatch.Permanent(sample)), reflect.TypeOf(dispatch.RetryNow(sample))
	for inner := err; inner != nil; inner = errors.Unwrap(err) {
		err = inner
		if kind := reflect.TypeOf(err); kind != wrapped && kind != permanent && kind != retry {
			break
		}
	}
	return semconv.ErrorType(err)
}
