package hrana

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkAnswer reads a hundred rows of five columns, one of them a blob of 256
// bytes, beside encoding/json.
func BenchmarkAnswer(b *testing.B) {
	var rows []string
	for i := range 100 {
		rows = append(rows, fmt.Sprintf(`[{"type":"integer","value":"%d"},{"type":"text","value":"key-%d"},{"type":"text","value":"topic"},`+
			`{"type":"blob","base64":"%s"},{"type":"null"}]`, i, i, base64.RawStdEncoding.EncodeToString(make([]byte, 256))))
	}
	text := []byte(`{"baton":"x","base_url":null,"results":[{"type":"ok","response":{"type":"execute","result":{"cols":[],"rows":[` +
		strings.Join(rows, ",") + `],"affected_row_count":0,"last_insert_rowid":null}}}]}`)
	b.Run("scanner", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			_, err := parseAnswer(text)
			require.NoError(b, err)
		}
	})
	b.Run("json", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			var a struct {
				Baton   string
				Results []struct {
					Response struct {
						Result struct {
							Rows [][]struct {
								Type   string
								Value  any
								Base64 []byte
							}
						}
					}
				}
			}
			_ = json.Unmarshal(text, &a)
		}
	})
}
