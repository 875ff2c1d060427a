package outboxtest

import (
	"context"
	"errors"
	"time"

	"example.com/outbox"
	"github.com/stretchr/testify/require"
)

// woken reports whether a subscriber was told something. Calls tell it before
// they return.
func woken(wake <-chan struct{}) bool {
	select {
	case <-wake:
		return true
	default:
		return false
	}
}

var wakingRules = []rule{
	{"next visible after is when the next pending row falls due, past those that were due before", func(s *suite) {
		start := s.clock.Now()
		for i, after := range []time.Duration{time.Minute, -time.Hour, 2 * time.Minute, 2 * time.Minute} {
			row := s.row(i)
			row.VisibleAfter = start.Add(after)
			s.stage(row)
		}
		next := func(after time.Duration) time.Duration {
			at, ok, err := s.NextVisibleAfter(s.ctx, start.Add(after))
			require.NoError(s.t, err)
			require.Equal(s.t, ok, !at.IsZero())
			if !ok {
				return 0
			}
			require.Equal(s.t, time.UTC, at.Location())
			return at.Sub(start)
		}
		require.Equal(s.t, -time.Hour, next(-2*time.Hour))
		require.Equal(s.t, time.Minute, next(-time.Hour), "strictly after")
		require.Equal(s.t, time.Minute, next(time.Minute-1))
		require.Equal(s.t, 2*time.Minute, next(time.Minute))
		require.Zero(s.t, next(2*time.Minute), "there is none")
		s.claim(1)
		require.Equal(s.t, time.Minute, next(-2*time.Hour), "claimed rows are not waited for")
		_, err := s.SettleWorkflow(s.ctx, s.workflow)
		require.NoError(s.t, err)
		require.Zero(s.t, next(-2*time.Hour), "nor are settled ones")
	}},
	{"next visible after refuses an instant that cannot be stored", func(s *suite) {
		for _, at := range []time.Time{{}, time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)} {
			_, ok, err := s.NextVisibleAfter(s.ctx, at)
			if at.IsZero() && err == nil { // the year 1 can be stored
				continue
			}
			require.ErrorIs(s.t, err, outbox.ErrInvalid)
			require.False(s.t, ok)
		}
	}},
	{"a subscriber is told what may let a row be claimed, once it is committed, and nothing else", func(s *suite) {
		wake, cancel := s.Subscribe()
		other, cancelOther := s.Subscribe()
		defer cancelOther()
		require.False(s.t, woken(wake))
		ref := func() outbox.Ref {
			s.t.Helper()
			ref := s.claim(1)[0].Ref()
			require.False(s.t, woken(wake), "a claim")
			return ref
		}
		var held outbox.Ref
		in := func(fn func(ctx context.Context, tx outbox.Tx) error) func() error {
			return func() error {
				return s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
					err := fn(ctx, tx)
					if woken(wake) {
						s.t.Error("woken before the commit")
					}
					return err
				})
			}
		}
		for _, step := range []struct {
			name  string
			wakes bool
			call  func() error
		}{
			{"Append", true, func() error { _, err := s.Append(s.ctx, s.row(0)); return err }},
			{"Extend", false, func() error { held = ref(); return s.Extend(s.ctx, held) }},
			{"Retry", true, func() error { return s.Retry(s.ctx, held, 1, time.Time{}, nil) }},
			{"Fail", false, func() error { return s.Fail(s.ctx, ref(), errBoom) }},
			{"Requeue", true, func() error { _, err := s.Requeue(s.ctx, s.key(0)); return err }},
			{"Cancel", false, func() error { return s.Cancel(s.ctx, ref()) }},
			{"Rearm", true, func() error { return s.Rearm(s.ctx, s.row(0)) }},
			{"RearmStale", true, func() error {
				ref()
				s.clock.Advance(time.Minute)
				_, err := s.RearmStale(s.ctx, s.clock.Now(), time.Time{}, 1)
				return err
			}},
			{"RetryTx", true, func() error {
				held := ref()
				return in(func(ctx context.Context, tx outbox.Tx) error { return s.RetryTx(ctx, tx, held, 1, time.Time{}, nil) })()
			}},
			{"CompleteTx", false, func() error {
				held := ref()
				return in(func(ctx context.Context, tx outbox.Tx) error { return s.CompleteTx(ctx, tx, held) })()
			}},
			{"AppendTx", true, in(func(ctx context.Context, tx outbox.Tx) error { _, err := s.AppendTx(ctx, tx, s.row(1)); return err })},
			{"RearmTx", true, in(func(ctx context.Context, tx outbox.Tx) error { return s.RearmTx(ctx, tx, s.row(1)) })},
			{"Update with nothing in it", false, in(func(context.Context, outbox.Tx) error { return nil })},
			{"Update that fails", false, func() error {
				err := in(func(ctx context.Context, tx outbox.Tx) error {
					_, err := s.AppendTx(ctx, tx, s.row(2))
					return errors.Join(err, errBoom)
				})()
				require.ErrorIs(s.t, err, errBoom)
				return nil
			}},
			{"SettleWorkflow", false, func() error { _, err := s.SettleWorkflow(s.ctx, s.workflow); return err }},
			{"Purge", false, func() error { _, err := s.Purge(s.ctx, s.clock.Now().Add(1), 9); return err }},
			{"List", false, func() error { _, err := s.List(s.ctx, outbox.Filter{}); return err }},
		} {
			require.NoError(s.t, step.call(), step.name)
			require.Equal(s.t, step.wakes, woken(wake), step.name)
			require.False(s.t, woken(wake), "%s: once", step.name)
		}
		require.True(s.t, woken(other), "each has its own, and many that were not received are one")
		require.False(s.t, woken(other))
		cancel()
		cancel()
		s.stage(s.row(3))
		require.False(s.t, woken(wake), "cancelled")
		require.True(s.t, woken(other))
	}},
	{"a watch notices what is committed, or says that it cannot", func(s *suite) {
		watch, err := s.Watch(s.ctx)
		if errors.Is(err, errors.ErrUnsupported) {
			require.Nil(s.t, watch)
			s.stageN(1)
			require.Len(s.t, s.claim(1), 1, "the store works on")
			return
		}
		require.NoError(s.t, err)
		changed := func() bool {
			s.t.Helper()
			changed, err := watch.Changed(s.ctx)
			require.NoError(s.t, err)
			return changed
		}
		require.False(s.t, changed())
		s.stageN(1)
		require.True(s.t, changed())
		require.False(s.t, changed(), "once")
		require.Empty(s.t, s.claim(0))
		require.Len(s.t, s.rows(), 1)
		require.False(s.t, changed(), "nothing was written")
		require.NoError(s.t, s.Complete(s.ctx, s.claimOne().Ref()))
		require.True(s.t, changed(), "many are one")
		require.ErrorIs(s.t, s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
			_, err := s.AppendTx(ctx, tx, s.row(1))
			return errors.Join(err, errBoom)
		}), errBoom)
		require.False(s.t, changed(), "nothing was committed")

		ended, cancel := context.WithCancel(s.ctx)
		cancel()
		s.stage(s.row(2))
		_, err = watch.Changed(ended)
		if err != nil { // an error does not count as asked
			require.ErrorIs(s.t, err, context.Canceled)
			require.True(s.t, changed())
		}
		require.NoError(s.t, watch.Close())
		require.NoError(s.t, watch.Close())
		_, err = watch.Changed(s.ctx)
		require.ErrorIs(s.t, err, outbox.ErrClosed)
		s.stage(s.row(3))
	}},
}
