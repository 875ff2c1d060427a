package hrana

import (
	"bytes"
	"database/sql/driver"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	goodExecute = `{"baton":"b1","base_url":null,"results":[{"type":"ok","response":{"type":"execute","result":` +
		`{"cols":[{"name":"a","decltype":"INTEGER"},{"name":null,"decltype":null}],"rows":[` +
		`[{"type":"integer","value":"-9223372036854775808"},{"type":"text","value":"x\"\\\u00e9\ud83d\ude00\n"}],` +
		`[{"type":"float","value":1.5e3},{"type":"blob","base64":"AP8Q"}],` +
		`[{"type":"null"},{"base64":"","type":"blob"}]],` +
		`"affected_row_count":2,"last_insert_rowid":"7","new":{"a":[1,true,false,null,-0.5e-1]}}}},` +
		`{"type":"ok","response":{"type":"get_autocommit","is_autocommit":true}}]}`
	goodBatch = ` { "results" : [ {"response":{"result":{"step_errors":[null,{"message":"no","code":"SQLITE_BUSY"},null],` +
		`"step_results":[{"rows":[],"cols":[]},null,null]},"type":"batch"},"type":"ok"},` +
		`{"type":"error","error":{"message":"m","code":null}} ] , "baton":null } ` + "\n"
)

func TestAnswersAreReadExactly(t *testing.T) {
	a, err := parseAnswer([]byte(goodExecute))
	require.NoError(t, err)
	require.Equal(t, "b1", a.baton)
	require.Nil(t, a.expect(kindExecute, kindAutocommit))
	r := a.replies[0].result
	require.Equal(t, []string{"a", ""}, r.columns)
	require.Equal(t, []string{"INTEGER", ""}, r.types)
	require.Equal(t, [][]driver.Value{
		{int64(math.MinInt64), "x\"\\é😀\n"},
		{1500.0, []byte{0, 255, 16}},
		{nil, []byte{}},
	}, r.rows)
	require.Equal(t, int64(2), r.rowsAffected)
	require.Equal(t, int64(7), r.lastInsertID)
	require.True(t, a.replies[1].autocommit)

	a, err = parseAnswer([]byte(goodBatch))
	require.NoError(t, err)
	require.Len(t, a.replies[0].steps, 3)
	require.NotNil(t, a.replies[0].steps[0])
	require.Nil(t, a.replies[0].steps[2])
	require.Equal(t, "SQLITE_BUSY", a.replies[0].stepErrors[1].Code())
	require.Equal(t, "SERVER_FAILED", a.replies[1].err.Code())
}

func TestAnswersOfAnotherShapeAreRefused(t *testing.T) {
	value := func(v string) string {
		return `{"results":[{"type":"ok","response":{"type":"execute","result":{"rows":[[` + v + `]]}}}]}`
	}
	_, err := parseAnswer([]byte(value(`{"type":"null"}`)))
	require.NoError(t, err)
	for _, text := range []string{
		``, `null`, `[]`, `{`, `{}x`, `{"results":null}`, `{"results":{}}`, `{"baton":1}`, `{"a":tru}`, `{"a":nul`,
		`{"results":[{}]}`, `{"results":[{"type":"ok"}]}`, `{"results":[{"type":"error"}]}`,
		`{"results":[{"type":"ok","error":{"message":"m"}}]}`, `{"results":[null]}`, `{"results":[{"type":"ok","response":null}]}`,
		`{"a":"` + "\x01" + `"}`, `{"a":"\x"}`, `{"a":"\u12g4"}`, `{"a":01}`, `{"a":1.}`, `{"a":+1}`, `{"a":}`, `{"a":1,}`, `{,}`, `{"a" 1}`,
		`{"a":"` + "\xff" + `"}`, `{"a":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`,
		value(`{"type":"integer","value":"1.5"}`), value(`{"type":"integer","value":"9223372036854775808"}`),
		value(`{"type":"integer","value":null}`), value(`{"type":"integer"}`), value(`{"type":"integer","value":""}`),
		value(`{"type":"integer","value":"-"}`), value(`{"type":"integer","value":"+1"}`),
		value(`{"type":"float","value":1e999}`), value(`{"type":"float"}`), value(`{"type":"text"}`), value(`{"type":"text","value":null}`),
		value(`{"type":"blob"}`), value(`{"type":"blob","base64":"A"}`), value(`{"type":"blob","base64":"????"}`),
		value(`{"type":"blob","base64":null}`), value(`{"type":"date","value":"x"}`), value(`{}`), value(`1`), value(`null`),
	} {
		_, err := parseAnswer([]byte(text))
		require.Error(t, err, text)
	}
}

