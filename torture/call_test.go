package torture_test

import (
	"bytes"
	"context"
	"errors"
	"hash/fnv"
	"strings"

	"example.com/outbox"
	"github.com/google/uuid"
)

// call is one call of a store as a child reports it: before it is made, and
// again with its outcome once it has returned.
type call struct {
	ID       string       // "process.worker.number"
	Worker   int          // the goroutine that makes it
	Kind     kind         //
	Outcome  outcome      //
	Problem  string       `json:",omitempty"` // an error that may not be
	Workflow uuid.UUID    `json:",omitzero"`  // staged or settled
	Keys     []string     `json:",omitempty"` // staged, or cancelled by settling
	Refs     []outbox.Ref `json:",omitempty"` // claimed or changed
	Attempt  uint32       `json:",omitempty"` // of a retry
	Limit    int          `json:",omitempty"` // of a claim
	Lost     []string     `json:",omitempty"` // keys of refs that were lost
}

// kind is which call it is.
type kind string

const (
	appending kind = "append"
	staging   kind = "update with AppendTx" // and an event of the host's for each row
	claiming  kind = "claim"
	extending kind = "extend"
	completed kind = "complete"
	shipping  kind = "update with CompleteTx" // and an event of the host's for each row
	retrying  kind = "retry"
	failing   kind = "fail"
	requeuing kind = "requeue"
	settling  kind = "settle workflow"
)

// outcome is what is known of a call.
type outcome string

const (
	unanswered outcome = ""        // it is stored whole or not at all
	stored     outcome = "stored"  // all of it but the lost refs
	refused    outcome = "refused" // nothing of it
)

// answer notes how the call has returned.
func (c *call) answer(err error) {
	var lost *outbox.ClaimLostError
	switch {
	case err == nil:
		c.Outcome = stored
	case errors.As(err, &lost):
		c.Lost = lost.DispatchKeys
		c.Outcome = stored
		if c.Kind == shipping { // its function failed
			c.Outcome = refused
		}
	case errors.Is(err, outbox.ErrCommitUnknown):
		c.Outcome = unanswered
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, outbox.ErrBusy):
		c.Outcome = refused
	default:
		c.Problem = err.Error()
	}
}

// stagedEvent and shippedEvent are what the host's table says of a row.
func stagedEvent(key string) string { return "staged " + key }

func shippedEvent(key string) string { return "shipped " + key }

// payloadOf is the payload of the row with this key: small, just around the
// size up to which payloads lie inline, or large.
func payloadOf(key string) outbox.Payload {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(key))
	n := int(sum.Sum32() >> 3)
	size := n % 200
	switch sum.Sum32() % 8 {
	case 0:
		size = 1<<10 - 2 + n%5
	case 1:
		size = 2000 + n%20_000
	}
	data := bytes.Repeat([]byte(key), size/len(key)+1)[:size]
	if size == 0 {
		data = nil
	}
	return outbox.Payload{ContentType: "text/plain", Data: data}
}

// workflowOf is the workflow of a row whose key is the default one.
func workflowOf(key string) string {
	workflow, _, _ := strings.Cut(key, ":")
	return workflow
}
