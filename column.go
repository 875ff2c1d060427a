package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"
)

// column is a column of table outbox: what it is called on disk, how a row that
// is staged fills it, and how a row that is read gets it back. A new one goes into
// this list and into schema.sql, and nowhere else.
type column struct {
	name string
	kind string // what its declared type has in it, in lower case
	age  age

	// same reports whether two rows to be staged have the same value here, and
	// write adds a row's value to a statement. Nil: the database fills it in.
	same  func(a, b *stagedRow) bool
	write func(v *values, r *stagedRow)

	// read decodes it from a packed row, where NULL is empty. Nil: it is read
	// apart from the others.
	read func(r *storedRow, field string) error

	null    bool // it may be NULL
	free    bool // it may hold any text
	checked bool // a CHECK of schema.sql keeps blobs out, or one in it does no harm
}

// age tells since when a table has a column.
type age int

const (
	legacy      age = iota // every legacy table has it
	laterLegacy            // some do
	ours                   // none does
)

// columns are the columns of table outbox, in the order of schema.sql.
var columns = []column{
	{name: "dispatch_key", kind: "text", free: true,
		same:  func(a, b *stagedRow) bool { return a.DispatchKey == b.DispatchKey },
		write: func(v *values, r *stagedRow) { v.text(r.DispatchKey) },
		read:  func(r *storedRow, field string) error { r.DispatchKey = field; return nil }},
	{name: "workflow_id", kind: "text", free: true,
		same:  func(a, b *stagedRow) bool { return a.WorkflowID == b.WorkflowID },
		write: func(v *values, r *stagedRow) { v.quoted(r.WorkflowID.String()) },
		read: func(r *storedRow, field string) (err error) {
			r.WorkflowID, err = decodeUUID(field)
			return err
		}},
	{name: "ordinal", kind: "int",
		same:  func(a, b *stagedRow) bool { return a.Ordinal == b.Ordinal },
		write: func(v *values, r *stagedRow) { v.integer(r.Ordinal) },
		read: func(r *storedRow, field string) (err error) {
			r.Ordinal, err = strconv.ParseUint(field, 10, 63)
			return err
		}},
	{name: "activity_type", kind: "text", free: true,
		same:  func(a, b *stagedRow) bool { return a.ActivityType == b.ActivityType },
		write: func(v *values, r *stagedRow) { v.text(r.ActivityType) },
		read: func(r *storedRow, field string) error {
			if r.ActivityType = field; r.ActivityType == "" {
				return errors.New("is empty")
			}
			return nil
		}},
	{name: "input", kind: "blob",
		same:  func(a, b *stagedRow) bool { return a.large() && b.large() },
		write: func(v *values, r *stagedRow) { v.payload(r) }},
	{name: "status", kind: "text", checked: true,
		same:  func(a, b *stagedRow) bool { return a.Status == b.Status },
		write: func(v *values, r *stagedRow) { v.quoted(string(r.Status)) },
		read: func(r *storedRow, field string) error {
			if r.Status = Status(field); !r.Status.known() {
				return fmt.Errorf("%.40q is not a status", field)
			}
			return nil
		}},
	{name: "attempt", kind: "int",
		same:  func(a, b *stagedRow) bool { return a.Attempt == b.Attempt },
		write: func(v *values, r *stagedRow) { v.integer(uint64(r.Attempt)) },
		read: func(r *storedRow, field string) error {
			attempt, err := strconv.ParseUint(field, 10, 32)
			r.Attempt = uint32(attempt)
			return err
		}},
	{name: "visible_after", kind: "text", checked: true,
		same:  func(a, b *stagedRow) bool { return a.visibleAfter == b.visibleAfter },
		write: func(v *values, r *stagedRow) { v.quoted(cmp.Or(r.visibleAfter, v.now)) },
		read:  func(r *storedRow, field string) error { return readInstant(&r.VisibleAfter, field) }},
	{name: "claimed_at", kind: "text", age: laterLegacy, null: true, checked: true,
		same:  func(a, b *stagedRow) bool { return a.claimedAt == b.claimedAt },
		write: func(v *values, r *stagedRow) { v.optional(r.claimedAt) },
		read:  func(r *storedRow, field string) error { return readInstant(&r.ClaimedAt, field) }},
	{name: "run_id", kind: "text", age: laterLegacy, free: true, null: true,
		same:  func(a, b *stagedRow) bool { return a.RunID == b.RunID },
		write: func(v *values, r *stagedRow) { v.optional(r.runID()) },
		read: func(r *storedRow, field string) (err error) {
			if field != "" {
				r.RunID.UUID, err = uuid.Parse(field)
				r.RunID.Valid = err == nil
			}
			return err
		}},
	{name: "namespace", kind: "text", age: laterLegacy, free: true,
		same:  func(a, b *stagedRow) bool { return a.Namespace == b.Namespace },
		write: func(v *values, r *stagedRow) { v.text(r.Namespace) },
		read:  func(r *storedRow, field string) error { r.Namespace = field; return nil }},
	{name: "task_queue", kind: "text", age: laterLegacy, free: true,
		same:  func(a, b *stagedRow) bool { return a.TaskQueue == b.TaskQueue },
		write: func(v *values, r *stagedRow) { v.text(r.TaskQueue) },
		read:  func(r *storedRow, field string) error { r.TaskQueue = field; return nil }},
	{name: "node", kind: "text", age: laterLegacy, free: true, null: true,
		same:  func(a, b *stagedRow) bool { return a.Node == b.Node },
		write: func(v *values, r *stagedRow) { v.optionalText(r.Node) },
		read:  func(r *storedRow, field string) error { r.Node = field; return nil }},
	{name: "id", kind: "int", age: ours},
	{name: "content_type", kind: "text", age: ours, free: true, null: true,
		same:  func(a, b *stagedRow) bool { return a.Input.ContentType == b.Input.ContentType },
		write: func(v *values, r *stagedRow) { v.text(r.Input.ContentType) },
		read:  func(r *storedRow, field string) error { r.Input.ContentType = field; return nil }},
	{name: "fence", kind: "int", age: ours,
		same:  func(a, b *stagedRow) bool { return a.Status == b.Status },
		write: func(v *values, r *stagedRow) { v.integer(r.firstFence()) },
		read: func(r *storedRow, field string) (err error) {
			if r.Fence, err = strconv.ParseInt(field, 10, 64); err != nil || r.Fence < 0 {
				return fmt.Errorf("%q is out of range", field)
			}
			return nil
		}},
	{name: "last_error", kind: "text", age: ours, free: true, null: true, checked: true,
		same:  func(a, b *stagedRow) bool { return a.LastError == b.LastError },
		write: func(v *values, r *stagedRow) { v.optionalText(r.LastError) },
		read:  func(r *storedRow, field string) error { r.LastError = field; return nil }},
	{name: "created_at", kind: "text", age: ours, checked: true,
		same:  func(a, b *stagedRow) bool { return a.createdAt == b.createdAt },
		write: func(v *values, r *stagedRow) { v.quoted(cmp.Or(r.createdAt, v.now)) },
		read:  func(r *storedRow, field string) error { return readInstant(&r.CreatedAt, field) }},
	{name: "finished_at", kind: "text", age: ours, null: true, checked: true,
		same:  func(a, b *stagedRow) bool { return a.finishedAt == b.finishedAt && a.Status == b.Status },
		write: func(v *values, r *stagedRow) { v.optional(r.finish(v.now)) },
		read:  func(r *storedRow, field string) error { return readInstant(&r.FinishedAt, field) }},
}
