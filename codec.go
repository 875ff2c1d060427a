package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/outbox/internal/engine"
	"github.com/google/uuid"
)

// inlineLimit is the payload size in bytes up to which it is kept in its row.
// A larger one has a row of outbox_payload, which no transition rewrites.
const (
	inlineLimit    = 1024
	inlineLimitSQL = "1024"
)

// A row is read as two values: its columns packed into one blob, and its payload.
// Drivers charge for every value, and try to read every text as an instant
// ("2024-01-01" would come back as a time.Time). No stored text holds a NUL, so
// NULs part the fields; free texts come last, so that one that does hold a NUL
// spoils few others.
//
// SQLite takes a third of a small claim to compile what is returned, so this is
// as short as it can be: one call of concat_ws rather than a chain of ||. That
// passes over NULL, and in some versions over empty texts, hence the "=" in
// front of a free text and the "-" in the place of none.
//
// In front of the columns are
//   - whether a column holds a blob that should be a text or a number: a blob
//     sorts after those (a text where a number should be shows when it is decoded);
//   - whether the payload is still to be fetched, or missing: SQL tells, since a
//     driver may read an empty blob as nil;
//   - the id;
//
// and between those that are not free and those that are is whether the payload
// is a legacy envelope.
var (
	// returnedRow is for RETURNING, which builds one record a row: there a
	// payload of nearly the largest size would make the record too large for
	// a server. It leaves out large payloads, for payloadsByID to fetch.
	returnedRow = packed(`input IS NULL OR length(input) > `+inlineLimitSQL) + `,
	CASE WHEN length(input) <= ` + inlineLimitSQL + ` THEN CAST(input AS BLOB) END`

	// selectedRow is for a SELECT without a sorter: it has every payload.
	selectedRow = packed(`input IS NULL AND NOT EXISTS (SELECT 1 FROM main.outbox_payload WHERE outbox_payload.id = outbox.id)`) + `,
	` + payloadColumn

	// bareRow has no payload.
	bareRow = packed(`1`) + `, NULL`
)

const payloadColumn = `CASE WHEN input IS NULL THEN (SELECT data FROM main.outbox_payload WHERE outbox_payload.id = outbox.id)
	ELSE CAST(input AS BLOB) END`

// packedColumns are the columns in the order in which they are packed, and
// firstFree is the position of the first free one.
var packedColumns, firstFree = func() (list []column, firstFree int) {
	var free []column
	for _, column := range columns {
		switch {
		case column.read == nil:
		case column.free:
			free = append(free, column)
		default:
			list = append(list, column)
		}
	}
	return append(list, free...), len(list)
}()

// Positions of the fields that are no columns.
const (
	fieldMistyped = iota
	fieldUnread
	fieldID
	fieldsInFront
)

// packed returns the SQL for a packed row. unread is the condition under which
// its payload has yet to be read.
func packed(unread string) string {
	var loose []string
	fields := []string{"", unread, "id"}
	for i, column := range packedColumns {
		name, orElse := column.name, "'-'"
		if !column.checked {
			text := name
			if column.null {
				text = "ifnull(" + name + ", '')"
			}
			loose = append(loose, text)
		}
		if i == firstFree {
			fields = append(fields, "content_type IS NULL")
		}
		if column.free {
			name = "'=' || " + name
		}
		if column.null {
			name = "ifnull(" + name + ", " + orElse + ")"
		}
		fields = append(fields, name)
	}
	fields[fieldMistyped] = "ifnull(max(" + strings.Join(loose, ", ") + ") >= x'', 1)"
	return "CAST(concat_ws(char(0), " + strings.Join(fields, ", ") + ") AS BLOB)"
}

// storedRow is a row as it was read. A row that cannot be decoded has a defect
// and only the fields that could be read.
type storedRow struct {
	Row
	enveloped bool // the payload is a legacy envelope
	unread    bool // the payload has not been read
	defect    error
}

