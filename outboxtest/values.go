package outboxtest

import (
	"errors"
	"math"
	"strings"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// oddTexts must come back to the byte, and be found again.
var oddTexts = []string{
	"2024-01-01", "2024-01-01 10:00", "2024-01-01T00:00:00.120Z", "2024-01-01 10:00:00.000000000+00:00", "10:00",
	"0", "-1", "1e3", "NULL", "true", "default", " ", "\n", "\t x ", "'; DROP TABLE outbox; --", `"quoted" \ back`, "?1 :a @b $c",
	"ключ", "鍵", "🔑", "e\u0301", "\u00e9", "\ufeff", "\u2028", "<b>&amp;</b>", "\x01\x1f\x7f", "%s %d", "*[a-z]?", "_%",
	strings.Repeat("long ", 2000),
}

var valueRules = []rule{
	{"texts come back to the byte and are found by key, scope and workflow", func(s *suite) {
		for i, text := range oddTexts {
			row := outbox.Row{
				DispatchKey: text, WorkflowID: uuid.New(), Ordinal: uint64(i), ActivityType: text,
				Namespace: text, TaskQueue: text, Node: text, Input: outbox.Payload{ContentType: text, Data: []byte(text)},
			}
			s.stage(row)
			got := s.get(text)
			for _, field := range []string{got.DispatchKey, got.ActivityType, got.Namespace, got.TaskQueue, got.Node, got.Input.ContentType, string(got.Input.Data)} {
				require.Equal(s.t, text, field)
			}
			routes, err := s.PendingRoutes(s.ctx)
			require.NoError(s.t, err)
			require.Equal(s.t, []outbox.Scope{{Namespace: text, TaskQueue: text, Node: text}}, routes)
			claimed, err := s.ClaimScoped(s.ctx, routes[0], 9)
			require.NoError(s.t, err)
			require.Len(s.t, claimed, 1)
			counts, err := s.CountClaimedByNamespace(s.ctx, text)
			require.NoError(s.t, err)
			require.Equal(s.t, map[string]int64{text: 1}, counts)
			duplicates, err := s.Append(s.ctx, row)
			require.NoError(s.t, err)
			require.Equal(s.t, []string{text}, duplicates)
			require.NoError(s.t, s.Fail(s.ctx, claimed[0].Ref(), errors.New(text)))
			failed, err := s.List(s.ctx, outbox.Filter{Status: outbox.Failed, Namespace: text, WorkflowID: uuid.NullUUID{UUID: row.WorkflowID, Valid: true}})
			require.NoError(s.t, err)
			require.Len(s.t, failed, 1)
			if len(text) <= 8<<10 {
				require.Equal(s.t, text, failed[0].LastError)
			}
			n, err := s.Requeue(s.ctx, text)
			require.NoError(s.t, err)
			require.Equal(s.t, 1, n)
			keys, err := s.SettleWorkflow(s.ctx, row.WorkflowID)
			require.NoError(s.t, err)
			require.Equal(s.t, []string{text}, keys)
		}
	}},
	{"integers are exact to 2^63-1", func(s *suite) {
		for _, n := range []int64{1<<53 + 1, math.MaxInt64 - 1, math.MaxInt64} {
			row := s.row(0)
			row.Ordinal = uint64(n)
			row.Attempt = math.MaxUint32
			s.stage(row)
			key := outbox.DispatchKey(s.workflow, uint64(n))
			require.EqualValues(s.t, n, s.get(key).Ordinal)
			require.EqualValues(s.t, uint32(math.MaxUint32), s.get(key).Attempt)
		}
		for _, fence := range []int64{1<<53 + 1, math.MaxInt64 - 1} {
			s.exec(`UPDATE outbox SET fence = ?, status = 'pending', claimed_at = NULL, finished_at = NULL WHERE ordinal = 9223372036854775807`, fence)
			key := outbox.DispatchKey(s.workflow, math.MaxInt64)
			require.Equal(s.t, fence, s.get(key).Fence)
			var claimed outbox.Row
			for _, row := range s.claim(9) {
				if row.DispatchKey == key {
					claimed = row
				}
			}
			require.Equal(s.t, fence+1, claimed.Fence)
			require.ErrorIs(s.t, s.Complete(s.ctx, outbox.Ref{DispatchKey: key, Fence: fence}), outbox.ErrClaimLost)
			require.NoError(s.t, s.Complete(s.ctx, claimed.Ref()))
		}
	}},
	{"payloads of any bytes and size come back", func(s *suite) {
		everyByte := make([]byte, 256)
		for i := range everyByte {
			everyByte[i] = byte(i)
		}
		for i, data := range [][]byte{nil, {}, {0}, []byte("2024-01-01"), everyByte, make([]byte, 1024), make([]byte, 1025), make([]byte, 1<<20)} {
			row := s.row(i)
			row.Input = outbox.Payload{ContentType: "x", Data: data}
			s.stage(row)
			got := s.claimOne()
			require.Len(s.t, got.Input.Data, len(data))
			require.Equal(s.t, string(data), string(got.Input.Data))
			require.Equal(s.t, string(data), string(s.get(s.key(i)).Input.Data))
			require.NoError(s.t, s.Complete(s.ctx, got.Ref()))
		}
	}},
	{"a payload without content type is no old envelope", func(s *suite) {
		row := s.row(0)
		row.Input = outbox.Payload{Data: []byte("plain")}
		s.stage(row)
		require.Equal(s.t, row.Input, s.claimOne().Input)
	}},
	{"a run id may be nil", func(s *suite) {
		row := s.row(0)
		row.RunID = uuid.NullUUID{Valid: true}
		s.stage(row, s.row(1))
		require.True(s.t, s.get(s.key(0)).RunID.Valid)
		require.False(s.t, s.get(s.key(1)).RunID.Valid)
	}},
}

var timeRules = []rule{
	{"instants are ordered to the nanosecond and come back in UTC", func(s *suite) {
		base := s.clock.Now().Truncate(time.Second)
		fractions := []time.Duration{500_000_000, 500_000_001, 700_000_000, 735_000_000, 0, 999_999_999, 1}
		for i, fraction := range fractions {
			row := s.row(i)
			row.VisibleAfter = base.Add(fraction).In(time.FixedZone("east", 7200))
			s.stage(row)
			require.Equal(s.t, base.Add(fraction), s.get(s.key(i)).VisibleAfter)
		}
		for _, next := range []int{4, 6, 0, 1, 2, 3, 5} {
			at := base.Add(fractions[next])
			s.clock.Set(at.Add(-1))
			require.Empty(s.t, s.claim(9), "before %v", at)
			s.clock.Set(at)
			require.Equal(s.t, s.keys(next), keysOf(s.claim(9)))
		}
	}},
	{"due and stale go by the instant, whatever the zone", func(s *suite) {
		zone := time.FixedZone("WIB", 7*3600)
		s.clock.Set(s.clock.Now().In(zone))
		row := s.row(0)
		row.VisibleAfter = s.clock.Now().Add(-time.Second).In(time.FixedZone("west", -11*3600))
		s.stage(row)
		claimed := s.claimOne()
		require.Equal(s.t, time.UTC, claimed.ClaimedAt.Location())
		s.clock.Advance(time.Hour)
		stale, err := s.ListStale(s.ctx, s.clock.Now().In(time.FixedZone("east", 14*3600)), 9)
		require.NoError(s.t, err)
		require.Len(s.t, stale, 1)
	}},
	{"the first and last storable years work", func(s *suite) {
		for i, at := range []time.Time{
			time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(1969, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
			time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
		} {
			row := s.row(i)
			row.VisibleAfter = at
			s.stage(row)
			require.Equal(s.t, at, s.get(s.key(i)).VisibleAfter)
		}
		require.Equal(s.t, s.keys(0, 1), keysOf(s.claim(9)))
	}},
	{"a clock that steps back loses no row and repeats no fence", func(s *suite) {
		s.stageN(2)
		first := s.claim(1)[0]
		s.clock.Advance(-2 * time.Hour)
		require.Empty(s.t, s.claim(9), "not due by this clock")
		s.stage(s.row(2))
		third := s.claim(9)
		require.Equal(s.t, s.keys(2), keysOf(third))
		require.NoError(s.t, s.Complete(s.ctx, first.Ref()), "though it was claimed in what is now the future")
		require.NoError(s.t, s.Rearm(s.ctx, s.row(0)))
		s.clock.Advance(3 * time.Hour)
		_, err := s.RearmStale(s.ctx, s.clock.Now(), time.Time{}, 9)
		require.NoError(s.t, err)
		for _, row := range s.claim(9) {
			if row.DispatchKey == first.DispatchKey {
				require.Greater(s.t, row.Fence, first.Fence)
			}
			require.NoError(s.t, s.Complete(s.ctx, row.Ref()))
		}
		RequireCounts(s.t, s.Store, map[outbox.Status]int{outbox.Done: 3})
	}},
	{"a clock outside the storable years is an error, not a row", func(s *suite) {
		s.clock.Set(time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC))
		_, err := s.Append(s.ctx, s.row(0))
		require.ErrorIs(s.t, err, outbox.ErrInvalid)
		_, err = s.Claim(s.ctx, 1)
		require.ErrorIs(s.t, err, outbox.ErrInvalid)
		s.clock.Set(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC))
		require.Empty(s.t, s.rows())
	}},
}
