package engine

import "strings"

// endsTransaction reports whether a text has a statement that would begin or
// end a transaction rather than work within one. Some drivers run all of the
// statements in a text.
func endsTransaction(text string) bool {
	inTrigger := false // its body has statements of its own, and an END
	for text != "" {
		statement, rest := cutStatement(text)
		text = rest
		first, more := cutWord(statement)
		switch first {
		case "": // no statement starts so, but for an empty one: whatever this is, it is not let through
			if more != "" {
				return true
			}
		case "CREATE":
			inTrigger = inTrigger || createsTrigger(more)
		case "EXPLAIN": // which runs nothing, but may explain a trigger
			word, more := cutWord(more)
			if word == "QUERY" {
				_, more = cutWord(more)
				word, more = cutWord(more)
			}
			inTrigger = inTrigger || word == "CREATE" && createsTrigger(more)
		case "END":
			if !inTrigger {
				return true
			}
			inTrigger = false
		case "BEGIN", "COMMIT":
			return true
		case "ROLLBACK": // but ROLLBACK [TRANSACTION] TO a savepoint
			second, more := cutWord(more)
			if second == "TRANSACTION" {
				second, _ = cutWord(more)
			}
			if second != "TO" {
				return true
			}
		}
	}
	return false
}

// createsTrigger reports whether what follows CREATE makes a trigger.
func createsTrigger(rest string) bool {
	word, rest := cutWord(rest)
	if word == "TEMP" || word == "TEMPORARY" {
		word, _ = cutWord(rest)
	}
	return word == "TRIGGER"
}

// cutStatement returns a text up to its first semicolon that is neither quoted
// nor in a comment, and what follows that.
func cutStatement(text string) (statement, rest string) {
	for i := 0; i < len(text); i++ {
		end := ""
		switch c := text[i]; {
		case c == ';':
			return text[:i], text[i+1:]
		case c == '\'' || c == '"' || c == '`':
			end = string(c) // doubled inside, it ends one quotation and starts the next
		case c == '[':
			end = "]"
		case strings.HasPrefix(text[i:], "--"):
			end = "\n"
		case strings.HasPrefix(text[i:], "/*"):
			end = "*/"
			i++
		default:
			continue
		}
		length := strings.Index(text[i+1:], end)
		if length < 0 {
			return text, ""
		}
		i += length + len(end)
	}
	return text, ""
}

// cutWord returns the first word of a statement, in upper case, and what
// follows it. It skips white space and comments.
func cutWord(statement string) (word, rest string) {
	for {
		statement = strings.TrimLeft(statement, " \t\r\n\v\f\ufeff")
		switch {
		case strings.HasPrefix(statement, "--"):
			_, statement, _ = strings.Cut(statement, "\n")
		case strings.HasPrefix(statement, "/*"):
			_, statement, _ = strings.Cut(statement[2:], "*/")
		default:
			end := strings.IndexFunc(statement, func(r rune) bool {
				return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
			})
			if end < 0 {
				end = len(statement)
			}
			return strings.ToUpper(statement[:end]), statement[end:]
		}
	}
}