// collect returns what a statement for returnedRow or selectedRow does with each
// of its rows: it adds them to list.
func collect(list *[]storedRow) func(engine.Row) error {
	return func(row engine.Row) error {
		var (
			packed  sql.RawBytes
			payload []byte
		)
		if err := row.Scan(&packed, &payload); err != nil {
			return err
		}
		*list = append(*list, decodeRow(packed, payload))
		return nil
	}
}

// queryRows runs a query for returnedRow, selectedRow or bareRow.
func queryRows(ctx context.Context, tx engine.Tx, text string, args ...any) (list []storedRow, err error) {
	err = engine.Query(ctx, tx, text, args, collect(&list))
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
	fieldCount := fieldsInFront + len(packedColumns) + 1
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
	row.unread = fields[fieldUnread] != "0"
	row.ID, _ = strconv.ParseInt(fields[fieldID], 10, 64)
	fields = fields[fieldsInFront:]
	row.enveloped = fields[firstFree] == "1"
	for i := range packedColumns {
		column := &packedColumns[i]
		at := i
		if i >= firstFree {
			at++
		}
		field := fields[at]
		if column.null && field == "-" {
			field = ""
		} else if column.free && field != "" {
			field = field[1:]
		}
		if err := column.read(&row, field); err != nil {
			row.fail(column.name, err)
		}
	}
	if row.Fence == 0 && row.Status == Claimed {
		row.fail("fence", errors.New("is 0 although the row is claimed"))
	}
	if !row.unread {
		row.setPayload(payload)
	}
	return row
}

// soundFields returns how many fields are where they should be although a value
// holds a NUL: another row's key must not be taken for this one's.
func soundFields(fields []string) int {
	enveloped := fieldsInFront + firstFree
	if fields[enveloped] != "0" && fields[enveloped] != "1" {
		return fieldsInFront
	}
	key, workflow := enveloped+1, enveloped+2 // the first that are free
	if _, err := decodeUUID(strings.TrimPrefix(fields[workflow], "=")); err != nil {
		return key
	}
	return workflow + 1
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

// readInstant decodes a field that may be empty.
func readInstant(to *time.Time, field string) (err error) {
	if field != "" {
		*to, err = decodeInstant(field)
	}
	return err
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

// maxErrorText is the most bytes of a cause that are kept.
const maxErrorText = 8 << 10

// errorText returns cause as it is stored: cleaned, and empty for nil. Of one
// whose methods panic it returns what can be told.
func errorText(cause error) (text string) {
	if cause == nil {
		return ""
	}
	defer func() {
		if recover() != nil { // fmt survives a panic, but not a second one in printing it
			text = fmt.Sprintf("an error of type %T, whose text cannot be told", cause)
		}
	}()
	if text = fmt.Sprint(cause); text == "<nil>" { // what fmt makes of a nil pointer
		text = fmt.Sprintf("(%T)(nil)", cause)
	}
	return cleanText(text)
}

// cleanText returns text as valid UTF-8 without NULs, cut to maxErrorText at
// the end of a character.
func cleanText(text string) string {
	const slack = 4 // so that a cut character is seen as cut
	if len(text) > maxErrorText+slack {
		text = text[:maxErrorText+slack]
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = strings.ReplaceAll(text, "\x00", "\uFFFD")
	if len(text) <= maxErrorText {
		return text
	}
	end := maxErrorText
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// argumentBatches yields list in batches that fit one argument of a statement:
// one, but for tens of thousands of values or very long ones.
func argumentBatches[T any](list []T, sizeOf func(T) int) iter.Seq[[]T] {
	const most = 1 << 20
	return func(yield func([]T) bool) {
		for len(list) > 0 {
			n, size := 0, 0
			for n < len(list) && (n == 0 || size+sizeOf(list[n]) <= most) {
				size += sizeOf(list[n])
				n++
			}
			if !yield(list[:n]) {
				return
			}
			list = list[n:]
		}
	}
}
