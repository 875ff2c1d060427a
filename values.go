package outbox

import (
	"cmp"
	"strconv"
	"strings"
)

// insertStatement returns an INSERT of rows, to which a conflict clause may be
// added. A driver charges for each value bound and SQLite for each that is
// parsed, so what all rows have in common is written once, as it is for most
// columns of a fan-out:
//
//	INSERT INTO outbox (…) SELECT column1, ?, column2, … FROM (VALUES (?, ?), (?, ?), …) WHERE TRUE
//
// That a WHERE stands before a conflict clause is SQLite's rule for a SELECT.
// One row alone is cheaper as VALUES.
func insertStatement(rows []stagedRow, now string) (string, []any) {
	list := values{now: now}
	list.sql.WriteString(insertInto)
	if len(rows) == 1 {
		list.sql.WriteString("VALUES (")
		list.row(stagedColumns, &rows[0])
		list.sql.WriteByte(')')
		return list.sql.String(), list.args
	}
	list.sql.WriteString("SELECT ")
	var varying []stagedColumn
	for i, column := range stagedColumns {
		if i > 0 {
			list.sql.WriteByte(',')
		}
		if column.shared(rows) {
			column.write(&list, &rows[0])
			continue
		}
		varying = append(varying, column)
		list.sql.WriteString("column" + strconv.Itoa(len(varying)))
	}
	list.sql.WriteString(" FROM (VALUES ")
	for i := range rows {
		if i > 0 {
			list.sql.WriteByte(',')
		}
		list.sql.WriteByte('(')
		list.row(varying, &rows[i])
		list.sql.WriteByte(')')
	}
	list.sql.WriteString(") WHERE TRUE")
	return list.sql.String(), list.args
}

// stagedColumn is a column that a staged row sets.
type stagedColumn struct {
	name  string
	same  func(a, b *stagedRow) bool
	write func(v *values, r *stagedRow)
}

// shared reports whether all rows have the same value.
func (c stagedColumn) shared(rows []stagedRow) bool {
	for i := range rows[1:] {
		if !c.same(&rows[0], &rows[i+1]) {
			return false
		}
	}
	return true
}

var stagedColumns = []stagedColumn{
	{"dispatch_key", func(a, b *stagedRow) bool { return a.DispatchKey == b.DispatchKey },
		func(v *values, r *stagedRow) { v.text(r.DispatchKey) }},
	{"workflow_id", func(a, b *stagedRow) bool { return a.WorkflowID == b.WorkflowID },
		func(v *values, r *stagedRow) { v.quoted(r.WorkflowID.String()) }},
	{"ordinal", func(a, b *stagedRow) bool { return a.Ordinal == b.Ordinal },
		func(v *values, r *stagedRow) { v.integer(r.Ordinal) }},
	{"activity_type", func(a, b *stagedRow) bool { return a.ActivityType == b.ActivityType },
		func(v *values, r *stagedRow) { v.text(r.ActivityType) }},
	{"input", func(a, b *stagedRow) bool { return a.large() && b.large() },
		func(v *values, r *stagedRow) { v.payload(r) }},
	{"status", func(a, b *stagedRow) bool { return a.Status == b.Status },
		func(v *values, r *stagedRow) { v.quoted(string(r.Status)) }},
	{"attempt", func(a, b *stagedRow) bool { return a.Attempt == b.Attempt },
		func(v *values, r *stagedRow) { v.integer(uint64(r.Attempt)) }},
	{"visible_after", func(a, b *stagedRow) bool { return a.visibleAfter == b.visibleAfter },
		func(v *values, r *stagedRow) { v.quoted(cmp.Or(r.visibleAfter, v.now)) }},
	{"claimed_at", func(a, b *stagedRow) bool { return a.claimedAt == b.claimedAt },
		func(v *values, r *stagedRow) { v.optional(r.claimedAt) }},
	{"run_id", func(a, b *stagedRow) bool { return a.RunID == b.RunID },
		func(v *values, r *stagedRow) { v.optional(r.runID()) }},
	{"namespace", func(a, b *stagedRow) bool { return a.Namespace == b.Namespace },
		func(v *values, r *stagedRow) { v.text(r.Namespace) }},
	{"task_queue", func(a, b *stagedRow) bool { return a.TaskQueue == b.TaskQueue },
		func(v *values, r *stagedRow) { v.text(r.TaskQueue) }},
	{"node", func(a, b *stagedRow) bool { return a.Node == b.Node },
		func(v *values, r *stagedRow) { v.optionalText(r.Node) }},
	{"content_type", func(a, b *stagedRow) bool { return a.Input.ContentType == b.Input.ContentType },
		func(v *values, r *stagedRow) { v.text(r.Input.ContentType) }},
	{"fence", func(a, b *stagedRow) bool { return a.Status == b.Status },
		func(v *values, r *stagedRow) { v.integer(r.firstFence()) }},
	{"last_error", func(a, b *stagedRow) bool { return a.LastError == b.LastError },
		func(v *values, r *stagedRow) { v.optionalText(r.LastError) }},
	{"created_at", func(a, b *stagedRow) bool { return a.createdAt == b.createdAt },
		func(v *values, r *stagedRow) { v.quoted(cmp.Or(r.createdAt, v.now)) }},
	{"finished_at", func(a, b *stagedRow) bool { return a.finishedAt == b.finishedAt && a.Status == b.Status },
		func(v *values, r *stagedRow) { v.optional(r.finish(v.now)) }},
}