func TestNoPrefixOfAnAnswerIsAnAnswer(t *testing.T) {
	for _, text := range []string{goodExecute, strings.TrimSpace(goodBatch)} {
		for i := range len(text) {
			_, err := parseAnswer([]byte(text[:i]))
			require.Error(t, err, i)
		}
	}
}

func TestRequestsAreJSON(t *testing.T) {
	every := make([]byte, 127)
	for i := range every {
		every[i] = byte(i + 1)
	}
	text := string(every) + "é\u2028😀"
	b, err := appendStatement(nil, text, []driver.NamedValue{{Ordinal: 1, Value: text}, {Ordinal: 2, Value: every}, {Ordinal: 3, Value: 1e21}})
	require.Nil(t, err)
	var got struct {
		SQL  string
		Args []struct {
			Type, Base64 string
			Value        any
		}
	}
	require.NoError(t, json.Unmarshal(b, &got))
	require.Equal(t, text, got.SQL)
	require.Equal(t, text, got.Args[0].Value)
	require.Equal(t, 1e21, got.Args[2].Value)
}

// FuzzAnswer holds that no answer makes the decoder panic, that it takes nothing
// which is not JSON, and that it reads what is there as encoding/json does.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(goodExecute))
	f.Add([]byte(goodBatch))
	f.Add([]byte(`{"baton":"\ud800\u0041","results":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		a, err := parseAnswer(text)
		require.Equal(t, before, text)
		if err != nil {
			return
		}
		require.True(t, json.Valid(text))
		var want map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(text, &want))
		if raw, ok := want["baton"]; ok && raw[0] == '"' {
			var baton string
			require.NoError(t, json.Unmarshal(raw, &baton))
			if !bytes.Contains(text, []byte(`\u`)) || bytes.Count(text, []byte(`baton`)) == 1 {
				require.Equal(t, baton, a.baton)
			}
		}
		for _, r := range a.replies {
			require.True(t, (r.err == nil) != (r.kind == ""))
			if r.result == nil {
				continue
			}
			for _, row := range r.result.rows {
				for _, value := range row {
					if !driver.IsValue(value) {
						t.Fatalf("%T", value)
					}
				}
			}
		}
	})
}

// FuzzRequest holds that what is sent is JSON that says what was asked.
func FuzzRequest(f *testing.F) {
	f.Add("SELECT ?", "text", []byte("blob"), int64(1), 1.5)
	f.Fuzz(func(t *testing.T, query, text string, blob []byte, n int64, x float64) {
		b, refused := appendStatement(nil, query, []driver.NamedValue{
			{Ordinal: 1, Value: text}, {Ordinal: 2, Value: blob}, {Ordinal: 3, Value: n}, {Ordinal: 4, Value: x}})
		if refused != nil {
			require.True(t, refused.NothingDone())
			return
		}
		r := &request{text: append([]byte(`{"requests":[`), b...)}
		whole := r.on("baton")
		var got struct {
			Baton    string
			Requests []struct {
				SQL  string
				Args []json.RawMessage
			}
		}
		require.NoError(t, json.Unmarshal(whole, &got))
		require.Equal(t, query, got.Requests[0].SQL)
		d := &decoder{}
		for i, want := range []any{text, blob, n, x} {
			d.scanner = scanner{data: got.Requests[0].Args[i]}
			value := d.value()
			require.NoError(t, d.err)
			if blob == nil && i == 1 {
				want = nil
			}
			require.Equal(t, want, value)
		}
	})
}
