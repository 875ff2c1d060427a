package outbox

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// DefaultRoute is the namespace and the task queue of rows that name none.
const DefaultRoute = "default"

// Status is where a row stands in its life. Pending and claimed rows are live;
// done, failed and cancelled ones are settled.
type Status string

const (
	Pending   Status = "pending"   // waits to be claimed, once VisibleAfter has passed
	Claimed   Status = "claimed"   // held by one claimer
	Done      Status = "done"      // settled by Complete
	Failed    Status = "failed"    // settled by Fail, or undecodable: a dead letter
	Cancelled Status = "cancelled" // settled by Cancel or SettleWorkflow
)

// Settled reports whether rows of this status are done, failed or cancelled.
func (s Status) Settled() bool { return s == Done || s == Failed || s == Cancelled }

func (s Status) known() bool { return s == Pending || s == Claimed || s.Settled() }

// Row is one dispatch: what to run, for which workflow, where it may run, and
// where it stands.
//
// To stage a row only WorkflowID and ActivityType are needed, and Ordinal to
// tell the rows of one workflow apart; [Store.Append] says what it fills in.
// All instants that are read back are in UTC, to the nanosecond.
type Row struct {
	ID           int64         // staging order, given by the database; that of a purged row may be given again
	DispatchKey  string        // identity and idempotency key; by default DispatchKey(WorkflowID, Ordinal)
	WorkflowID   uuid.UUID     // the owner; never nil
	Ordinal      uint64        // position within the workflow, at most 2^63-1
	RunID        uuid.NullUUID // the owner's run, if it has several
	Namespace    string        // tenant; "" is staged as DefaultRoute
	TaskQueue    string        // pool of workers; "" is staged as DefaultRoute
	Node         string        // the only node that may run it; "" is any
	ActivityType string        // what to run; never empty
	Input        Payload       // what to run it on
	Status       Status        // "" is staged as Pending
	Attempt      uint32        // failed dispatches so far
	VisibleAfter time.Time     // not claimed before; zero is staged as now
	ClaimedAt    time.Time     // start of the claim or its last Extend; zero unless claimed
	Fence        int64         // times claimed or reopened; never repeats while the row exists
	LastError    string        // cause given to the last Retry or Fail, at most 8 KiB
	CreatedAt    time.Time     // when it was staged
	FinishedAt   time.Time     // when it was settled; zero while live
}

// LogValue is what a log shows of a row: what tells it from others and where it
// stands. Of its payload, which may be secret, it shows only the length.
func (r Row) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.Int64("id", r.ID), slog.String("dispatch_key", r.DispatchKey), slog.String("activity_type", r.ActivityType),
		slog.String("namespace", r.Namespace), slog.String("task_queue", r.TaskQueue), slog.String("status", string(r.Status)),
		slog.Uint64("attempt", uint64(r.Attempt)), slog.Int64("fence", r.Fence), slog.Int("payload_bytes", len(r.Input.Data)),
	}
	if r.Node != "" {
		attrs = append(attrs, slog.String("node", r.Node))
	}
	if r.LastError != "" {
		attrs = append(attrs, slog.String("last_error", r.LastError))
	}
	return slog.GroupValue(attrs...)
}

// Ref returns the key and the fence of this claim, for the transitions.
func (r Row) Ref() Ref { return Ref{DispatchKey: r.DispatchKey, Fence: r.Fence} }

// Ref names a row for a transition. With the fence of a claim the transition
// applies to that claim alone. Fence 0 is unfenced, for a caller that knows
// only the key: it applies to any live row and is a no-op on any other.
type Ref struct {
	DispatchKey string
	Fence       int64
}

// Scope is a route: where rows may run. Fields are compared byte by byte: an
// empty Namespace or TaskQueue is not DefaultRoute, and matches nothing. A Scope
// without a Node covers only rows that are not pinned to one.
type Scope struct {
	Namespace, TaskQueue, Node string
}

// Admits reports whether a claim of scope s may take row: namespace and task
// queue are equal, and row is unpinned or pinned to the node of s.
func (s Scope) Admits(row Row) bool {
	return s.Namespace == row.Namespace && s.TaskQueue == row.TaskQueue &&
		(row.Node == "" || row.Node == s.Node)
}

// Payload is the input of a dispatch. The store keeps its bytes as they are
// and never looks into them. Empty Data reads back as nil.
type Payload struct {
	ContentType string // a media type by convention, such as "application/json"
	Data        []byte
}

// JSON returns v encoded as an application/json Payload.
func JSON(v any) (Payload, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return Payload{}, fmt.Errorf("outbox: encode payload: %w", err)
	}
	return Payload{ContentType: contentTypeJSON, Data: data}, nil
}

const contentTypeJSON = "application/json"

// Unmarshal decodes a payload of JSON into v, as json.Unmarshal does. A payload
// with another content type is an error; one with none is taken for JSON.
func (p Payload) Unmarshal(v any) error {
	mediaType, _, _ := strings.Cut(strings.ToLower(p.ContentType), ";")
	mediaType = strings.TrimSpace(mediaType)
	if mediaType != "" && mediaType != contentTypeJSON && !strings.HasSuffix(mediaType, "+json") {
		return fmt.Errorf("outbox: decode payload: content type %.100q is not JSON", p.ContentType)
	}
	if err := json.Unmarshal(p.Data, v); err != nil {
		return fmt.Errorf("outbox: decode payload: %w", err)
	}
	return nil
}

// RowState is the part of a row that changes, without its payload.
type RowState struct {
	Status       Status
	Attempt      uint32
	VisibleAfter time.Time
}

// Filter chooses rows for [Store.List]. Zero fields match all rows.
type Filter struct {
	Status     Status
	Namespace  string
	WorkflowID uuid.NullUUID
	After      int64 // only rows with a larger ID: that of the last row of the page before
	Limit      int   // most rows to return; zero: all of them
}

// DispatchKey returns the key that a row of this workflow and ordinal has
// unless another is given: "<workflow id>:<ordinal>".
func DispatchKey(workflowID uuid.UUID, ordinal uint64) string {
	return workflowID.String() + ":" + strconv.FormatUint(ordinal, 10)
}
