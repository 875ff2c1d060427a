package outbox

import (
	"errors"
	"fmt"
)

// storedRow is a row as it was read. A row that cannot be decoded has a defect
// and only the fields that could be read.
type storedRow struct {
	Row
	enveloped bool // the payload is a legacy envelope
	unread    bool // the payload has not been read
	defect    error
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
