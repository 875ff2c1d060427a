package outbox

import (
	"fmt"
	"time"

	"github.com/google/uuid"
)

// What rows and arguments may be. All of this runs before any transaction opens.

const outsideYears = "is outside the years 0000 to 9999"

func checkText(field, text string) error {
	if reason := textDefect(text); reason != "" {
		return &InvalidError{Index: -1, Field: field, Reason: reason}
	}
	return nil
}

func checkRefs(refs []Ref) error {
	for i, ref := range refs {
		if reason := textDefect(ref.DispatchKey); reason != "" {
			return &InvalidError{Index: i, DispatchKey: ref.DispatchKey, Field: "DispatchKey", Reason: reason}
		}
	}
	return nil
}

func checkWorkflow(workflowID uuid.UUID) error {
	if workflowID == uuid.Nil {
		return &InvalidError{Index: -1, Field: "workflowID", Reason: "is nil"}
	}
	return nil
}

func checkLimit(limit int) error {
	if limit < 0 {
		return &InvalidError{Index: -1, Field: "limit", Reason: "is negative"}
	}
	return nil
}

// checkInstant encodes an instant that may be left out; then it is empty.
func checkInstant(field string, at time.Time) (string, error) {
	if at.IsZero() {
		return "", nil
	}
	return requireInstant(field, at)
}

func requireInstant(field string, at time.Time) (string, error) {
	text, ok := encodeInstant(at)
	if !ok {
		return "", &InvalidError{Index: -1, Field: field, Reason: outsideYears}
	}
	return text, nil
}

func checkFilter(filter Filter) error {
	if err := checkLimit(filter.Limit); err != nil {
		return err
	}
	if filter.Status != "" && !filter.Status.known() {
		return &InvalidError{Index: -1, Field: "filter.Status", Reason: "is unknown"}
	}
	return checkText("filter.Namespace", filter.Namespace)
}

// stagedRow is a valid row as it will be stored. Instants are encoded; an empty
// one is now.
type stagedRow struct {
	Row
	visibleAfter, claimedAt, createdAt, finishedAt string
}

// prepareRows fills in and checks rows. A key given twice is prepared once.
func prepareRows(rows []Row) ([]stagedRow, error) {
	staged := make([]stagedRow, 0, len(rows))
	seen := make(map[string]bool, len(rows))
	for i, row := range rows {
		prepared, err := prepareRow(i, row)
		if err != nil {
			return nil, err
		}
		if !seen[prepared.DispatchKey] {
			seen[prepared.DispatchKey] = true
			staged = append(staged, prepared)
		}
	}
	return staged, nil
}

func prepareRearm(rows []Row) ([]stagedRow, error) {
	staged, err := prepareRows(rows)
	for i := range staged {
		row := &staged[i]
		row.Status, row.LastError = Pending, ""
		row.claimedAt, row.finishedAt = "", ""
	}
	return staged, err
}

// weightOf counts rows, and a kilobyte of payload as another.
func weightOf(rows []stagedRow) int {
	weight := len(rows)
	for i := range rows {
		weight += len(rows[i].Input.Data) >> 10
	}
	return weight
}

// Bounds of what a database can hold. SQLite stops at a billion bytes a record,
// less what the record needs for itself. A text is in several records at once,
// and a claim returns all texts of a row in one.
const (
	maxPayload = 1_000_000_000 - 64
	maxText    = 1 << 19
)

func prepareRow(index int, row Row) (stagedRow, error) {
	staged := stagedRow{Row: row}
	if staged.DispatchKey == "" {
		staged.DispatchKey = DispatchKey(row.WorkflowID, row.Ordinal)
	}
	if staged.Namespace == "" {
		staged.Namespace = DefaultRoute
	}
	if staged.TaskQueue == "" {
		staged.TaskQueue = DefaultRoute
	}
	if staged.Status == "" {
		staged.Status = Pending
	}
	invalid := func(field, reason string) (stagedRow, error) {
		return stagedRow{}, &InvalidError{Index: index, DispatchKey: staged.DispatchKey, Field: field, Reason: reason}
	}
	texts := 0
	for _, text := range []struct{ field, value string }{
		{"DispatchKey", staged.DispatchKey},
		{"Namespace", staged.Namespace},
		{"TaskQueue", staged.TaskQueue},
		{"Node", row.Node},
		{"ActivityType", row.ActivityType},
		{"Input.ContentType", row.Input.ContentType},
		{"LastError", row.LastError},
	} {
		if reason := textDefect(text.value); reason != "" {
			return invalid(text.field, reason)
		}
		texts += len(text.value)
	}
	switch {
	case row.ActivityType == "":
		return invalid("ActivityType", "is empty")
	case row.WorkflowID == uuid.Nil:
		return invalid("WorkflowID", "is nil")
	case int64(row.Ordinal) < 0:
		return invalid("Ordinal", "is larger than 2^63-1")
	case !staged.Status.known():
		return invalid("Status", fmt.Sprintf("%.40q is not a status", row.Status))
	case staged.Status != Claimed && !row.ClaimedAt.IsZero():
		return invalid("ClaimedAt", "is set without status claimed")
	case len(row.Input.Data) > maxPayload:
		return stagedRow{}, fmt.Errorf("%w: payload of %d bytes at index %d (%s)",
			ErrTooLarge, len(row.Input.Data), index, quoteKey(staged.DispatchKey))
	case texts > maxText:
		return stagedRow{}, fmt.Errorf("%w: texts of %d bytes at index %d (%s)",
			ErrTooLarge, texts, index, quoteKey(staged.DispatchKey))
	}
	staged.LastError = cleanText(row.LastError)

	for _, instant := range []struct {
		field string
		at    time.Time
		text  *string
	}{
		{"VisibleAfter", row.VisibleAfter, &staged.visibleAfter},
		{"ClaimedAt", row.ClaimedAt, &staged.claimedAt},
		{"CreatedAt", row.CreatedAt, &staged.createdAt},
		{"FinishedAt", row.FinishedAt, &staged.finishedAt},
	} {
		if instant.at.IsZero() {
			continue
		}
		text, ok := encodeInstant(instant.at)
		if !ok {
			return invalid(instant.field, outsideYears)
		}
		*instant.text = text
	}
	return staged, nil
}
