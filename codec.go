package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// inlineLimit is the payload size in bytes up to which it is kept in its row.
// A larger one has a row of outbox_payload, which no transition rewrites.
const (
	inlineLimit    = 1024
	inlineLimitSQL = "1024"
)

// packedStart and packedEnd, with a condition between them, read the columns of
// a row, but for its payload, as one blob: drivers charge for every value, and
// try to read every text as an instant ("2024-01-01" would come back as a
// time.Time). No stored text holds a NUL, so NULs can part the fields; free
// texts come last, so that one that does hold a NUL spoils few others.
//
// SQLite takes a third of a small claim to compile what is returned, so this is
// as short as it can be: one call of concat_ws rather than a chain of ||. That
// passes over NULL, and in some versions over empty texts, hence the "=" in
// front of a text and the "-" in the place of none.
//
// The first field is 1 if a column holds a blob that should be a text or a
// number: a blob sorts after those. A text where a number should be shows when it
// is decoded.
const (
	packedStart = `CAST(concat_ws(char(0), ifnull(max(dispatch_key, workflow_id, ordinal, activity_type, attempt, fence, namespace, task_queue,
		ifnull(run_id, ''), ifnull(node, ''), ifnull(content_type, '')) >= x'', 1), `

	packedEnd = `, id, ordinal, status, attempt, fence, visible_after, ifnull(claimed_at, '-'), created_at, ifnull(finished_at, '-'),
	content_type IS NULL, '=' || dispatch_key, '=' || workflow_id, ifnull('=' || run_id, '-'), '=' || namespace, '=' || task_queue,
	ifnull('=' || node, '-'), '=' || activity_type, ifnull('=' || content_type, '-'), ifnull('=' || last_error, '-')) AS BLOB)`
)

// A row is read as two values: the packed columns and the payload. The condition
// among the former is whether the payload is still to be fetched, or missing:
// SQL tells, since a driver may read an empty blob as nil.
const (
	// returnedRow is for RETURNING, which builds one record a row: there a
	// payload of nearly the largest size would make the record too large for
	// a server. It leaves out large payloads, for selectPayloads to fetch.
	returnedRow = packedStart + `input IS NULL OR length(input) > ` + inlineLimitSQL + packedEnd + `,
	CASE WHEN length(input) <= ` + inlineLimitSQL + ` THEN CAST(input AS BLOB) END`

	// selectedRow is for a SELECT without a sorter: it has every payload.
	selectedRow = packedStart + `input IS NULL AND NOT EXISTS (SELECT 1 FROM outbox_payload WHERE outbox_payload.id = outbox.id)` + packedEnd + `,
	` + payloadColumn

	payloadColumn = `CASE WHEN input IS NULL THEN (SELECT data FROM outbox_payload WHERE outbox_payload.id = outbox.id)
	ELSE CAST(input AS BLOB) END`
)

// Positions in the packed columns.
const (
	fieldMistyped = iota
	fieldUnread
	fieldID
	fieldOrdinal
	fieldStatus
	fieldAttempt
	fieldFence
	fieldVisibleAfter
	fieldClaimedAt
	fieldCreatedAt
	fieldFinishedAt
	fieldEnveloped
	fieldDispatchKey
	fieldWorkflowID
	fieldRunID
	fieldNamespace
	fieldTaskQueue
	fieldNode
	fieldActivityType
	fieldContentType
	fieldLastError
	fieldCount
)

// storedRow is a row as it was read. A row that cannot be decoded has a defect
// and only the fields that could be read.
type storedRow struct {
	Row
	enveloped bool // the payload is a legacy envelope
	unread    bool // the payload has not been read
	defect    error
}

// queryRows runs a query for returnedRow or selectedRow.
func queryRows(ctx context.Context, tx Tx, text string, args ...any) ([]storedRow, error) {
	var list []storedRow
	err := query(ctx, tx, text, args, func(rows *sql.Rows) error {
		var (
			packed  sql.RawBytes
			payload []byte
		)
		if err := rows.Scan(&packed, &payload); err != nil {
			return err
		}
		list = append(list, decodeRow(packed, payload))
		return nil
	})
	return list, err
}

// rowsOf returns rows that were checked.
func rowsOf(stored []storedRow) []Row {
	if len(stored) == 0 {
		return nil
	}
	rows := make([]Row, len(stored))
	for i := range stored {
		rows[i] = stored[i].Row
	}
	return rows
}

