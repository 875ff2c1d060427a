package outboxtest

import (
	"fmt"

	"example.com/outbox"
	"github.com/stretchr/testify/require"
)

// Damage that SQL can do to a stored row and the schema does not forbid.
var damages = []struct{ name, set string }{
	{"a key stored as a blob", `dispatch_key = CAST(dispatch_key AS BLOB)`},
	{"a workflow stored as a blob", `workflow_id = CAST(workflow_id AS BLOB)`},
	{"a workflow that is no UUID", `workflow_id = 'nobody'`},
	{"a workflow in upper case", `workflow_id = 'ABCDEFAB-0000-4000-8000-000000000001'`},
	{"a nil workflow", `workflow_id = '00000000-0000-0000-0000-000000000000'`},
	{"a negative ordinal", `ordinal = -1`},
	{"an ordinal that is a text", `ordinal = 'first'`},
	{"an ordinal that is a fraction", `ordinal = 1.5`},
	{"an ordinal that overflows", `ordinal = 9223372036854775808`},
	{"an activity type stored as a blob", `activity_type = CAST('send' AS BLOB)`},
	{"an activity type that is not UTF-8", `activity_type = CAST(x'ff' AS TEXT)`},
	{"an activity type with a NUL", `activity_type = CAST(x'610062' AS TEXT)`},
	{"a key with a NUL", `dispatch_key = CAST(x'610062' AS TEXT)`},
	{"an ordinal with a NUL", `ordinal = CAST(x'6100' AS TEXT)`},
	{"an instant with a NUL", `visible_after = CAST(CAST(visible_after AS BLOB) || x'0030' AS TEXT)`},
	{"an empty activity type", `activity_type = ''`},
	{"a negative attempt", `attempt = -1`},
	{"an attempt that overflows", `attempt = 4294967296`},
	{"an attempt that is a blob", `attempt = x'01'`},
	{"a run that is no UUID", `run_id = 'nobody'`},
	{"a run stored as a blob", `run_id = x'00'`},
	{"a namespace stored as a blob", `namespace = CAST('default' AS BLOB)`},
	{"a namespace that is not UTF-8", `namespace = CAST(x'c328' AS TEXT)`},
	{"a task queue stored as a blob", `task_queue = CAST('default' AS BLOB)`},
	{"a node stored as a blob", `node = x'6e31'`},
	{"a content type stored as a blob", `content_type = x'61'`},
	{"an envelope that is no JSON", `content_type = NULL, input = CAST('{' AS BLOB)`},
	{"an envelope that is something else", `content_type = NULL, input = CAST('[1]' AS BLOB)`},
	{"an envelope without bytes", `content_type = NULL, input = CAST('{"content_type":"Json"}' AS BLOB)`},
	{"an envelope of more than bytes", `content_type = NULL, input = CAST('{"content_type":"Json","bytes":[256]}' AS BLOB)`},
	{"an envelope of less than bytes", `content_type = NULL, input = CAST('{"content_type":"Json","bytes":[-1]}' AS BLOB)`},
	{"an envelope that is not UTF-8", `content_type = NULL, input = x'ff'`},
	{"an envelope that is empty", `content_type = NULL, input = x''`},
	{"a payload that is missing", `input = NULL`},
	{"an envelope with a null for a byte", `content_type = NULL, input = CAST('{"content_type":"Json","bytes":[1,null]}' AS BLOB)`},
	{"an envelope in upper case", `content_type = NULL, input = CAST('{"content_type":"Json","BYTES":[2]}' AS BLOB)`},
	{"an envelope whose content type holds a NUL", `content_type = NULL, input = CAST('{"content_type":"a\u0000b","bytes":[]}' AS BLOB)`},
	{"a negative fence", `fence = -5`},
	{"a negative fence that a claim would make none", `fence = -1`},
	{"a fence that is a text", `fence = 'abc'`},
	{"a fence that is a fraction", `fence = 1.5`},
	{"a fence that can grow no further", `fence = 9223372036854775807`},
	{"a day that no calendar has", `visible_after = '2023-02-30T00:00:00.000000000Z'`},
}

// mend gives rows without a payload an empty one, so that the store can be
// found consistent.
func (s *suite) mend() {
	s.t.Helper()
	s.exec(`UPDATE outbox SET input = x'' WHERE input IS NULL AND id NOT IN (SELECT id FROM outbox_payload)`)
}

