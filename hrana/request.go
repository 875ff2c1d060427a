package hrana

import (
	"database/sql"
	"database/sql/driver"
	"encoding/base64"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/outbox/sqlbatch"
)

// The kinds of requests that are sent, and of the replies to them.
const (
	kindExecute    = "execute"
	kindBatch      = "batch"
	kindAutocommit = "get_autocommit"
)

// request is the JSON text of a pipeline being written. The baton comes last, so
// that a request can be sent again on another stream.
type request struct {
	text []byte
}

func newRequest(sizeHint int) *request {
	return &request{text: append(make([]byte, 0, 256+sizeHint), `{"requests":[`...)}
}

// on returns the whole text for a stream, or for a new one if the baton is "".
func (r *request) on(baton string) []byte {
	if baton == "" {
		return append(r.text[:len(r.text):len(r.text)], `]}`...)
	}
	text := append(r.text[:len(r.text):len(r.text)], `],"baton":`...)
	return append(appendString(text, baton), '}')
}

// appendString appends a JSON string. The text is valid UTF-8.
func appendString(b []byte, text string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, text[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		default:
			const hex = "0123456789abcdef"
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	b = append(b, text[start:]...)
	return append(b, '"')
}

// appendStatement appends a statement with arguments that convert has seen.
func appendStatement(b []byte, query string, args []driver.NamedValue) ([]byte, *Error) {
	if err := checkText("the statement", query); err != nil {
		return b, err
	}
	b = append(b, `{"sql":`...)
	b = appendString(b, query)
	named := 0
	for _, arg := range args {
		if arg.Name != "" {
			named++
		}
	}
	if named != 0 && named != len(args) {
		return b, refuse(sqlbatch.CodeArgsInvalid, "arguments by position and by name do not mix")
	}
	var err *Error
	for i, arg := range args {
		switch {
		case i > 0:
			b = append(b, ',')
		case named > 0:
			b = append(b, `,"named_args":[`...)
		default:
			b = append(b, `,"args":[`...)
		}
		if named > 0 {
			b = append(b, `{"name":`...)
			if err := checkText("the name of an argument", arg.Name); err != nil {
				return b, err
			}
			b = appendString(b, arg.Name)
			b = append(b, `,"value":`...)
		}
		if b, err = appendValue(b, arg); err != nil {
			return b, err
		}
		if named > 0 {
			b = append(b, '}')
		}
	}
	if len(args) > 0 {
		b = append(b, ']')
	}
	return append(b, '}'), nil
}

func appendValue(b []byte, arg driver.NamedValue) ([]byte, *Error) {
	switch v := arg.Value.(type) {
	case nil:
		return append(b, `{"type":"null"}`...), nil
	case int64:
		return appendInteger(b, v), nil
	case bool:
		if v {
			return appendInteger(b, 1), nil
		}
		return appendInteger(b, 0), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return b, refuse(sqlbatch.CodeArgsInvalid, "%s is not a finite number", nameOf(arg))
		}
		b = append(b, `{"type":"float","value":`...)
		return append(strconv.AppendFloat(b, v, 'g', -1, 64), '}'), nil
	case string:
		if err := checkText("", v); err != nil {
			return b, refuse(err.code, "%s%s", nameOf(arg), err.message)
		}
		b = append(b, `{"type":"text","value":`...)
		return append(appendString(b, v), '}'), nil
	case []byte:
		if v == nil {
			return append(b, `{"type":"null"}`...), nil
		}
		b = append(b, `{"type":"blob","base64":"`...)
		b = base64.RawStdEncoding.AppendEncode(b, v)
		return append(b, `"}`...), nil
	case time.Time:
		v = v.UTC()
		if v.Year() < 0 || v.Year() > 9999 {
			return b, refuse(sqlbatch.CodeArgsInvalid, "%s is a time outside of the years 0 to 9999", nameOf(arg))
		}
		b = append(b, `{"type":"text","value":"`...)
		return append(v.AppendFormat(b, timeFormat), `"}`...), nil
	}
	return b, refuse(sqlbatch.CodeArgsInvalid, "%s is of type %T", nameOf(arg), arg.Value)
}

