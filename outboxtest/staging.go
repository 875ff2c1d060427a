package outboxtest

import (
	"bytes"
	"context"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

var stagingRules = []rule{
	{"append fills in what is zero", func(s *suite) {
		s.stage(outbox.Row{WorkflowID: s.workflow, Ordinal: 7, ActivityType: "send"})
		require.Equal(s.t, outbox.Row{
			ID:           1,
			DispatchKey:  s.workflow.String() + ":7",
			WorkflowID:   s.workflow,
			Ordinal:      7,
			Namespace:    "default",
			TaskQueue:    "default",
			ActivityType: "send",
			Status:       outbox.Pending,
			VisibleAfter: s.clock.Now(),
			CreatedAt:    s.clock.Now(),
		}, s.get(s.key(7)))
	}},
	{"append stores everything that is given", func(s *suite) {
		given := outbox.Row{
			DispatchKey:  "order 17",
			WorkflowID:   s.workflow,
			Ordinal:      3,
			RunID:        uuid.NullUUID{UUID: uuid.New(), Valid: true},
			Namespace:    "tenant",
			TaskQueue:    "mail",
			Node:         "node-1",
			ActivityType: "send",
			Input:        outbox.Payload{ContentType: "application/octet-stream", Data: []byte{0, 1, 255}},
			Status:       outbox.Pending,
			Attempt:      4,
			VisibleAfter: s.clock.Now().Add(time.Hour),
			CreatedAt:    s.clock.Now().Add(-time.Hour),
		}
		s.stage(given)
		given.ID = 1
		require.Equal(s.t, given, s.get("order 17"))
	}},
	{"a row may come claimed, with fence 1", func(s *suite) {
		row := s.row(0)
		row.Status, row.ClaimedAt = outbox.Claimed, s.clock.Now().Add(-time.Minute)
		timeless := s.row(1)
		timeless.Status = outbox.Claimed
		s.stage(row, timeless)
		require.Empty(s.t, s.claim(9))
		got := s.get(s.key(0))
		require.Equal(s.t, outbox.Claimed, got.Status)
		require.Equal(s.t, row.ClaimedAt, got.ClaimedAt)
		require.EqualValues(s.t, 1, got.Fence)
		require.Zero(s.t, s.get(s.key(1)).ClaimedAt)
		require.NoError(s.t, s.Complete(s.ctx, got.Ref()))
	}},
	{"a row may come settled, and is finished then", func(s *suite) {
		row := s.row(0)
		row.Status, row.LastError = outbox.Failed, "gave up"
		s.stage(row)
		got := s.get(s.key(0))
		require.Equal(s.t, s.clock.Now(), got.FinishedAt)
		require.Equal(s.t, "gave up", got.LastError)
	}},
	{"append leaves a known key alone, whatever its state, and reports it once in the order given", func(s *suite) {
		s.stageN(3)
		claimed := s.claim(2)
		require.NoError(s.t, s.Complete(s.ctx, claimed[0].Ref()))
		known := s.rows()

		other := s.row(1)
		other.ActivityType, other.Attempt = "other", 9
		duplicates, err := s.Append(s.ctx, s.row(2), other, s.row(3), s.row(0), other)
		require.NoError(s.t, err)
		require.Equal(s.t, s.keys(2, 1, 0), duplicates)
		require.Equal(s.t, known, s.rows()[:3])
		require.Len(s.t, s.rows(), 4)
	}},
	{"the same key twice in one call is stored once", func(s *suite) {
		again := s.row(0)
		again.ActivityType = "again"
		s.stage(s.row(0), again)
		require.Len(s.t, s.rows(), 1)
		require.Equal(s.t, "send", s.rows()[0].ActivityType)
	}},
	{"ids follow the staging order", func(s *suite) {
		s.stageN(250)
		s.stage(s.row(250))
		for i, row := range s.rows() {
			require.Equal(s.t, s.key(i), row.DispatchKey)
			require.EqualValues(s.t, i+1, row.ID)
		}
	}},
	{"a broken constraint is an error, never a duplicate", func(s *suite) {
		s.exec(`CREATE TRIGGER picky BEFORE INSERT ON outbox WHEN NEW.ordinal = 2 BEGIN SELECT RAISE(ABORT, 'picky'); END`)
		_, err := s.Append(s.ctx, s.row(0), s.row(1), s.row(2))
		require.ErrorContains(s.t, err, "picky")
		require.Empty(s.t, s.rows())
	}},
	{"a row that a trigger drops without a word is an error, not a duplicate", func(s *suite) {
		s.exec(`CREATE TRIGGER dropper BEFORE INSERT ON outbox WHEN NEW.ordinal = 1 BEGIN SELECT RAISE(IGNORE); END`)
		s.stage(s.row(0))
		_, err := s.Append(s.ctx, s.row(0), s.row(1), s.row(2))
		require.Error(s.t, err)
		require.Equal(s.t, s.keys(0), keysOf(s.rows()))
	}},
	{"a row that a trigger drops because its key is known is a duplicate", func(s *suite) {
		s.exec(`CREATE TRIGGER dropper BEFORE INSERT ON outbox
			WHEN EXISTS (SELECT 1 FROM outbox WHERE dispatch_key = NEW.dispatch_key) BEGIN SELECT RAISE(IGNORE); END`)
		s.stage(s.row(1))
		for _, want := range [][]string{s.keys(1), s.keys(0, 1, 2)} {
			duplicates, err := s.Append(s.ctx, s.row(0), s.row(1), s.row(2))
			require.NoError(s.t, err)
			require.Equal(s.t, want, duplicates)
		}
		require.ElementsMatch(s.t, s.keys(0, 1, 2), keysOf(s.rows()))
	}},
	{"a row that a trigger keeps as it was is never said to be rearmed", func(s *suite) {
		s.stageN(2)
		s.claim(2)
		s.exec(`CREATE TRIGGER keeper BEFORE UPDATE ON outbox WHEN OLD.ordinal = 1 BEGIN SELECT RAISE(IGNORE); END`)
		require.Error(s.t, s.Rearm(s.ctx, s.row(0), s.row(1)))
		s.clock.Advance(time.Hour)
		rearmed, err := s.RearmStale(s.ctx, s.clock.Now(), time.Time{}, 9)
		require.NoError(s.t, err)
		require.Equal(s.t, s.keys(0), keysOf(rearmed))
		require.Equal(s.t, outbox.Claimed, s.status(s.key(1)))
		s.exec(`DROP TRIGGER keeper`)
	}},
	{"nothing to do is done", func(s *suite) {
		duplicates, err := s.Append(s.ctx)
		require.NoError(s.t, err)
		require.Empty(s.t, duplicates)
		require.NoError(s.t, s.Rearm(s.ctx))
		require.NoError(s.t, s.Complete(s.ctx))
		require.NoError(s.t, s.Cancel(s.ctx))
		require.NoError(s.t, s.Extend(s.ctx))
		n, err := s.Requeue(s.ctx)
		require.NoError(s.t, err)
		require.Zero(s.t, n)
	}},
	{"rearm inserts an unknown row as pending with all its fields", func(s *suite) {
		row := s.row(0)
		row.RunID = uuid.NullUUID{UUID: uuid.New(), Valid: true}
		row.Attempt, row.Node = 3, "node-1"
		row.Status, row.ClaimedAt = outbox.Claimed, s.clock.Now()
		row.LastError, row.FinishedAt = "earlier", s.clock.Now()
		row.Input.Data = bytes.Repeat([]byte("x"), 5000)
		require.NoError(s.t, s.Rearm(s.ctx, row))
		got := s.get(s.key(0))
		require.Equal(s.t, outbox.Pending, got.Status)
		require.Equal(s.t, row.RunID, got.RunID)
		require.EqualValues(s.t, 3, got.Attempt)
		require.Equal(s.t, "node-1", got.Node)
		require.Equal(s.t, row.Input, got.Input)
		require.Equal(s.t, s.clock.Now(), got.VisibleAfter)
		require.Zero(s.t, got.ClaimedAt)
		require.Zero(s.t, got.FinishedAt)
		require.Empty(s.t, got.LastError)
		require.Zero(s.t, got.Fence)
	}},
	{"rearm takes a known row back from any state and loses its claim", func(s *suite) {
		for i, bring := range []func(outbox.Ref) error{
			nil, // pending
			func(outbox.Ref) error { return nil },
			func(ref outbox.Ref) error { return s.Complete(s.ctx, ref) },
			func(ref outbox.Ref) error { return s.Fail(s.ctx, ref, errBoom) },
			func(ref outbox.Ref) error { return s.Cancel(s.ctx, ref) },
			func(ref outbox.Ref) error { return s.Retry(s.ctx, ref, 5, s.clock.Now().Add(time.Hour), errBoom) },
		} {
			s.stage(s.row(i))
			if bring != nil {
				require.NoError(s.t, bring(s.claimOne().Ref()))
			}
			before := s.get(s.key(i))

			given := s.row(i)
			given.Attempt, given.ActivityType, given.VisibleAfter = 77, "other", s.clock.Now().Add(time.Minute)
			require.NoError(s.t, s.Rearm(s.ctx, given, given))
			want := before
			want.Status, want.VisibleAfter, want.Fence = outbox.Pending, given.VisibleAfter, before.Fence+1
			want.ClaimedAt, want.FinishedAt, want.LastError = time.Time{}, time.Time{}, ""
			require.Equal(s.t, want, s.get(s.key(i)))
			if bring != nil {
				require.ErrorIs(s.t, s.Complete(s.ctx, before.Ref()), outbox.ErrClaimLost)
			}
		}
	}},
	{"the Tx forms stage with the caller's transaction or not at all", func(s *suite) {
		s.exec(`CREATE TABLE history (event TEXT)`)
		stage := func(ordinal int, outcome error) error {
			return s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
				if _, err := tx.ExecContext(ctx, `INSERT INTO history VALUES ('scheduled')`); err != nil {
					return err
				}
				if _, err := s.AppendTx(ctx, tx, s.row(ordinal)); err != nil {
					return err
				}
				if err := s.RearmTx(ctx, tx, s.row(ordinal+1)); err != nil {
					return err
				}
				return outcome
			})
		}
		require.NoError(s.t, stage(0, nil))
		require.Equal(s.t, errBoom, stage(10, errBoom))
		require.Equal(s.t, s.keys(0, 1), keysOf(s.rows()))
		require.Equal(s.t, 1, s.count(`SELECT count(*) FROM history`))
	}},
	{"a Tx form that fails half-way leaves the transaction as it was before the call", func(s *suite) {
		s.exec(`CREATE TRIGGER picky BEFORE INSERT ON outbox WHEN NEW.ordinal = 150 BEGIN SELECT RAISE(ABORT, 'picky'); END`)
		s.stage(s.row(1000))
		require.NoError(s.t, s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
			if _, err := s.AppendTx(ctx, tx, s.row(0)); err != nil {
				return err
			}
			var many []outbox.Row
			for i := range 200 {
				many = append(many, s.row(1+i))
			}
			_, err := s.AppendTx(ctx, tx, many...) // the second statement fails
			require.ErrorContains(s.t, err, "picky")
			require.ErrorContains(s.t, s.RearmTx(ctx, tx, many...), "picky")
			_, err = s.AppendTx(ctx, tx, s.row(2000))
			return err
		}))
		require.Equal(s.t, s.keys(1000, 0, 2000), keysOf(s.rows()))
	}},
	{"what is left of a row that was replaced is never another's payload", func(s *suite) {
		large := s.row(0)
		large.Input.Data = bytes.Repeat([]byte("x"), 3000)
		s.stage(large)
		_ = s.tryExec(`PRAGMA recursive_triggers = OFF`) // then a REPLACE fires no delete trigger; a server has its own mind
		s.exec(`INSERT OR REPLACE INTO outbox (dispatch_key, workflow_id, ordinal, activity_type, input, status, attempt, visible_after, content_type)
			SELECT dispatch_key, workflow_id, ordinal, activity_type, CAST('new' AS BLOB), status, attempt, visible_after, content_type FROM outbox`)
		require.Equal(s.t, "new", string(s.get(s.key(0)).Input.Data))
		s.exec(`DELETE FROM outbox`)
		s.stage(s.row(1))
		require.Equal(s.t, "input 1", string(s.get(s.key(1)).Input.Data))
		s.exec(`DELETE FROM outbox`)
		large = s.row(2)
		large.Input.Data = bytes.Repeat([]byte("y"), 3000)
		s.stage(large)
		require.Equal(s.t, large.Input, s.get(s.key(2)).Input)
		s.exec(`DELETE FROM outbox_payload WHERE id NOT IN (SELECT id FROM outbox WHERE input IS NULL)`)
	}},
	{"large payloads lie beside the rows and go with them", func(s *suite) {
		var rows []outbox.Row
		for i, size := range []int{0, 1, 1024, 1025, 100_000} {
			row := s.row(i)
			row.Input.Data = bytes.Repeat([]byte{byte(i)}, size)
			rows = append(rows, row)
		}
		s.stage(rows...)
		require.Equal(s.t, 2, s.count(`SELECT count(*) FROM outbox_payload`))
		for i, row := range s.claim(10) {
			require.True(s.t, bytes.Equal(rows[i].Input.Data, row.Input.Data), "row %d", i)
			require.True(s.t, bytes.Equal(rows[i].Input.Data, s.get(row.DispatchKey).Input.Data))
		}
		duplicates, err := s.Append(s.ctx, rows...)
		require.NoError(s.t, err)
		require.Len(s.t, duplicates, 5)
		require.NoError(s.t, s.Rearm(s.ctx, rows...))
		require.Equal(s.t, 2, s.count(`SELECT count(*) FROM outbox_payload`))

		s.exec(`DELETE FROM outbox WHERE ordinal = 4`) // by the program, past the library
		require.Equal(s.t, 1, s.count(`SELECT count(*) FROM outbox_payload`))
		err = s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
			_, err := tx.ExecContext(ctx, `DELETE FROM outbox_payload`)
			return err
		})
		require.ErrorContains(s.t, err, "deleted with its row")
		s.exec(`UPDATE outbox SET id = 99 WHERE ordinal = 3`)
		require.Len(s.t, s.get(s.key(3)).Input.Data, 1025)
		s.exec(`UPDATE outbox SET input = CAST('new' AS BLOB) WHERE ordinal = 3`)
		require.Equal(s.t, "new", string(s.get(s.key(3)).Input.Data))
		require.Equal(s.t, 0, s.count(`SELECT count(*) FROM outbox_payload`))
	}},
}
