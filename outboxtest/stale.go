package outboxtest

import (
	"bytes"
	"time"

	"example.com/outbox"
	"github.com/stretchr/testify/require"
)

var staleRules = []rule{
	{"stale is claimed strictly before, in order of claimed-at and then key", func(s *suite) {
		s.stageN(5)
		var claimedAt []time.Time
		for range 5 {
			s.clock.Advance(time.Second)
			claimedAt = append(claimedAt, s.clock.Now())
			s.claim(1)
		}
		timeless := s.row(9)
		timeless.Status = outbox.Claimed
		s.stage(timeless)
		stale, err := s.ListStale(s.ctx, claimedAt[3], 9)
		require.NoError(s.t, err)
		require.Equal(s.t, s.keys(0, 1, 2), keysOf(stale))
		stale, err = s.ListStale(s.ctx, claimedAt[4].Add(time.Hour), 2)
		require.NoError(s.t, err)
		require.Equal(s.t, s.keys(0, 1), keysOf(stale))
		require.Equal(s.t, s.get(s.key(1)), stale[1])
	}},
	{"rearm stale makes rows pending, keeps attempt and fence, and returns them", func(s *suite) {
		row := s.row(0)
		row.Attempt = 3
		row.Input.Data = bytes.Repeat([]byte("x"), 2000)
		s.stage(row)
		s.stage(s.row(1))
		claimed := s.claim(1)
		s.clock.Advance(time.Minute)
		s.claim(1)
		visible := s.clock.Now().Add(time.Second)
		rearmed, err := s.RearmStale(s.ctx, s.clock.Now(), visible, 9)
		require.NoError(s.t, err)
		want := claimed[0]
		want.Status, want.VisibleAfter, want.ClaimedAt = outbox.Pending, visible, time.Time{}
		require.Equal(s.t, []outbox.Row{want}, rearmed)
		require.Equal(s.t, want, s.get(s.key(0)))
		require.Equal(s.t, outbox.Claimed, s.status(s.key(1)))

		rearmed, err = s.RearmStale(s.ctx, s.clock.Now(), visible, 9)
		require.NoError(s.t, err)
		require.Empty(s.t, rearmed, "once only")
	}},
	{"rearm stale without an instant is visible now", func(s *suite) {
		s.stageN(1)
		s.claimOne()
		s.clock.Advance(time.Minute)
		rearmed, err := s.RearmStale(s.ctx, s.clock.Now(), time.Time{}, 9)
		require.NoError(s.t, err)
		require.Equal(s.t, s.clock.Now(), rearmed[0].VisibleAfter)
	}},
	{"a row that finished after the scan stays finished", func(s *suite) {
		s.stageN(1)
		row := s.claimOne()
		s.clock.Advance(time.Minute)
		stale, err := s.ListStale(s.ctx, s.clock.Now(), 9)
		require.NoError(s.t, err)
		require.Len(s.t, stale, 1)
		require.NoError(s.t, s.Complete(s.ctx, row.Ref()))
		rearmed, err := s.RearmStale(s.ctx, s.clock.Now(), time.Time{}, 9)
		require.NoError(s.t, err)
		require.Empty(s.t, rearmed)
		require.Equal(s.t, outbox.Done, s.status(s.key(0)))
	}},
	{"extend is a heartbeat: the row is stale later", func(s *suite) {
		s.stageN(2)
		rows := s.claim(2)
		s.clock.Advance(time.Minute)
		require.NoError(s.t, s.Extend(s.ctx, rows[0].Ref(), outbox.Ref{DispatchKey: rows[1].DispatchKey}))
		stale, err := s.ListStale(s.ctx, s.clock.Now(), 9)
		require.NoError(s.t, err)
		require.Empty(s.t, stale)
		require.Equal(s.t, s.clock.Now(), s.get(s.key(0)).ClaimedAt)
		require.EqualValues(s.t, 1, s.get(s.key(0)).Fence)
	}},
	{"a stale claim that nobody took can be completed but not extended", func(s *suite) {
		s.stageN(1)
		row := s.claimOne()
		s.clock.Advance(time.Minute)
		_, err := s.RearmStale(s.ctx, s.clock.Now(), s.clock.Now().Add(time.Hour), 9)
		require.NoError(s.t, err)
		require.ErrorIs(s.t, s.Extend(s.ctx, row.Ref()), outbox.ErrClaimLost)
		require.NoError(s.t, s.Complete(s.ctx, row.Ref()))
		require.Equal(s.t, outbox.Done, s.status(s.key(0)))
	}},
	{"a zombie cannot touch a row that another has claimed again", func(s *suite) {
		s.stageN(1)
		zombie := s.claimOne()
		s.clock.Advance(time.Minute)
		_, err := s.RearmStale(s.ctx, s.clock.Now(), time.Time{}, 9)
		require.NoError(s.t, err)
		holder := s.claimOne()
		require.Greater(s.t, holder.Fence, zombie.Fence)
		for name, call := range map[string]error{
			"complete": s.Complete(s.ctx, zombie.Ref()),
			"retry":    s.Retry(s.ctx, zombie.Ref(), 1, time.Time{}, errBoom),
			"fail":     s.Fail(s.ctx, zombie.Ref(), errBoom),
			"extend":   s.Extend(s.ctx, zombie.Ref()),
			"cancel":   s.Cancel(s.ctx, zombie.Ref()),
		} {
			require.ErrorIs(s.t, call, outbox.ErrClaimLost, name)
			var lost *outbox.ClaimLostError
			require.ErrorAs(s.t, call, &lost)
			require.Equal(s.t, s.keys(0), lost.DispatchKeys)
		}
		require.Equal(s.t, holder, s.get(s.key(0)))
		require.NoError(s.t, s.Complete(s.ctx, holder.Ref()))
	}},
	{"a fence never repeats", func(s *suite) {
		s.stageN(1)
		seen := map[int64]bool{}
		claim := func() outbox.Row {
			row := s.claimOne()
			require.False(s.t, seen[row.Fence], "fence %d", row.Fence)
			seen[row.Fence] = true
			return row
		}
		require.NoError(s.t, s.Complete(s.ctx, claim().Ref()))
		require.NoError(s.t, s.Rearm(s.ctx, s.row(0)))
		require.NoError(s.t, s.Fail(s.ctx, claim().Ref(), errBoom))
		_, err := s.Requeue(s.ctx, s.key(0))
		require.NoError(s.t, err)
		require.NoError(s.t, s.Retry(s.ctx, claim().Ref(), 1, time.Time{}, nil))
		claim()
		s.clock.Advance(time.Hour)
		_, err = s.RearmStale(s.ctx, s.clock.Now(), time.Time{}, 9)
		require.NoError(s.t, err)
		claim()
		require.NoError(s.t, s.Rearm(s.ctx, s.row(0)))
		claim()
	}},
}
