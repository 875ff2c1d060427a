package hrana

import (
	"strconv"
	"unicode/utf8"
)

// rawString returns what stands between the quotes of a string. It is the string
// itself unless there is a backslash in it.
func (s *scanner) rawString() []byte {
	if !s.take('"') {
		s.fail(errShape)
		return nil
	}
	start := s.pos
	for i := start; i < len(s.data); i++ {
		for i < len(s.data) && plain[s.data[i]] {
			i++
		}
		if i == len(s.data) {
			break
		}
		switch c := s.data[i]; {
		case c == '"':
			s.pos = i + 1
			return s.data[start:i]
		case c < ' ':
			s.fail(errSyntax)
			return nil
		case c == '\\':
			i++
			if i >= len(s.data) {
				break
			}
			switch s.data[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if !isHex4(s.data[i+1:]) {
					s.fail(errSyntax)
					return nil
				}
				i += 4
			default:
				s.fail(errSyntax)
				return nil
			}
		}
	}
	s.fail(errSyntax)
	return nil
}

// plain are the bytes that stand for themselves within a string.
var plain = func() (plain [256]bool) {
	for c := range plain {
		plain[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return plain
}()

func isHex4(text []byte) bool {
	if len(text) < 4 {
		return false
	}
	for _, c := range text[:4] {
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return false
		}
	}
	return true
}

// text returns a string, or "" for null.
func (s *scanner) text() string {
	if s.literal("null") {
		return ""
	}
	return s.unescape(s.rawString())
}

// unescape turns what rawString returned into the string.
func (s *scanner) unescape(raw []byte) string {
	for i, c := range raw {
		if c != '\\' {
			continue
		}
		out := make([]byte, 0, len(raw))
		out = append(out, raw[:i]...)
		for i < len(raw) {
			if raw[i] != '\\' {
				out = append(out, raw[i])
				i++
				continue
			}
			i++
			switch c := raw[i]; c {
			case 'b':
				out = append(out, '\b')
			case 'f':
				out = append(out, '\f')
			case 'n':
				out = append(out, '\n')
			case 'r':
				out = append(out, '\r')
			case 't':
				out = append(out, '\t')
			case 'u':
				r, n := escapedRune(raw[i-1:])
				out = utf8.AppendRune(out, r)
				i += n - 2
			default:
				out = append(out, c)
			}
			i++
		}
		return string(out)
	}
	return string(raw)
}

// escapedRune reads \uXXXX, or two of them for a character beyond 16 bits, and
// returns how many bytes they take. Half a pair is U+FFFD, as in encoding/json.
func escapedRune(raw []byte) (rune, int) {
	high := hex4(raw[2:])
	if high < 0xd800 || high > 0xdfff {
		return high, 6
	}
	if high < 0xdc00 && len(raw) >= 12 && raw[6] == '\\' && raw[7] == 'u' {
		if low := hex4(raw[8:]); low >= 0xdc00 && low <= 0xdfff {
			return (high-0xd800)<<10 + (low - 0xdc00) + 0x10000, 12
		}
	}
	return utf8.RuneError, 6
}

func hex4(text []byte) rune {
	n, _ := strconv.ParseUint(string(text[:4]), 16, 16)
	return rune(n)
}
