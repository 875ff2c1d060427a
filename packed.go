package outbox

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"example.com/outbox/internal/engine"
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
