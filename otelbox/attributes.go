package otelbox

import (
	"errors"
	"fmt"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// Attributes for which the conventions have no names.
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

// set returns the attributes of all metrics, and more.
func (i *Instruments) set(more ...attribute.KeyValue) attribute.Set {
	return attribute.NewSet(append(i.attributes[:len(i.attributes):len(i.attributes)], more...)...)
}

// route returns the attributes of metrics about a row, and more.
func (i *Instruments) route(row outbox.Row, more ...attribute.KeyValue) attribute.Set {
	return i.set(append(more, system(), semconv.MessagingDestinationName(row.TaskQueue), namespaceKey.String(row.Namespace))...)
}

// failed reports whether a handler that returned err has failed.
func failed(err error) bool { return err != nil && !errors.Is(err, dispatch.Accepted) }

// errorType is the type of an error. Wrappers by fmt.Errorf, dispatch.Permanent and
// dispatch.RetryAfter are looked through.
func errorType(err error) attribute.KeyValue {
	for inner := err; inner != nil; inner = errors.Unwrap(err) {
		err = inner
		switch err.(type) {
		case *dispatch.PermanentError, *dispatch.RetryError:
		default:
			if fmt.Sprintf("%T", err) != "*fmt.wrapError" {
				return semconv.ErrorType(err)
			}
		}
	}
	return semconv.ErrorType(err)
}
