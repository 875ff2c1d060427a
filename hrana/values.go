package hrana

import (
	"database/sql/driver"
	"encoding/base64"
	"math"
	"strconv"
)

func (d *decoder) value() driver.Value {
	var kind, text, base64 []byte
	null := false // the value is the word null
	d.object(func(key []byte) {
		switch string(key) {
		case "type":
			kind = d.rawString()
		case "value":
			if null = d.literal("null"); null {
				return
			}
			if d.peek() == '"' {
				text = d.rawString()
				return
			}
			text = d.number()
		case "base64":
			base64 = d.rawString()
			if base64 == nil {
				base64 = []byte{}
			}
		default:
			d.skip()
		}
	})
	if d.err != nil {
		return nil
	}
	switch string(kind) {
	case "null":
		return nil
	case "integer":
		if n, ok := parseInteger(text); ok && !null {
			return n
		}
	case "float":
		if null {
			return math.NaN() // either infinity; SQLite stores no NaN
		}
		if f, err := strconv.ParseFloat(string(text), 64); err == nil {
			return f
		}
	case "text":
		if text != nil && !null {
			return d.unescape(text)
		}
	case "blob":
		if base64 != nil {
			if blob, ok := d.blob(base64); ok {
				return blob
			}
		}
	}
	d.fail(errShape)
	return nil
}

// blob decodes base64 with or without padding. An empty one is not nil.
func (d *decoder) blob(raw []byte) ([]byte, bool) {
	for range 2 {
		if n := len(raw); n > 0 && raw[n-1] == '=' {
			raw = raw[:n-1]
		}
	}
	blob := make([]byte, base64.RawStdEncoding.DecodedLen(len(raw)))
	n, err := base64.RawStdEncoding.Decode(blob, raw)
	return blob[:n], err == nil && n == len(blob)
}

// keep copies a row to where many share one allocation.
func (d *decoder) keep(row []driver.Value) []driver.Value {
	if len(row) > cap(d.cells)-len(d.cells) {
		d.cells = make([]driver.Value, 0, max(len(row), min(1024, 2*cap(d.cells))))
	}
	start := len(d.cells)
	d.cells = append(d.cells, row...)
	return d.cells[start:len(d.cells):len(d.cells)]
}
