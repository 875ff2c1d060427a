package torture

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/outbox"
	"github.com/google/uuid"
)

// prepare fills in and checks rows to be staged. Of the same key twice the
// first counts.
func prepare(now time.Time, given []outbox.Row) ([]outbox.Row, error) {
	var rows []outbox.Row
	known := map[string]bool{}
	for i, row := range given {
		row.DispatchKey = cmp.Or(row.DispatchKey, fmt.Sprintf("%s:%d", row.WorkflowID, row.Ordinal))
		row.Namespace = cmp.Or(row.Namespace, "default")
		row.TaskQueue = cmp.Or(row.TaskQueue, "default")
		row.Status = cmp.Or(row.Status, outbox.Pending)
		if field := badField(row); field != "" {
			return nil, &outbox.InvalidError{Index: i, DispatchKey: row.DispatchKey, Field: field}
		}
		if size(row) > 512<<10 {
			return nil, outbox.ErrTooLarge
		}
		if known[row.DispatchKey] {
			continue
		}
		known[row.DispatchKey] = true
		row.Fence = 0
		if row.Status == outbox.Claimed {
			row.Fence = 1
		}
		if len(row.Input.Data) == 0 {
			row.Input.Data = nil
		}
		row.LastError = clean(row.LastError)
		row.VisibleAfter = instant(row.VisibleAfter, now)
		row.CreatedAt = instant(row.CreatedAt, now)
		row.ClaimedAt = instant(row.ClaimedAt, time.Time{})
		row.FinishedAt = instant(row.FinishedAt, now)
		if live(row) {
			row.FinishedAt = time.Time{}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// instant is an instant as it is stored, or what zero means.
func instant(at, zero time.Time) time.Time {
	if at.IsZero() {
		return zero
	}
	return at.UTC()
}

// badField names what cannot be stored of a row.
func badField(row outbox.Row) string {
	for _, field := range []struct {
		name string
		bad  bool
	}{
		{"DispatchKey", badText(row.DispatchKey)},
		{"Namespace", badText(row.Namespace)},
		{"TaskQueue", badText(row.TaskQueue)},
		{"Node", badText(row.Node)},
		{"ActivityType", badText(row.ActivityType) || row.ActivityType == ""},
		{"Input.ContentType", badText(row.Input.ContentType)},
		{"LastError", badText(row.LastError)},
		{"WorkflowID", row.WorkflowID == uuid.Nil},
		{"Ordinal", row.Ordinal >= 1<<63},
		{"Status", !slices.Contains(statuses, row.Status)},
		{"VisibleAfter", badInstant(row.VisibleAfter)},
		{"ClaimedAt", badInstant(row.ClaimedAt) || row.Status != outbox.Claimed && !row.ClaimedAt.IsZero()},
		{"CreatedAt", badInstant(row.CreatedAt)},
		{"FinishedAt", badInstant(row.FinishedAt)},
	} {
		if field.bad {
			return field.name
		}
	}
	return ""
}

var statuses = []outbox.Status{outbox.Pending, outbox.Claimed, outbox.Done, outbox.Failed, outbox.Cancelled}

func badText(text string) bool { return !utf8.ValidString(text) || strings.Contains(text, "\x00") }

func badInstant(at time.Time) bool { return at.UTC().Year() < 0 || at.UTC().Year() > 9999 }

// size is how many bytes the texts of a row have.
func size(row outbox.Row) int {
	return len(row.DispatchKey + row.Namespace + row.TaskQueue + row.Node + row.ActivityType + row.Input.ContentType + row.LastError)
}

// clean is the text of an error as it is stored: without what is no text, and
// no longer than 8 KiB.
func clean(text string) string {
	var kept strings.Builder
	for _, r := range text {
		if r == 0 {
			r = utf8.RuneError
		}
		if kept.Len()+utf8.RuneLen(r) > 8<<10 {
			break
		}
		kept.WriteRune(r)
	}
	return kept.String()
}

func causeText(cause error) string {
	if cause == nil {
		return ""
	}
	return clean(cause.Error())
}

func checkKeys(keys []string) error {
	for i, key := range keys {
		if badText(key) {
			return &outbox.InvalidError{Index: i, DispatchKey: key, Field: "DispatchKey"}
		}
	}
	return nil
}

func checkRefs(refs []outbox.Ref) error {
	var keys []string
	for _, ref := range refs {
		keys = append(keys, ref.DispatchKey)
	}
	return checkKeys(keys)
}

func checkScope(scope *outbox.Scope) error {
	if scope == nil {
		return nil
	}
	return invalidIf(badText(scope.Namespace) || badText(scope.TaskQueue) || badText(scope.Node))
}

func checkLimit(limit int) error { return invalidIf(limit < 0) }

func checkInstant(at time.Time) error { return invalidIf(badInstant(at)) }

func invalidIf(bad bool) error {
	if bad {
		return outbox.ErrInvalid
	}
	return nil
}

// isInvalid reports whether err says so, and where.
func isInvalid(err error) (where *outbox.InvalidError, ok bool) {
	return where, errors.As(err, &where)
}