var insertInto = func() string {
	var names []string
	for _, column := range stagedColumns {
		names = append(names, column.name)
	}
	return "INSERT INTO outbox (" + strings.Join(names, ", ") + ") "
}()

// values writes values into a statement. Texts of the caller's are bound, and
// nothing else is.
type values struct {
	sql  strings.Builder
	args []any
	now  string
}

// row is a row's values of columns.
func (v *values) row(columns []stagedColumn, r *stagedRow) {
	for i, column := range columns {
		if i > 0 {
			v.sql.WriteByte(',')
		}
		column.write(v, r)
	}
}

func (v *values) text(text string) {
	v.sql.WriteByte('?')
	v.args = append(v.args, text)
}

// optionalText is NULL if it is empty.
func (v *values) optionalText(text string) {
	if text == "" {
		v.sql.WriteString("NULL")
		return
	}
	v.text(text)
}

// quoted is a status, an instant or a UUID, which need no escaping.
func (v *values) quoted(text string) {
	v.sql.WriteByte('\'')
	v.sql.WriteString(text)
	v.sql.WriteByte('\'')
}

func (v *values) optional(text string) {
	if text == "" {
		v.sql.WriteString("NULL")
		return
	}
	v.quoted(text)
}

func (v *values) integer(n uint64) { v.sql.WriteString(strconv.FormatUint(n, 10)) }

// payload is what is kept of it in the row. A nil slice would be bound as NULL.
func (v *values) payload(r *stagedRow) {
	switch {
	case r.large():
		v.sql.WriteString("NULL")
	case len(r.Input.Data) == 0:
		v.sql.WriteString("x''")
	default:
		v.sql.WriteByte('?')
		v.args = append(v.args, r.Input.Data)
	}
}

func (r *stagedRow) runID() string {
	if !r.RunID.Valid {
		return ""
	}
	return r.RunID.UUID.String()
}

// firstFence is 1 for a row that comes claimed.
func (r *stagedRow) firstFence() uint64 {
	if r.Status == Claimed {
		return 1
	}
	return 0
}

// finish is when a row that comes settled was.
func (r *stagedRow) finish(now string) string {
	if !r.Status.settled() {
		return ""
	}
	return cmp.Or(r.finishedAt, now)
}
