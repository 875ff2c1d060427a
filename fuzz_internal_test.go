package outbox

import (
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	_ "github.com/tursodatabase/go-libsql"
)

func FuzzDecodeRow(f *testing.F) {
	const id = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
	const at = "2024-02-29T12:30:15.123456789Z"
	whole := strings.Join([]string{
		"0", "0", "1", "2", "claimed", "3", at, at, "4", at, "-", "0", "=a key", "=" + id, "=send", "-", "=default", "=default", "=n1", "=text/plain", "=an error",
	}, "\x00")
	f.Add([]byte(whole), []byte("payload"))
	f.Add([]byte(strings.Replace(whole, "claimed", "pending", 1)), []byte(nil))
	f.Add([]byte(strings.Replace(whole, "0\x000\x00", "0\x001\x00", 1)), []byte(nil))
	f.Add([]byte(strings.Replace(whole, "\x000\x00=a key", "\x001\x00=a key", 1)), []byte(`{"content_type":"Json","bytes":[1]}`))
	f.Add([]byte(whole+"\x00"), []byte(nil))
	f.Fuzz(func(t *testing.T, packed, payload []byte) {
		row := decodeRow(packed, payload)
		if row.check() != nil {
			require.NotEmpty(t, row.defectText())
			require.True(t, utf8.ValidString(row.readable().LastError) || row.LastError != "")
			return
		}
		// What can be decoded can be staged anew, and is the same then.
		if row.Status != Claimed && !row.ClaimedAt.IsZero() || row.DispatchKey == "" || row.Namespace == "" || row.TaskQueue == "" || len(row.LastError) > maxErrorText {
			return // which the schema forbids, or Append fills in or cuts
		}
		staged, err := prepareRows([]Row{row.Row})
		require.NoError(t, err)
		require.Equal(t, row.Row, staged[0].Row)
	})
}

func FuzzEnvelope(f *testing.F) {
	for _, text := range []string{
		`{"content_type":"Json","bytes":[123,125]}`, `{"content_type":"text/csv","bytes":[]}`, `{"content_type":"Json"}`, `[1]`, `{`,
		`{"content_type":"Json","bytes":[256]}`, `{"content_type":"Json","bytes":[1,null]}`, `{"content_type":"a\u0000b","bytes":[]}`,
		`{"content_type":"Json","BYTES":[2]}`, "\xff", `{"content_type":null,"bytes":"AQ=="}`, `{"bytes":[1e2],"content_type":"\ud800"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		payload, err := decodeEnvelope(data)
		if err != nil {
			require.Zero(t, payload)
			return
		}
		require.Empty(t, textDefect(payload.ContentType))
		numbers := make([]int, len(payload.Data)) // as a []byte would be written in base64
		for i, b := range payload.Data {
			numbers[i] = int(b)
		}
		again, err := json.Marshal(map[string]any{"content_type": payload.ContentType, "bytes": numbers})
		require.NoError(t, err)
		same, err := decodeEnvelope(again)
		require.NoError(t, err)
		require.Equal(t, payload, same)
	})
}

func FuzzRefsAsJSON(f *testing.F) {
	f.Add("a", int64(1), "2024-01-01", int64(-1))
	f.Add(`"quoted" \ <&> `+"\u2028", int64(1)<<53+1, "", int64(0))
	db, err := sql.Open("libsql", ":memory:")
	require.NoError(f, err)
	db.SetMaxOpenConns(1)
	f.Cleanup(func() { require.NoError(f, db.Close()) })
	const read = `SELECT CAST(` + refKey + ` AS BLOB), ` + refFence + ` FROM json_each(?1) ORDER BY key`
	f.Fuzz(func(t *testing.T, key string, fence int64, other string, otherFence int64) {
		refs := []Ref{{key, fence}, {other, otherFence}}
		if checkRefs(refs) != nil {
			return
		}
		rows, err := db.Query(read, encodeRefs(refs))
		require.NoError(t, err)
		defer rows.Close()
		var got []Ref
		for rows.Next() {
			var key []byte
			var ref Ref
			require.NoError(t, rows.Scan(&key, &ref.Fence))
			ref.DispatchKey = string(key)
			got = append(got, ref)
		}
		require.NoError(t, rows.Err())
		require.Equal(t, refs, got)
	})
}

func FuzzInstant(f *testing.F) {
	f.Add(int64(0), int64(0), int64(0), int64(1), 0)
	f.Add(int64(1709209815), int64(123456789), int64(1709209815), int64(500000000), 7*3600)
	f.Add(int64(-62167219200), int64(0), int64(253402300799), int64(999999999), -3600)
	f.Fuzz(func(t *testing.T, seconds, nanoseconds, otherSeconds, otherNanoseconds int64, zone int) {
		at := time.Unix(seconds, nanoseconds).In(time.FixedZone("", zone%86400))
		other := time.Unix(otherSeconds, otherNanoseconds)
		text, ok := encodeInstant(at)
		require.Equal(t, at.UTC().Year() >= 0 && at.UTC().Year() <= 9999, ok)
		otherText, otherOK := encodeInstant(other)
		if !ok || !otherOK {
			return
		}
		require.Equal(t, at.Compare(other), strings.Compare(text, otherText), "%s %s", text, otherText)
		decoded, err := decodeInstant(text)
		require.NoError(t, err)
		require.Equal(t, at.UTC(), decoded)
		require.Regexp(t, `^\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\d\.\d{9}Z$`, text)
	})
}

func FuzzInstantText(f *testing.F) {
	for _, text := range []string{
		"2024-02-29T12:30:15.123456789Z", "2023-02-30T00:00:00.000000000Z", "2024-01-01T24:00:00.000000000Z", "2024-01-01T00:00:60.000000000Z",
		"2024-01-01T00:00:00,000000000Z", "2024-01-01t00:00:00.000000000z", "2024-01-01", "",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		at, err := decodeInstant(text)
		if err != nil {
			return
		}
		again, ok := encodeInstant(at)
		require.True(t, ok)
		require.Equal(t, text, again, "only the stored form is one")
	})
}

func FuzzErrorText(f *testing.F) {
	f.Add("plain")
	f.Add("a\x00b\xff")
	f.Add(strings.Repeat("é", maxErrorText))
	f.Add(strings.Repeat("x", maxErrorText-1) + "\xf0\x9f")
	f.Fuzz(func(t *testing.T, text string) {
		cleaned := errorText(errors.New(text))
		require.Empty(t, textDefect(cleaned))
		require.LessOrEqual(t, len(cleaned), maxErrorText)
		require.Equal(t, cleaned, cleanText(cleaned))
		if textDefect(text) == "" && len(text) <= maxErrorText {
			require.Equal(t, text, cleaned)
		}
	})
}
