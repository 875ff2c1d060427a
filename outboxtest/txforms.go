package outboxtest

import (
	"context"
	"errors"
	"time"

	"example.com/outbox"
	"github.com/stretchr/testify/require"
)

var txFormRules = []rule{
	{"the Tx forms settle with the caller's transaction or not at all", func(s *suite) {
		s.exec(`CREATE TABLE history (event TEXT)`)
		s.stageN(7)
		rows := s.claim(6)
		at := s.clock.Now().Add(time.Hour)
		settle := func(outcome error) error {
			return s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO history VALUES ('settled')`)
				require.NoError(s.t, err)
				require.NoError(s.t, s.CompleteTx(ctx, tx, rows[0].Ref()))
				require.NoError(s.t, s.FailTx(ctx, tx, rows[1].Ref(), errBoom))
				require.NoError(s.t, s.RetryTx(ctx, tx, rows[2].Ref(), 4, at, errBoom))
				require.NoError(s.t, s.CancelTx(ctx, tx, rows[3].Ref(), outbox.Ref{DispatchKey: rows[4].DispatchKey}))
				require.NoError(s.t, s.CompleteTx(ctx, tx, rows[0].Ref()), "repeated, it is a success")
				keys, err := s.SettleWorkflowTx(ctx, tx, s.workflow)
				require.NoError(s.t, err)
				require.Equal(s.t, s.keys(2, 5, 6), keys)
				require.NoError(s.t, s.RearmTx(ctx, tx, s.row(6)))
				return outcome
			})
		}
		require.ErrorIs(s.t, settle(errBoom), errBoom)
		RequireCounts(s.t, s.Store, map[outbox.Status]int{outbox.Pending: 1, outbox.Claimed: 6})
		require.Zero(s.t, s.count(`SELECT count(*) FROM history`))

		require.NoError(s.t, settle(nil))
		RequireCounts(s.t, s.Store, map[outbox.Status]int{outbox.Pending: 1, outbox.Done: 1, outbox.Failed: 1, outbox.Cancelled: 4})
		require.Equal(s.t, 1, s.count(`SELECT count(*) FROM history`))
		failed, retried := s.get(s.key(1)), s.get(s.key(2))
		require.Equal(s.t, "boom", failed.LastError)
		require.Equal(s.t, s.clock.Now(), failed.FinishedAt)
		require.Equal(s.t, outbox.Cancelled, retried.Status)
		require.EqualValues(s.t, 4, retried.Attempt)
		require.Equal(s.t, at, retried.VisibleAfter)
	}},
	{"a lost claim in a Tx form leaves the others settled, and the transaction of use", func(s *suite) {
		s.stageN(6)
		rows := s.claim(6)
		require.NoError(s.t, s.Cancel(s.ctx, rows[0].Ref()))
		require.NoError(s.t, s.Complete(s.ctx, rows[3].Ref()))
		require.NoError(s.t, s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
			for name, err := range map[string]error{
				"CompleteTx": s.CompleteTx(ctx, tx, rows[0].Ref(), rows[1].Ref()),
				"FailTx":     s.FailTx(ctx, tx, rows[0].Ref(), errBoom),
				"RetryTx":    s.RetryTx(ctx, tx, rows[0].Ref(), 1, time.Time{}, errBoom),
			} {
				var lost *outbox.ClaimLostError
				require.ErrorAs(s.t, err, &lost, name)
				require.Equal(s.t, s.keys(0), lost.DispatchKeys, name)
			}
			require.ErrorIs(s.t, s.CancelTx(ctx, tx, rows[3].Ref(), rows[2].Ref()), outbox.ErrClaimLost)
			return s.FailTx(ctx, tx, rows[4].Ref(), errBoom)
		}))
		require.Equal(s.t, outbox.Cancelled, s.status(s.key(0)))
		require.Empty(s.t, s.get(s.key(0)).LastError)
		RequireCounts(s.t, s.Store, map[outbox.Status]int{outbox.Claimed: 1, outbox.Done: 2, outbox.Failed: 1, outbox.Cancelled: 2})
	}},
	{"a Tx form that fails leaves the transaction as it was before the call", func(s *suite) {
		s.exec(`CREATE TRIGGER picky BEFORE UPDATE ON outbox WHEN OLD.ordinal = 1 BEGIN SELECT RAISE(ABORT, 'picky'); END`)
		s.exec(`CREATE TABLE history (event TEXT)`)
		s.stage(s.row(0), s.row(2))
		rows := s.claim(2)
		s.stage(s.row(1))
		picky := outbox.Ref{DispatchKey: s.key(1)}
		require.NoError(s.t, s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO history VALUES ('before')`)
			require.NoError(s.t, err)
			require.ErrorContains(s.t, s.CompleteTx(ctx, tx, rows[0].Ref(), picky), "picky")
			require.ErrorContains(s.t, s.CancelTx(ctx, tx, rows[0].Ref(), picky), "picky")
			require.ErrorContains(s.t, s.FailTx(ctx, tx, picky, errBoom), "picky")
			require.ErrorContains(s.t, s.RetryTx(ctx, tx, picky, 1, time.Time{}, errBoom), "picky")
			require.ErrorContains(s.t, s.RearmTx(ctx, tx, s.row(0), s.row(1)), "picky")
			_, err = s.SettleWorkflowTx(ctx, tx, s.workflow)
			require.ErrorContains(s.t, err, "picky")
			return s.CompleteTx(ctx, tx, rows[1].Ref())
		}))
		RequireCounts(s.t, s.Store, map[outbox.Status]int{outbox.Pending: 1, outbox.Claimed: 1, outbox.Done: 1})
		require.Equal(s.t, rows[0], s.get(s.key(0)))
		require.Equal(s.t, 1, s.count(`SELECT count(*) FROM history`))
	}},
	{"a Tx form checks its input before it touches the transaction", func(s *suite) {
		bad := outbox.Ref{DispatchKey: "a\x00"}
		require.NoError(s.t, s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
			blank := s.row(0)
			blank.ActivityType = ""
			_, appendErr := s.AppendTx(ctx, tx, s.row(1), blank)
			for name, err := range map[string]error{
				"AppendTx":   appendErr,
				"RearmTx":    s.RearmTx(ctx, tx, s.row(1), blank),
				"CompleteTx": s.CompleteTx(ctx, tx, bad),
				"CancelTx":   s.CancelTx(ctx, tx, bad),
				"FailTx":     s.FailTx(ctx, tx, bad, errBoom),
				"RetryTx":    s.RetryTx(ctx, tx, bad, 1, time.Time{}, errBoom),
				"RetryTx, of a year that cannot be stored": s.RetryTx(ctx, tx, outbox.Ref{DispatchKey: "a"}, 1, time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC), nil),
			} {
				require.ErrorIs(s.t, err, outbox.ErrInvalid, name)
			}
			_, err := s.SettleWorkflowTx(ctx, tx, [16]byte{})
			require.ErrorIs(s.t, err, outbox.ErrInvalid)
			return errors.Join(s.CompleteTx(ctx, tx), s.CancelTx(ctx, tx), s.RearmTx(ctx, tx))
		}))
		require.Empty(s.t, s.rows())
	}},
}