// decodeRow decodes a packed row; what it cannot decode is noted as the defect.
// The ID is always known.
func decodeRow(packed, payload []byte) storedRow {
	var row storedRow
	fields := strings.Split(string(packed), "\x00")
	if len(fields) != fieldCount {
		row.fail("row", errors.New("a text holds a NUL"))
		fields = append(fields, make([]string, fieldCount)...)
		clear(fields[soundFields(fields):])
	}
	if fields[fieldMistyped] != "0" {
		row.fail("row", errors.New("a text or a number is stored as a blob"))
	}
	if !utf8.Valid(packed) {
		row.fail("row", errors.New("a text is not UTF-8"))
	}

	var err error
	row.unread = fields[fieldUnread] != "0"
	row.ID, _ = strconv.ParseInt(fields[fieldID], 10, 64)
	if row.Ordinal, err = strconv.ParseUint(fields[fieldOrdinal], 10, 63); err != nil {
		row.fail("ordinal", err)
	}
	row.Status = Status(fields[fieldStatus])
	if !row.Status.known() {
		row.fail("status", fmt.Errorf("%.40q is not a status", row.Status))
	}
	attempt, err := strconv.ParseUint(fields[fieldAttempt], 10, 32)
	if row.Attempt = uint32(attempt); err != nil {
		row.fail("attempt", err)
	}
	if row.Fence, err = strconv.ParseInt(fields[fieldFence], 10, 64); err != nil || row.Fence < 0 || row.Fence == 0 && row.Status == Claimed {
		row.fail("fence", fmt.Errorf("%q is out of range", fields[fieldFence]))
	}
	row.decodeInstant(&row.VisibleAfter, "visible_after", fields[fieldVisibleAfter])
	row.decodeInstant(&row.ClaimedAt, "claimed_at", fields[fieldClaimedAt])
	row.decodeInstant(&row.CreatedAt, "created_at", fields[fieldCreatedAt])
	row.decodeInstant(&row.FinishedAt, "finished_at", fields[fieldFinishedAt])

	row.DispatchKey = packedText(fields[fieldDispatchKey])
	if row.WorkflowID, err = decodeUUID(packedText(fields[fieldWorkflowID])); err != nil {
		row.fail("workflow_id", err)
	}
	if run := packedText(fields[fieldRunID]); run != "" {
		if row.RunID.UUID, err = uuid.Parse(run); err != nil {
			row.fail("run_id", err)
		}
		row.RunID.Valid = err == nil
	}
	row.Namespace = packedText(fields[fieldNamespace])
	row.TaskQueue = packedText(fields[fieldTaskQueue])
	row.Node = packedText(fields[fieldNode])
	row.ActivityType = packedText(fields[fieldActivityType])
	if row.ActivityType == "" {
		row.fail("activity_type", errors.New("is empty"))
	}
	row.Input.ContentType = packedText(fields[fieldContentType])
	row.LastError = packedText(fields[fieldLastError])
	row.enveloped = fields[fieldEnveloped] == "1"
	if !row.unread {
		row.setPayload(payload)
	}
	return row
}

// packedText returns the text of a field, or "" if there is none.
func packedText(field string) string {
	if field == "" {
		return ""
	}
	return field[1:]
}

// soundFields returns how many fields are where they should be although a value
// holds a NUL: another row's key must not be taken for this one's.
func soundFields(fields []string) int {
	if enveloped := fields[fieldEnveloped]; enveloped != "0" && enveloped != "1" {
		return fieldOrdinal
	}
	if _, err := decodeUUID(packedText(fields[fieldWorkflowID])); err != nil {
		return fieldDispatchKey
	}
	return fieldRunID
}

// setPayload gives row the stored bytes of its payload, which it may keep.
func (r *storedRow) setPayload(data []byte) {
	r.unread = false
	if r.enveloped {
		payload, err := decodeEnvelope(data)
		if err != nil {
			r.fail("input", err)
		}
		r.Input = payload
		return
	}
	if len(data) > 0 {
		r.Input.Data = data
	}
}

// fail notes why r cannot be decoded; the first reason stands.
func (r *storedRow) fail(column string, err error) {
	if r.defect == nil {
		r.defect = fmt.Errorf("undecodable: %s: %w", column, err)
	}
}

