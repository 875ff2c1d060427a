package hrana

import (
	"database/sql/driver"
	"encoding/json"
	"unicode/utf8"

	"example.com/outbox/sqlbatch"
)

// answer is what the server says to a pipeline.
type answer struct {
	baton   string // of the stream, or "" if it is closed
	baseURL string // where it wants the next request of the stream, or ""
	replies []reply
}

// reply is what it says to one request of a pipeline: an error, or one of the others.
type reply struct {
	err        *Error
	kind       string
	result     *result   // of execute
	steps      []*result // of batch; nil: did not run, or failed
	stepErrors []*Error
	autocommit bool
}

// result is what it says to one statement.
type result struct {
	columns      []string
	types        []string // as declared, or ""
	rows         [][]driver.Value
	rowsAffected int64
	lastInsertID int64
}

// parseAnswer reads an answer. Values keep nothing of the text.
func parseAnswer(text []byte) (*answer, error) {
	if !utf8.Valid(text) {
		return nil, errUTF8
	}
	d := &decoder{scanner: scanner{data: text}}
	a := d.answer()
	d.end()
	if d.err != nil {
		return nil, d.err
	}
	return a, nil
}

type decoder struct {
	scanner
	cells []driver.Value // room for those of the next rows
	row   []driver.Value // the one being read
}

func (d *decoder) answer() *answer {
	a := new(answer)
	d.object(func(key []byte) {
		switch string(key) {
		case "baton":
			a.baton = d.text()
		case "base_url":
			a.baseURL = d.text()
		case "results":
			a.replies = nil
			d.array(func() { a.replies = append(a.replies, d.reply()) })
		default:
			d.skip()
		}
	})
	return a
}

func (d *decoder) reply() reply {
	var r reply
	var outcome string
	d.object(func(key []byte) {
		switch string(key) {
		case "type":
			outcome = d.text()
		case "error":
			r.err = d.error()
		case "response":
			d.response(&r)
		default:
			d.skip()
		}
	})
	switch {
	case d.err != nil:
	case outcome == "ok" && r.err == nil && r.kind != "":
	case outcome == "error" && r.err != nil && r.kind == "":
	default:
		d.fail(errShape)
	}
	return r
}

func (d *decoder) response(r *reply) {
	d.object(func(key []byte) {
		switch string(key) {
		case "type":
			r.kind = d.text()
		case "result": // of execute or batch, whose members do not overlap
			d.result(r)
		case "is_autocommit":
			r.autocommit = d.bool()
		default:
			d.skip()
		}
	})
}

func (d *decoder) result(r *reply) {
	r.result = new(result)
	d.object(func(key []byte) {
		switch string(key) {
		case "step_results":
			r.steps = nil
			d.array(func() {
				if d.literal("null") {
					r.steps = append(r.steps, nil)
					return
				}
				step := new(result)
				d.object(func(key []byte) { d.resultMember(step, key) })
				r.steps = append(r.steps, step)
			})
		case "step_errors":
			r.stepErrors = nil
			d.array(func() { r.stepErrors = append(r.stepErrors, d.error()) })
		default:
			d.resultMember(r.result, key)
		}
	})
}

func (d *decoder) resultMember(r *result, key []byte) {
	switch string(key) {
	case "cols":
		r.columns, r.types = nil, nil
		d.array(func() {
			var name, declared string
			d.object(func(key []byte) {
				switch string(key) {
				case "name":
					name = d.text()
				case "decltype":
					declared = d.text()
				default:
					d.skip()
				}
			})
			r.columns, r.types = append(r.columns, name), append(r.types, declared)
		})
	case "rows":
		r.rows = nil
		d.array(func() {
			d.row = d.row[:0]
			d.array(func() { d.row = append(d.row, d.value()) })
			r.rows = append(r.rows, d.keep(d.row))
		})
	case "affected_row_count":
		r.rowsAffected = d.integer()
	case "last_insert_rowid":
		r.lastInsertID = d.integer()
	default:
		d.skip()
	}
}

// error reads an Error, or null as nil.
func (d *decoder) error() *Error {
	if d.literal("null") {
		return nil
	}
	e := new(Error)
	d.object(func(key []byte) {
		switch string(key) {
		case "message":
			e.message = d.text()
		case "code":
			e.code = d.text()
		default:
			d.skip()
		}
	})
	if e.code == "" {
		e.code = sqlbatch.CodeServerFailed
	}
	return e
}

// parseStatusError reads the body of an answer that failed as a whole, as far as
// it can be read.
func parseStatusError(body []byte) (message, code string) {
	var e struct{ Message, Error, Code string }
	if json.Unmarshal(body, &e) != nil {
		return clip(body), ""
	}
	if e.Message == "" {
		e.Message = e.Error
	}
	return clip([]byte(e.Message)), e.Code
}

// expect returns what is wrong with an answer to these kinds of requests, or nil.
func (a *answer) expect(kinds ...string) *Error {
	if len(a.replies) != len(kinds) {
		return invalid("%d results for %d requests", len(a.replies), len(kinds))
	}
	for i, kind := range kinds {
		if r := a.replies[i]; r.err == nil && r.kind != kind {
			return invalid("a result of another kind for a request of kind %s", kind)
		}
		if a.replies[i].err == nil && a.replies[i].result == nil && (kind == kindExecute || kind == kindBatch) {
			return invalid("a %s without its result", kind)
		}
	}
	return nil
}
