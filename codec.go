package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// inlineLimit is the payload size in bytes up to which it is kept in its row.
// A larger one has a row of outbox_payload, which no transition rewrites.
const (
	inlineLimit    = 1024
	inlineLimitSQL = "1024"
)

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

// textDefect says why text cannot be stored or looked for: drivers refuse
// invalid UTF-8, and cut a text at its first NUL without a word, so that it
// would name another row.
func textDefect(text string) string {
	switch {
	case !utf8.ValidString(text):
		return "is not valid UTF-8"
	case strings.IndexByte(text, 0) >= 0:
		return "holds a NUL"
	}
	return ""
}
