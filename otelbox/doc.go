// Package otelbox reports what a dispatch.Dispatcher does as OpenTelemetry metrics
// and traces.
//
//	instruments, err := otelbox.New(store, nil)
//	if err != nil {
//		return err
//	}
//	defer instruments.Close()
//	dispatcher := dispatch.New(store, handler, &dispatch.Options{Observer: instruments.Observer()})
//
// Names are those of the semantic conventions for messaging, version 1.43.0, where
// these have one; they are not declared stable yet. messaging.system is "outbox".
//
// # Metrics
//
//	messaging.client.consumed.messages  counter, {message}          rows that were claimed
//	messaging.process.duration          histogram, s                how long a handler took
//	outbox.queue.duration               histogram, s                from when a row fell due to the start of its handler
//	outbox.in_flight.messages           up-down counter, {message}  rows whose handler runs, or whose outcome is being stored
//	outbox.settled.messages             counter, {message}          handlers that ended, by outbox.outcome
//	outbox.recovered.messages           counter, {message}          stale claims that were taken back or settled, by outbox.outcome
//	outbox.store.errors                 counter, {error}            errors that dispatch.Observer.StoreError was told, by outbox.operation
//	outbox.oldest_due.age               gauge, s                    how long the pending row that has been due longest has been due
//
// A row counts as consumed, queued and settled once for each claim. One that waits
// for a retry falls due when the retry does. The gauge asks the store each time
// metrics are collected. It is 0 when nothing is due, and missing when the store
// returns an error. Rows of held workflows, and of routes that nobody claims, count
// as due.
//
// Their attributes:
//
//	messaging.system            "outbox"; on all but store.errors and oldest_due.age
//	messaging.destination.name  the task queue; on the same ones
//	outbox.namespace            the namespace; on the same ones
//	messaging.operation.name    "claim" of consumed.messages, "process" of process.duration
//	error.type                  of process.duration, if the handler failed
//	outbox.outcome              a dispatch.Outcome: "completed", "retried", …
//	outbox.operation            what the Dispatcher was doing: "claim", "held", "settle", …
//
// error.type is the type of the handler's error, such as "*url.Error", or what its
// method ErrorType() string returns. Of an error wrapped by fmt.Errorf,
// dispatch.Permanent or dispatch.RetryAfter it is the type of the wrapped one.
//
// Keys and workflows are no attributes of metrics, but namespaces are. With
// thousands of tenants, drop outbox.namespace with a View of the SDK.
//
// # Traces
//
// Each dispatch is a span of kind consumer named "process <task queue>", the root
// of a trace of its own. The handler's context carries it. It ends when the
// outcome is stored, so it may last longer than messaging.process.duration. A
// handler has failed if it returned an error other than dispatch.Accepted, or if a
// shutdown gave up on it. Then the status of the span is Error, and an exception
// event has the error, with the stack if it was a panic.
//
// The attributes:
//
//	messaging.system             "outbox"
//	messaging.operation.name     "process"
//	messaging.operation.type     "process"
//	messaging.destination.name   the task queue
//	messaging.message.id         the dispatch key
//	messaging.message.body.size  bytes of the payload
//	outbox.namespace             the namespace
//	outbox.node                  the node that the row is pinned to, if it is
//	outbox.workflow.id           the workflow
//	outbox.run.id                the workflow's run, if it has one
//	outbox.activity.type         the activity type
//	outbox.attempt               failed dispatches before this one
//	outbox.fence                 the fence of the claim
//	outbox.outcome               what became of the row
//	error.type                   if the handler failed
//
// Rows do not carry the trace of the code that staged them. A program that puts it
// into its payloads can link to it in the handler, with AddLink on the span in the
// context.
package otelbox
