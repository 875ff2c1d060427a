package outbox

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Checks of arguments. They run before any transaction opens.

const outsideYears = "is outside the years 0000 to 9999"

// textDefect says why text cannot be stored or looked for: drivers refuse
// invalid UTF-8, and cut a text at its first NUL without a word, so that it
// would name another row.
func textDefect(text string) string {
	switch {
	case !utf8.ValidString(text):
		return "is not valid UTF-8"
	case strings.IndexByte(text, 0) >= 0:
		return "holds a NUL"
	}
	return ""
}

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