// timeFormat has a fixed width, so that the order of texts is that of instants.
const timeFormat = "2006-01-02T15:04:05.000000000Z"

func appendInteger(b []byte, n int64) []byte {
	b = append(b, `{"type":"integer","value":"`...)
	b = strconv.AppendInt(b, n, 10)
	return append(b, `"}`...)
}

func nameOf(arg driver.NamedValue) string {
	if arg.Name != "" {
		return "argument " + strconv.Quote(arg.Name)
	}
	return "argument " + strconv.Itoa(arg.Ordinal)
}

// checkText refuses what a text of SQLite cannot hold, or not whole.
func checkText(what, text string) *Error {
	if strings.IndexByte(text, 0) >= 0 {
		return refuse(sqlbatch.CodeArgsInvalid, "%s has a NUL in it", what)
	}
	if !utf8.ValidString(text) {
		return refuse(sqlbatch.CodeArgsInvalid, "%s is not UTF-8", what)
	}
	return nil
}

// convert turns an argument as a caller gave it into one that appendValue takes.
func convert(arg *driver.NamedValue) error {
	if named, ok := arg.Value.(sql.NamedArg); ok {
		arg.Name, arg.Value = named.Name, named.Value
	}
	switch arg.Value.(type) {
	case nil, int64, bool, float64, string, []byte, time.Time:
		return nil
	case sql.Out:
		return refuse(sqlbatch.CodeUnsupported, "%s: there are no output parameters", nameOf(*arg))
	}
	value, err := driver.DefaultParameterConverter.ConvertValue(arg.Value)
	if err != nil {
		e := refuse(sqlbatch.CodeArgsInvalid, "%s: %v", nameOf(*arg), err)
		e.cause = err
		return e
	}
	arg.Value = value
	return nil
}

// convertAll converts the arguments of a step.
func convertAll(args []any) ([]driver.NamedValue, error) {
	if len(args) == 0 {
		return nil, nil
	}
	converted := make([]driver.NamedValue, len(args))
	for i, arg := range args {
		converted[i] = driver.NamedValue{Ordinal: i + 1, Value: arg}
		if err := convert(&converted[i]); err != nil {
			return nil, err
		}
	}
	return converted, nil
}

// appendCondition appends the condition of the step at a position, whose own
// positions are moved by shift.
func appendCondition(b []byte, c sqlbatch.Condition, position, shift int) ([]byte, *Error) {
	var err *Error
	switch c.Kind {
	case sqlbatch.KindAlways:
		return append(b, `{"type":"and","conds":[]}`...), nil
	case sqlbatch.KindOK:
		if c.Step < 0 || c.Step >= position {
			return b, refuse(sqlbatch.CodeArgsInvalid, "the condition of step %d is about step %d", position, c.Step)
		}
		b = append(b, `{"type":"ok","step":`...)
		b = strconv.AppendInt(b, int64(c.Step+shift), 10)
		return append(b, '}'), nil
	case sqlbatch.KindNot:
		if len(c.Of) != 1 {
			return b, refuse(sqlbatch.CodeArgsInvalid, "the condition of step %d negates %d others", position, len(c.Of))
		}
		b = append(b, `{"type":"not","cond":`...)
		if b, err = appendCondition(b, c.Of[0], position, shift); err != nil {
			return b, err
		}
		return append(b, '}'), nil
	case sqlbatch.KindAnd, sqlbatch.KindOr:
		if c.Kind == sqlbatch.KindAnd {
			b = append(b, `{"type":"and","conds":[`...)
		} else {
			b = append(b, `{"type":"or","conds":[`...)
		}
		for i, of := range c.Of {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendCondition(b, of, position, shift); err != nil {
				return b, err
			}
		}
		return append(b, `]}`...), nil
	case sqlbatch.KindAutocommit:
		return append(b, `{"type":"is_autocommit"}`...), nil
	}
	return b, refuse(sqlbatch.CodeArgsInvalid, "the condition of step %d is of an unknown kind", position)
}
