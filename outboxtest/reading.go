package outboxtest

import (
	"context"
	"slices"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

var readingRules = []rule{
	{"a key that no row has is not found", func(s *suite) {
		for _, key := range []string{"nobody", "", "a\x00b", "\xff"} {
			_, err := s.Get(s.ctx, key)
			require.ErrorIs(s.t, err, outbox.ErrNotFound)
			_, err = s.State(s.ctx, key)
			require.ErrorIs(s.t, err, outbox.ErrNotFound)
		}
	}},
	{"state is the changing part of a row", func(s *suite) {
		s.stageN(1)
		at := s.clock.Now().Add(time.Hour)
		require.NoError(s.t, s.Retry(s.ctx, s.claimOne().Ref(), 3, at, errBoom))
		state, err := s.State(s.ctx, s.key(0))
		require.NoError(s.t, err)
		require.Equal(s.t, outbox.RowState{Status: outbox.Pending, Attempt: 3, VisibleAfter: at}, state)
	}},
	{"list filters by status, namespace and workflow, and pages by the last id", func(s *suite) {
		other := uuid.New()
		var rows []outbox.Row
		for i := range 12 {
			row := s.row(i)
			row.Namespace = []string{"a", "b"}[i%2]
			if i%3 == 0 {
				row.WorkflowID = other
			}
			if i >= 6 {
				row.Status = outbox.Failed
			}
			rows = append(rows, row)
		}
		s.stage(rows...)
		all := s.rows()
		require.Len(s.t, all, 12)
		for _, filter := range []outbox.Filter{
			{},
			{Status: outbox.Failed},
			{Status: outbox.Pending},
			{Status: outbox.Done},
			{Namespace: "a"},
			{Namespace: "nobody"},
			{WorkflowID: uuid.NullUUID{UUID: other, Valid: true}},
			{Status: outbox.Failed, Namespace: "b", WorkflowID: uuid.NullUUID{UUID: other, Valid: true}},
			{Status: outbox.Pending, Namespace: "a", After: 2},
		} {
			want := slices.DeleteFunc(slices.Clone(all), func(row outbox.Row) bool {
				return filter.Status != "" && row.Status != filter.Status ||
					filter.Namespace != "" && row.Namespace != filter.Namespace ||
					filter.WorkflowID.Valid && row.WorkflowID != filter.WorkflowID.UUID ||
					row.ID <= filter.After
			})
			if len(want) == 0 {
				want = nil
			}
			for _, limit := range []int{0, 1, 2, 100} {
				var got []outbox.Row
				page := filter
				page.Limit = limit
				for {
					rows, err := s.List(s.ctx, page)
					require.NoError(s.t, err)
					got = append(got, rows...)
					if limit == 0 || len(rows) < limit {
						break
					}
					require.Len(s.t, rows, limit)
					page.After = rows[len(rows)-1].ID
				}
				require.Equal(s.t, want, got, "%+v by %d", filter, limit)
			}
		}
	}},
	{"rows are those of list, however many and with whatever limit", func(s *suite) {
		s.stageN(250)
		_, err := s.SettleWorkflow(s.ctx, s.workflow)
		require.NoError(s.t, err)
		s.stage(s.row(1000), s.row(1001))
		all := s.rows()
		for _, filter := range []outbox.Filter{
			{}, {Status: outbox.Pending}, {Status: outbox.Cancelled}, {Status: outbox.Failed}, {Namespace: "nobody"},
			{After: all[99].ID}, {WorkflowID: uuid.NullUUID{UUID: s.workflow, Valid: true}},
		} {
			for _, limit := range []int{0, 1, 99, 100, 101, 200, 250, 1000} {
				filter.Limit = limit
				want, err := s.List(s.ctx, filter)
				require.NoError(s.t, err)
				var got []outbox.Row
				for row, err := range s.Rows(s.ctx, filter) {
					require.NoError(s.t, err)
					got = append(got, row)
				}
				require.Equal(s.t, want, got, "%+v", filter)
			}
		}
	}},
	{"rows may be left at any time, walked again, and written to meanwhile", func(s *suite) {
		s.stageN(250)
		walk := s.Rows(s.ctx, outbox.Filter{})
		for range 20 { // more than there are connections
			for row, err := range walk {
				require.NoError(s.t, err)
				require.Equal(s.t, s.key(0), row.DispatchKey)
				break
			}
		}
		seen := 0
		for row, err := range walk {
			require.NoError(s.t, err)
			require.NoError(s.t, s.Complete(s.ctx, outbox.Ref{DispatchKey: row.DispatchKey}))
			if seen++; seen == 250 {
				s.stage(s.row(250)) // the page that it is on is not full
			}
			require.Equal(s.t, outbox.Pending, row.Status, "as it was when its page was read")
		}
		require.Equal(s.t, 250, seen)
		RequireCounts(s.t, s.Store, map[outbox.Status]int{outbox.Done: 250, outbox.Pending: 1})
		seen = 0
		for _, err := range s.Rows(s.ctx, outbox.Filter{}) {
			require.NoError(s.t, err)
			if seen++; seen == 1 {
				s.stage(s.row(251))
			}
		}
		require.Equal(s.t, 252, seen, "what is staged meanwhile is among them")
	}},
	{"an error ends the rows, and comes with none", func(s *suite) {
		s.stageN(250)
		for _, filter := range []outbox.Filter{{Limit: -1}, {Status: "paused"}, {Namespace: "a\x00"}} {
			n := 0
			for row, err := range s.Rows(s.ctx, filter) {
				n++
				require.ErrorIs(s.t, err, outbox.ErrInvalid)
				require.Zero(s.t, row)
			}
			require.Equal(s.t, 1, n)
		}
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		n := 0
		var last error
		for row, err := range s.Rows(ctx, outbox.Filter{}) {
			require.NoError(s.t, last, "nothing comes after an error")
			if last = err; err != nil {
				require.Zero(s.t, row)
				continue
			}
			n++
			cancel()
		}
		require.ErrorIs(s.t, last, context.Canceled)
		require.Equal(s.t, 100, n, "the page that was read is seen to its end")
	}},
	{"counts tell live from settled, and one namespace from another", func(s *suite) {
		var rows []outbox.Row
		for i := range 9 {
			row := s.row(i)
			row.Namespace = []string{"a", "b", ""}[i%3]
			rows = append(rows, row)
		}
		s.stage(rows...)
		claimed, err := s.ClaimScoped(s.ctx, outbox.Scope{Namespace: "a", TaskQueue: "default"}, 2)
		require.NoError(s.t, err)
		require.NoError(s.t, s.Complete(s.ctx, claimed[0].Ref()))

		inFlight := func(namespace string) int64 {
			n, err := s.CountInFlight(s.ctx, namespace)
			require.NoError(s.t, err)
			return n
		}
		require.EqualValues(s.t, 2, inFlight("a"))
		require.EqualValues(s.t, 3, inFlight("b"))
		require.EqualValues(s.t, 3, inFlight("default"))
		require.EqualValues(s.t, 0, inFlight("nobody"))
		n, err := s.CountClaimed(s.ctx, "a")
		require.NoError(s.t, err)
		require.EqualValues(s.t, 1, n)
		byNamespace, err := s.CountClaimedByNamespace(s.ctx, "a", "nobody", "b", "a")
		require.NoError(s.t, err)
		require.Equal(s.t, map[string]int64{"a": 1, "b": 0, "nobody": 0}, byNamespace)
		byNamespace, err = s.CountClaimedByNamespace(s.ctx)
		require.NoError(s.t, err)
		require.Empty(s.t, byNamespace)
	}},
	{"routes are those with a row to be claimed now, each once and sorted", func(s *suite) {
		routes, err := s.PendingRoutes(s.ctx)
		require.NoError(s.t, err)
		require.Empty(s.t, routes)
		var rows []outbox.Row
		for _, namespace := range []string{"b", "a", "", "a\u00e9", "A"} {
			for _, queue := range []string{"y", "x"} {
				for _, node := range []string{"n2", "", "n1"} {
					for range 3 {
						row := s.row(len(rows))
						row.Namespace, row.TaskQueue, row.Node = namespace, queue, node
						rows = append(rows, row)
					}
				}
			}
		}
		later := s.row(1000)
		later.Namespace, later.VisibleAfter = "later", s.clock.Now().Add(time.Second)
		done := s.row(1001)
		done.Namespace, done.Status = "done", outbox.Done
		s.stage(append(rows, later, done)...)

		var want []outbox.Scope
		for _, namespace := range []string{"A", "a", "a\u00e9", "b", "default"} {
			for _, queue := range []string{"x", "y"} {
				for _, node := range []string{"", "n1", "n2"} {
					want = append(want, outbox.Scope{Namespace: namespace, TaskQueue: queue, Node: node})
				}
			}
		}
		routes, err = s.PendingRoutes(s.ctx)
		require.NoError(s.t, err)
		require.Equal(s.t, want, routes)
		for _, route := range routes { // every route that is offered can be claimed
			claimed, err := s.ClaimScoped(s.ctx, route, 100)
			require.NoError(s.t, err)
			require.NotEmpty(s.t, claimed, "%+v", route)
		}
		routes, err = s.PendingRoutes(s.ctx)
		require.NoError(s.t, err)
		require.Empty(s.t, routes)
		s.clock.Advance(time.Second)
		routes, err = s.PendingRoutes(s.ctx)
		require.NoError(s.t, err)
		require.Equal(s.t, []outbox.Scope{{Namespace: "later", TaskQueue: "default"}}, routes)
	}},
	{"unsettled workflows own a live row, each once and sorted", func(s *suite) {
		var want []uuid.UUID
		for i := range 20 {
			id := uuid.New()
			rows := []outbox.Row{{WorkflowID: id, ActivityType: "send"}, {WorkflowID: id, Ordinal: 1, ActivityType: "send", Status: outbox.Claimed}}
			if i%2 == 0 {
				rows[0].Status, rows[1].Status = outbox.Done, outbox.Cancelled
			} else {
				want = append(want, id)
			}
			s.stage(rows...)
		}
		slices.SortFunc(want, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
		got, err := s.UnsettledWorkflows(s.ctx)
		require.NoError(s.t, err)
		require.Equal(s.t, want, got)
	}},
	{"next visible is when the earliest pending row falls due", func(s *suite) {
		_, ok, err := s.NextVisible(s.ctx)
		require.NoError(s.t, err)
		require.False(s.t, ok)
		for i, after := range []time.Duration{time.Hour, time.Minute, -time.Second} {
			row := s.row(i)
			row.VisibleAfter = s.clock.Now().Add(after)
			s.stage(row)
			at, ok, err := s.NextVisible(s.ctx)
			require.NoError(s.t, err)
			require.True(s.t, ok)
			require.Equal(s.t, row.VisibleAfter, at)
		}
		s.claim(1)
		at, ok, err := s.NextVisible(s.ctx)
		require.NoError(s.t, err)
		require.True(s.t, ok)
		require.Equal(s.t, s.clock.Now().Add(time.Minute), at)
	}},
	{"settled rows are counted nowhere", func(s *suite) {
		s.stageN(10)
		_, err := s.SettleWorkflow(s.ctx, s.workflow)
		require.NoError(s.t, err)
		n, err := s.CountInFlight(s.ctx, "default")
		require.NoError(s.t, err)
		require.Zero(s.t, n)
		workflows, err := s.UnsettledWorkflows(s.ctx)
		require.NoError(s.t, err)
		require.Empty(s.t, workflows)
		_, ok, err := s.NextVisible(s.ctx)
		require.NoError(s.t, err)
		require.False(s.t, ok)
	}},
}
