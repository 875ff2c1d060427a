package outbox

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxErrorText is the most bytes of a cause that are kept.
const maxErrorText = 8 << 10

// errorText returns cause as it is stored: cleaned, and empty for nil. It
// survives an Error method that panics, as fmt does.
func errorText(cause error) string {
	if cause == nil {
		return ""
	}
	return cleanText(fmt.Sprint(cause))
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