// check notes a payload that was nowhere to be found, and returns the defect.
func (r *storedRow) check() error {
	if r.unread {
		r.fail("input", errors.New("payload is missing"))
	}
	return r.defect
}

// readable returns the row for a reader, who must see damaged rows too: what
// could be decoded, with the reason as its last error if it has none.
func (r *storedRow) readable() Row {
	r.check()
	if r.defect != nil && r.LastError == "" {
		r.LastError = cleanText(r.defect.Error())
	}
	return r.Row
}

func readableRows(stored []storedRow) []Row {
	for i := range stored {
		stored[i].Row = stored[i].readable()
	}
	return rowsOf(stored)
}

func (r *storedRow) decodeInstant(to *time.Time, column, text string) {
	if text == "" || text == "-" {
		return
	}
	at, err := decodeInstant(text)
	if err != nil {
		r.fail(column, err)
		return
	}
	*to = at
}

// instantLayout has a fixed width, so that the order of text is that of time.
const instantLayout = "2006-01-02T15:04:05.000000000Z"

// encodeInstant returns at as it is stored. It reports false for years that
// have no four digits: they cannot be stored in order.
func encodeInstant(at time.Time) (text string, ok bool) {
	at = at.UTC()
	if year := at.Year(); year < 0 || year > 9999 {
		return "", false
	}
	return at.Format(instantLayout), true
}

func decodeInstant(text string) (time.Time, error) {
	if len(text) != len(instantLayout) || text[19] != '.' || text[29] != 'Z' { // for Parse a comma is one, too
		return time.Time{}, fmt.Errorf("%q is not an instant with nine fraction digits and Z", text)
	}
	return time.Parse(time.RFC3339Nano, text) // a layout that is parsed fast
}

// decodeUUID accepts the stored form alone: any other would be shown but
// never be found again.
func decodeUUID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return uuid.Nil, err
	}
	if id == uuid.Nil || id.String() != text {
		return uuid.Nil, fmt.Errorf("%q is nil or not in lower-case form", text)
	}
	return id, nil
}

// decodeEnvelope reads the payload encoding of legacy files: a JSON object
// {"content_type":"Json","bytes":[123,34,…]}.
func decodeEnvelope(data []byte) (Payload, error) {
	var (
		envelope    map[string]json.RawMessage // a struct would match keys in any case
		contentType *string
		numbers     []*uint16 // a []byte would be read as base64, and a null as 0
	)
	if !utf8.Valid(data) {
		return Payload{}, errors.New("envelope is not UTF-8")
	}
	if err := json.Unmarshal(data, &envelope); err != nil {
		return Payload{}, fmt.Errorf("broken envelope: %w", err)
	}
	for key, value := range map[string]any{"content_type": &contentType, "bytes": &numbers} {
		if err := json.Unmarshal(envelope[key], value); err != nil {
			return Payload{}, fmt.Errorf("broken envelope: %s: %w", key, err)
		}
	}
	if contentType == nil || numbers == nil || textDefect(*contentType) != "" {
		return Payload{}, errors.New("broken envelope: content_type or bytes is missing")
	}
	payload := Payload{ContentType: *contentType}
	if payload.ContentType == "Json" {
		payload.ContentType = contentTypeJSON
	}
	if len(numbers) > 0 {
		payload.Data = make([]byte, len(numbers))
	}
	for i, number := range numbers {
		if number == nil || *number > math.MaxUint8 {
			return Payload{}, fmt.Errorf("broken envelope: number %d is not a byte", i)
		}
		payload.Data[i] = byte(*number)
	}
	return payload, nil
}

// encodeRefs returns refs as a JSON array of texts, fence:key. A list in the list
// would be parsed once more for each of its two values.
func encodeRefs(refs []Ref) string {
	texts := make([]string, len(refs))
	for i, ref := range refs {
		texts[i] = strconv.FormatInt(ref.Fence, 10) + ":" + ref.DispatchKey
	}
	return encodeJSON(texts)
}

// What SQL makes of such a text.
const (
	refFence = `CAST(value AS INTEGER)`
	refKey   = `substr(value, instr(value, ':') + 1)`
)

// encodeJSON encodes texts, integers and UUIDs and lists of them, which cannot fail.
func encodeJSON(v any) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic("outbox: " + err.Error())
	}
	return strings.TrimSuffix(text.String(), "\n")
}
