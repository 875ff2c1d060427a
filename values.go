package outbox

import (
	"cmp"
	"strconv"
	"strings"
)

// values writes values into a statement. Texts of the caller's are bound;
// nothing else is, unless bound says so.
type values struct {
	sql   strings.Builder
	args  []any
	now   string
	bound bool
}

func (v *values) text(text string) { v.bind(text) }

func (v *values) bind(value any) {
	v.sql.WriteByte('?')
	v.args = append(v.args, value)
}

// optionalText is NULL if it is empty.
func (v *values) optionalText(text string) {
	if text == "" && v.bound {
		v.bind(nil)
		return
	}
	if text == "" {
		v.sql.WriteString("NULL")
		return
	}
	v.text(text)
}

// quoted is a status, an instant or a UUID, which need no escaping.
func (v *values) quoted(text string) {
	if v.bound {
		v.bind(text)
		return
	}
	v.sql.WriteByte('\'')
	v.sql.WriteString(text)
	v.sql.WriteByte('\'')
}

func (v *values) optional(text string) {
	if text == "" && v.bound {
		v.bind(nil)
		return
	}
	if text == "" {
		v.sql.WriteString("NULL")
		return
	}
	v.quoted(text)
}

func (v *values) integer(n uint64) {
	if v.bound {
		v.bind(int64(n))
		return
	}
	v.sql.WriteString(strconv.FormatUint(n, 10))
}

// payload is what is kept of it in the row. A nil slice would be bound as NULL.
func (v *values) payload(r *stagedRow) {
	switch {
	case r.large():
		v.sql.WriteString("NULL")
	case len(r.Input.Data) == 0:
		v.sql.WriteString("x''")
	default:
		v.bind(r.Input.Data)
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
	if !r.Status.Settled() {
		return ""
	}
	return cmp.Or(r.finishedAt, now)
}

// large reports whether the payload lies beside the row.
func (r *stagedRow) large() bool { return len(r.Input.Data) > inlineLimit }
