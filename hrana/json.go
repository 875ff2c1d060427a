package hrana

import (
	"encoding/json"
	"errors"
	"strconv"
)

// scanner reads JSON from left to right, without copying it first: an answer is
// mostly values of rows, and those are read five times as fast so as through
// encoding/json (BenchmarkAnswer). It is as strict as encoding/json about the grammar, and stricter
// about UTF-8: the caller checks the whole text.
//
// The first error ends it: everything after that returns zero values.
type scanner struct {
	data []byte
	pos  int
	err  error
}

var (
	errSyntax = errors.New("it is not JSON")
	errShape  = errors.New("a value is of another type than the protocol says")
	errUTF8   = errors.New("it is not UTF-8")
	errDepth  = errors.New("it is nested too deeply")
)

const maxDepth = 100 // of values that are skipped

func (s *scanner) fail(err error) {
	if s.err == nil {
		s.err = err
	}
	s.pos = len(s.data)
}

// peek returns the first byte of the next token, or 0 at the end.
func (s *scanner) peek() byte {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// take skips the token c, if it is the next one.
func (s *scanner) take(c byte) bool {
	if s.peek() != c || s.pos >= len(s.data) {
		return false
	}
	s.pos++
	return true
}

// literal skips the word null, true or false, if it is the next one.
func (s *scanner) literal(word string) bool {
	if s.peek() != word[0] {
		return false
	}
	if len(s.data)-s.pos < len(word) || string(s.data[s.pos:s.pos+len(word)]) != word {
		s.fail(errSyntax)
		return false
	}
	s.pos += len(word)
	return true
}

// object calls member for each member of an object, with the key as it is
// written; member must read the value.
func (s *scanner) object(member func(key []byte)) {
	if !s.take('{') {
		s.fail(errShape)
		return
	}
	if s.take('}') {
		return
	}
	for s.err == nil {
		key := s.rawString()
		if !s.take(':') {
			s.fail(errSyntax)
			return
		}
		member(key)
		if s.take('}') {
			return
		}
		if !s.take(',') {
			s.fail(errSyntax)
		}
	}
}

// array calls element for each element of an array; element must read it.
func (s *scanner) array(element func()) {
	if !s.take('[') {
		s.fail(errShape)
		return
	}
	if s.take(']') {
		return
	}
	for s.err == nil {
		element()
		if s.take(']') {
			return
		}
		if !s.take(',') {
			s.fail(errSyntax)
		}
	}
}

// number returns a number as it is written.
func (s *scanner) number() []byte {
	s.peek()
	start := s.pos
	for s.pos < len(s.data) {
		c := s.data[s.pos]
		if (c < '0' || c > '9') && c != '-' && c != '+' && c != '.' && c != 'e' && c != 'E' {
			break
		}
		s.pos++
	}
	text := s.data[start:s.pos]
	if len(text) == 0 {
		s.fail(errShape)
	} else if !json.Valid(text) {
		s.fail(errSyntax)
	}
	return text
}

// integer returns an integer that is written as a number or as a string, or 0
// for null.
func (s *scanner) integer() int64 {
	if s.literal("null") {
		return 0
	}
	var text []byte
	if s.peek() == '"' {
		text = s.rawString()
	} else {
		text = s.number()
	}
	if s.err != nil {
		return 0
	}
	n, ok := parseInteger(text)
	if !ok {
		s.fail(errShape)
	}
	return n
}

func (s *scanner) bool() bool {
	switch {
	case s.literal("true"):
		return true
	case s.literal("false"):
	default:
		s.fail(errShape)
	}
	return false
}

// skip reads any value.
func (s *scanner) skip() { s.skipAt(0) }

func (s *scanner) skipAt(depth int) {
	if depth > maxDepth {
		s.fail(errDepth)
		return
	}
	switch c := s.peek(); c {
	case '{':
		s.object(func([]byte) { s.skipAt(depth + 1) })
	case '[':
		s.array(func() { s.skipAt(depth + 1) })
	case '"':
		s.rawString()
	case 'n':
		s.literal("null")
	case 't':
		s.literal("true")
	case 'f':
		s.literal("false")
	default:
		s.number()
	}
}

// end reports, by err, whether nothing follows.
func (s *scanner) end() {
	if s.err == nil && (s.peek() != 0 || s.pos < len(s.data)) {
		s.fail(errSyntax)
	}
}

// parseInteger reads a decimal int64 exactly.
func parseInteger(text []byte) (int64, bool) {
	if len(text) == 0 || text[0] == '+' {
		return 0, false
	}
	if len(text) < 19 { // cannot overflow
		digits, negative := text, text[0] == '-'
		if negative {
			digits = text[1:]
		}
		var n int64
		for _, c := range digits {
			if c < '0' || c > '9' {
				return 0, false
			}
			n = n*10 + int64(c-'0')
		}
		if negative {
			n = -n
		}
		return n, len(digits) > 0
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	return n, err == nil
}