var damageRules = []rule{
	{"a row that cannot be decoded blocks nobody and becomes a dead letter with a reason", func(s *suite) {
		for i, damage := range damages {
			row := s.row(i)
			row.VisibleAfter = s.clock.Now().AddDate(0, 0, -1)
			s.stage(row)
			s.exec(`UPDATE outbox SET ` + damage.set + fmt.Sprintf(` WHERE id = %d`, i+1))
		}
		n := len(damages)
		s.stage(s.row(1000), s.row(1001))

		// The limit is smaller than the damage in front.
		require.Equal(s.t, s.keys(1000), keysOf(s.claim(1)))
		require.Equal(s.t, s.keys(1001), keysOf(s.claim(5)))
		require.Empty(s.t, s.claim(5))

		failed, err := s.List(s.ctx, outbox.Filter{Status: outbox.Failed})
		require.NoError(s.t, err)
		require.Len(s.t, failed, n)
		for i, row := range failed {
			require.EqualValues(s.t, i+1, row.ID)
			require.Contains(s.t, row.LastError, "undecodable", damages[i].name)
			if row.Status != "" { // else a NUL in front hides all but the id
				require.Equal(s.t, s.clock.Now(), row.FinishedAt)
			}
			require.Zero(s.t, row.ClaimedAt)
		}
		s.mend()
	}},
	{"damage is no obstacle to readers", func(s *suite) {
		for i, damage := range damages {
			row := s.row(i)
			row.Status = outbox.Claimed
			row.ClaimedAt = s.clock.Now().AddDate(0, 0, -1)
			s.stage(row)
			s.exec(`UPDATE outbox SET ` + damage.set + fmt.Sprintf(` WHERE id = %d`, i+1))
		}
		s.stage(s.row(1000))
		require.Len(s.t, s.rows(), len(damages)+1)
		for _, row := range s.rows() {
			own := s.count(`SELECT count(*) FROM outbox WHERE id = ? AND CAST(dispatch_key AS BLOB) = CAST(? AS BLOB)`, row.ID, row.DispatchKey)
			require.True(s.t, own == 1 || row.DispatchKey == "", "%q may be another row's", row.DispatchKey)
		}
		for i, row := range s.rows()[:len(damages)] {
			if row.Fence < 1<<62 { // the largest fence is readable still
				require.NotEmpty(s.t, row.LastError, damages[i].name)
			}
		}
		_, err := s.PendingRoutes(s.ctx)
		require.NoError(s.t, err)
		workflows, err := s.UnsettledWorkflows(s.ctx)
		require.NoError(s.t, err)
		require.Contains(s.t, workflows, s.workflow)
		_, _, err = s.NextVisible(s.ctx)
		require.NoError(s.t, err)
		stale, err := s.RearmStale(s.ctx, s.clock.Now(), s.clock.Now(), 1000)
		require.NoError(s.t, err)
		require.Len(s.t, stale, len(damages))
		require.Equal(s.t, s.keys(1000), keysOf(s.claim(1)))
		s.mend()
	}},
	{"thousands of rows that cannot be decoded are passed in one claim", func(s *suite) {
		const n = 3000
		var rows []outbox.Row
		for i := range n {
			row := s.row(i)
			row.VisibleAfter = s.clock.Now().AddDate(0, 0, -1)
			rows = append(rows, row)
		}
		s.stage(rows...)
		s.exec(`UPDATE outbox SET attempt = -1`)
		s.stage(s.row(n))
		require.Equal(s.t, s.keys(n), keysOf(s.claim(1)))
		require.Equal(s.t, n, s.count(`SELECT count(*) FROM outbox WHERE status = 'failed'`))
	}},
	{"rearm and requeue of a damaged fence do not block the others", func(s *suite) {
		s.stageN(3)
		s.exec(`UPDATE outbox SET fence = 9223372036854775807 WHERE ordinal = 0`)
		s.exec(`UPDATE outbox SET fence = 1.5 WHERE ordinal = 1`)
		require.NoError(s.t, s.Rearm(s.ctx, s.row(0), s.row(1), s.row(2), s.row(3)))
		s.clock.Advance(1)
		require.Equal(s.t, s.keys(2, 3), keysOf(s.claim(9)))
		n, err := s.Requeue(s.ctx, s.keys(0, 1, 2)...)
		require.NoError(s.t, err)
		require.Equal(s.t, 2, n)
	}},
	{"an old envelope is read, whatever its size", func(s *suite) {
		s.stageN(3)
		s.exec(`UPDATE outbox SET content_type = NULL, input = CAST('{"content_type":"Json","bytes":[123,34,97,34,58,49,125]}' AS BLOB) WHERE ordinal = 0`)
		s.exec(`UPDATE outbox SET content_type = NULL, input = '{"content_type":"text/csv","bytes":[]}' WHERE ordinal = 1`)
		s.exec(`UPDATE outbox SET content_type = NULL, input = CAST('{"content_type":"Json","bytes":[' || (
			WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) SELECT group_concat(i % 256) FROM n
		) || ']}' AS BLOB) WHERE ordinal = 2`)
		rows := s.claim(9)
		require.Equal(s.t, outbox.Payload{ContentType: "application/json", Data: []byte(`{"a":1}`)}, rows[0].Input)
		require.Equal(s.t, outbox.Payload{ContentType: "text/csv"}, rows[1].Input)
		require.Len(s.t, rows[2].Input.Data, 2000)
		require.EqualValues(s.t, 2000%256, rows[2].Input.Data[1999])
		require.Equal(s.t, rows[2], s.get(s.key(2)))
	}},
}
