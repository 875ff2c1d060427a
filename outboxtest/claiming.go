package outboxtest

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

var claimingRules = []rule{
	{"a claim takes the earliest due rows in order, by visible after and then key", func(s *suite) {
		var rows []outbox.Row
		for i, seconds := range []int{5, 3, 9, 3, 1, 8, 3, 2, 7, 6} {
			row := s.row(i)
			row.VisibleAfter = s.clock.Now().Add(-time.Duration(seconds) * time.Second)
			rows = append(rows, row)
		}
		s.stage(rows...)
		require.Equal(s.t, s.keys(2, 5, 8), keysOf(s.claim(3)))
		require.Equal(s.t, s.keys(9, 0), keysOf(s.claim(2)))
		require.Equal(s.t, s.keys(1, 3, 6, 7, 4), keysOf(s.claim(9)))
		require.Empty(s.t, s.claim(9))
	}},
	{"a claimed row is claimed now, its fence has grown, and the rest is as it was", func(s *suite) {
		s.stageN(1)
		want := s.get(s.key(0))
		s.clock.Advance(time.Second)
		got := s.claimOne()
		want.Status, want.ClaimedAt, want.Fence = outbox.Claimed, s.clock.Now(), 1
		require.Equal(s.t, want, got)
		require.Equal(s.t, want, s.get(s.key(0)))
		require.Equal(s.t, outbox.Ref{DispatchKey: s.key(0), Fence: 1}, got.Ref())
	}},
	{"a row is not claimed before it falls due, and at that very instant it is", func(s *suite) {
		row := s.row(0)
		row.VisibleAfter = s.clock.Now().Add(time.Nanosecond)
		s.stage(row)
		require.Empty(s.t, s.claim(1))
		s.clock.Advance(time.Nanosecond)
		require.Len(s.t, s.claim(1), 1)
	}},
	{"a negative limit is invalid, zero does nothing, a huge one takes all there is", func(s *suite) {
		s.stageN(5)
		_, err := s.Claim(s.ctx, -1)
		require.ErrorIs(s.t, err, outbox.ErrInvalid)
		require.Empty(s.t, s.claim(0))
		require.Len(s.t, s.claim(1<<40), 5)
		_, err = s.ListStale(s.ctx, s.clock.Now(), -1)
		require.ErrorIs(s.t, err, outbox.ErrInvalid)
		_, err = s.RearmStale(s.ctx, s.clock.Now(), time.Time{}, -1)
		require.ErrorIs(s.t, err, outbox.ErrInvalid)
		_, err = s.Purge(s.ctx, s.clock.Now(), -1)
		require.ErrorIs(s.t, err, outbox.ErrInvalid)
		_, err = s.List(s.ctx, outbox.Filter{Limit: -1})
		require.ErrorIs(s.t, err, outbox.ErrInvalid)
	}},
	{"rows of held workflows are passed over in place and stay pending", func(s *suite) {
		held := uuid.New()
		var rows []outbox.Row
		for i := range 30 {
			rows = append(rows, outbox.Row{WorkflowID: held, Ordinal: uint64(i), ActivityType: "send", VisibleAfter: s.clock.Now().Add(-time.Hour)})
		}
		s.stage(rows...)
		s.stageN(3)
		got, err := s.ClaimExcluding(s.ctx, 2, held, uuid.New())
		require.NoError(s.t, err)
		require.Equal(s.t, s.keys(0, 1), keysOf(got))
		got, err = s.ClaimScopedExcluding(s.ctx, outbox.Scope{Namespace: "default", TaskQueue: "default"}, 9, uuid.New(), held)
		require.NoError(s.t, err)
		require.Equal(s.t, s.keys(2), keysOf(got))
		got, err = s.ClaimExcluding(s.ctx, 9, held)
		require.NoError(s.t, err)
		require.Empty(s.t, got)
		require.Len(s.t, s.claim(99), 30)
	}},
	{"a thousand workflows can be held at once", func(s *suite) {
		var held []uuid.UUID
		var rows []outbox.Row
		for range 1000 {
			held = append(held, uuid.New())
			rows = append(rows, outbox.Row{WorkflowID: held[len(held)-1], ActivityType: "send", VisibleAfter: s.clock.Now().Add(-time.Hour)})
		}
		s.stage(rows...)
		s.stageN(1)
		got, err := s.ClaimExcluding(s.ctx, 10, held...)
		require.NoError(s.t, err)
		require.Equal(s.t, s.keys(0), keysOf(got))
	}},
	{"a scoped claim takes exactly the rows that the scope admits", func(s *suite) {
		var rows []outbox.Row
		for _, namespace := range []string{"a", "b", ""} {
			for _, queue := range []string{"x", "y"} {
				for _, node := range []string{"", "n1", "n2"} {
					row := s.row(len(rows))
					row.Namespace, row.TaskQueue, row.Node = namespace, queue, node
					rows = append(rows, row)
				}
			}
		}
		s.stage(rows...)
		for _, scope := range []outbox.Scope{
			{Namespace: "a", TaskQueue: "x"},
			{Namespace: "a", TaskQueue: "x", Node: "n1"},
			{Namespace: "a", TaskQueue: "x", Node: "n2"},
			{Namespace: "b", TaskQueue: "y", Node: "n2"},
			{Namespace: "default", TaskQueue: "x"},
			{Namespace: "A", TaskQueue: "x"},
			{Namespace: "a", TaskQueue: "z"},
		} {
			var want []string
			for _, row := range s.rows() {
				if row.Status == outbox.Pending && scope.Admits(row) {
					want = append(want, row.DispatchKey)
				}
			}
			slices.Sort(want)
			got, err := s.ClaimScoped(s.ctx, scope, 99)
			require.NoError(s.t, err)
			require.Equal(s.t, want, keysOf(got), "%+v", scope)
		}
	}},
	{"a scoped claim merges pinned and unpinned rows in order", func(s *suite) {
		var rows []outbox.Row
		for i := range 8 {
			row := s.row(i)
			row.VisibleAfter = s.clock.Now().Add(time.Duration(i-10) * time.Second)
			if i%2 == 1 {
				row.Node = "n1"
			}
			rows = append(rows, row)
		}
		s.stage(rows...)
		scope := outbox.Scope{Namespace: "default", TaskQueue: "default", Node: "n1"}
		for _, want := range [][]string{s.keys(0, 1, 2), s.keys(3, 4, 5), s.keys(6, 7)} {
			got, err := s.ClaimScoped(s.ctx, scope, 3)
			require.NoError(s.t, err)
			require.Equal(s.t, want, keysOf(got))
		}
	}},
	{"what is not due, held or foreign in front never starves what is behind", func(s *suite) {
		held := uuid.New()
		var rows []outbox.Row
		for i := range 200 {
			rows = append(rows,
				outbox.Row{WorkflowID: held, Ordinal: uint64(i), ActivityType: "send", VisibleAfter: s.clock.Now().Add(-time.Hour)},
				outbox.Row{WorkflowID: s.workflow, Ordinal: uint64(1000 + i), ActivityType: "send", VisibleAfter: s.clock.Now().Add(time.Hour)},
				outbox.Row{WorkflowID: s.workflow, Ordinal: uint64(2000 + i), ActivityType: "send", Namespace: "other", VisibleAfter: s.clock.Now().Add(-time.Hour)})
		}
		s.stage(rows...)
		s.stageN(1)
		got, err := s.ClaimScopedExcluding(s.ctx, outbox.Scope{Namespace: "default", TaskQueue: "default"}, 10, held)
		require.NoError(s.t, err)
		require.Equal(s.t, s.keys(0), keysOf(got))
	}},
	{"one large row does not make the claims of others fail", func(s *suite) {
		large := s.row(0)
		large.Input.Data = bytes.Repeat([]byte("0123456789abcdef"), 4_900_000/16)
		_, err := s.Append(s.ctx, large)
		if errors.Is(err, outbox.ErrTooLarge) || errors.Is(err, outbox.ErrUnavailable) { // on an embedded replica
			large.Input.Data = large.Input.Data[:4_000_000]
			_, err = s.Append(s.ctx, large)
		}
		require.NoError(s.t, err)
		s.stage(s.row(1))
		rows := s.claim(2)
		require.Len(s.t, rows, 2)
		require.True(s.t, bytes.Equal(large.Input.Data, rows[0].Input.Data))
		require.Equal(s.t, "input 1", string(rows[1].Input.Data))
	}},
	{"many large rows are claimed, listed and taken back at once", func(s *suite) {
		const n, size = 40, 400_000
		for i := range n {
			row := s.row(i)
			row.Input.Data = bytes.Repeat([]byte{byte(i)}, size)
			s.stage(row)
		}
		rows := s.claim(n)
		require.Len(s.t, rows, n)
		for _, row := range rows {
			require.Len(s.t, row.Input.Data, size)
		}
		s.clock.Advance(time.Hour)
		listed, err := s.List(s.ctx, outbox.Filter{})
		require.NoError(s.t, err)
		stale, err := s.ListStale(s.ctx, s.clock.Now(), n)
		require.NoError(s.t, err)
		taken, err := s.RearmStale(s.ctx, s.clock.Now(), time.Time{}, n)
		require.NoError(s.t, err)
		for what, rows := range map[string][]outbox.Row{"listed": listed, "stale": stale, "taken back": taken} {
			require.Len(s.t, rows, n, what)
			for _, row := range rows {
				require.Equal(s.t, bytes.Repeat([]byte{byte(row.Ordinal)}, size), row.Input.Data, what)
			}
		}
	}},
	{"more rows are claimed and listed than go into one answer of a server", func(s *suite) {
		const n = 4500
		s.stageN(n)
		rows := s.claim(n + 1)
		require.Len(s.t, rows, n)
		require.True(s.t, slices.IsSortedFunc(rows, func(a, b outbox.Row) int { return strings.Compare(a.DispatchKey, b.DispatchKey) }))
		listed, err := s.List(s.ctx, outbox.Filter{Limit: n - 1})
		require.NoError(s.t, err)
		require.Len(s.t, listed, n-1)
	}},
	{"a backlog is claimed in batches of exactly the limit", func(s *suite) {
		s.stageN(1000)
		for i := range 10 {
			rows := s.claim(100)
			require.Len(s.t, rows, 100, "claim %d", i)
		}
	}},
}
