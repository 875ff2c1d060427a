package outboxtest

import (
	"context"
	"database/sql"
	"math"
	"strings"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

var inputRules = []rule{
	{"a row that cannot be stored is refused with its index, key and field, and nothing is stored", func(s *suite) {
		for _, bad := range []struct {
			field string
			spoil func(*outbox.Row)
		}{
			{"DispatchKey", func(r *outbox.Row) { r.DispatchKey = "a\x00b" }},
			{"DispatchKey", func(r *outbox.Row) { r.DispatchKey = "a\xffb" }},
			{"Namespace", func(r *outbox.Row) { r.Namespace = "\x00" }},
			{"Namespace", func(r *outbox.Row) { r.Namespace = "\xc3\x28" }},
			{"TaskQueue", func(r *outbox.Row) { r.TaskQueue = "q\x00" }},
			{"Node", func(r *outbox.Row) { r.Node = "\xed\xa0\x80" }},
			{"ActivityType", func(r *outbox.Row) { r.ActivityType = "x\x00" }},
			{"ActivityType", func(r *outbox.Row) { r.ActivityType = "" }},
			{"Input.ContentType", func(r *outbox.Row) { r.Input.ContentType = "\x00" }},
			{"LastError", func(r *outbox.Row) { r.LastError = "\xff" }},
			{"WorkflowID", func(r *outbox.Row) { r.WorkflowID = uuid.Nil }},
			{"Ordinal", func(r *outbox.Row) { r.Ordinal = math.MaxInt64 + 1 }},
			{"Status", func(r *outbox.Row) { r.Status = "paused" }},
			{"Status", func(r *outbox.Row) { r.Status = "Pending" }},
			{"ClaimedAt", func(r *outbox.Row) { r.ClaimedAt = s.clock.Now() }},
			{"ClaimedAt", func(r *outbox.Row) { r.Status, r.ClaimedAt = outbox.Done, s.clock.Now() }},
			{"VisibleAfter", func(r *outbox.Row) { r.VisibleAfter = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC) }},
			{"VisibleAfter", func(r *outbox.Row) { r.VisibleAfter = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) }},
			{"VisibleAfter", func(r *outbox.Row) {
				r.VisibleAfter = time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("west", -7200))
			}},
			{"ClaimedAt", func(r *outbox.Row) {
				r.Status, r.ClaimedAt = outbox.Claimed, time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
			}},
		} {
			row := s.row(1)
			row.DispatchKey = "the key"
			bad.spoil(&row)
			check := func(err error) {
				s.t.Helper()
				require.ErrorIs(s.t, err, outbox.ErrInvalid, "%+v", row)
				var invalid *outbox.InvalidError
				require.ErrorAs(s.t, err, &invalid)
				require.Equal(s.t, 1, invalid.Index)
				require.Equal(s.t, row.DispatchKey, invalid.DispatchKey)
				require.Equal(s.t, bad.field, invalid.Field)
				require.NotEmpty(s.t, invalid.Reason)
			}
			_, err := s.Append(s.ctx, s.row(0), row)
			check(err)
			check(s.Rearm(s.ctx, s.row(0), row))
			require.NoError(s.t, s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
				_, err := s.AppendTx(ctx, tx, s.row(0), row)
				check(err)
				check(s.RearmTx(ctx, tx, s.row(0), row))
				return nil
			}))
		}
		require.Empty(s.t, s.rows())
	}},
	{"a key that cannot be is refused in refs, before it could name another row", func(s *suite) {
		row := s.row(0)
		row.DispatchKey = "a"
		s.stage(row)
		s.claimOne()
		for _, key := range []string{"a\x00b", "a\xff"} {
			ref := outbox.Ref{DispatchKey: key}
			for name, err := range map[string]error{
				"complete": s.Complete(s.ctx, outbox.Ref{DispatchKey: "a"}, ref),
				"cancel":   s.Cancel(s.ctx, outbox.Ref{DispatchKey: "a"}, ref),
				"extend":   s.Extend(s.ctx, outbox.Ref{DispatchKey: "a"}, ref),
			} {
				var invalid *outbox.InvalidError
				require.ErrorAs(s.t, err, &invalid, name)
				require.ErrorIs(s.t, err, outbox.ErrInvalid)
				require.Equal(s.t, 1, invalid.Index)
				require.Equal(s.t, key, invalid.DispatchKey)
			}
			require.ErrorIs(s.t, s.Retry(s.ctx, ref, 1, time.Time{}, nil), outbox.ErrInvalid)
			require.ErrorIs(s.t, s.Fail(s.ctx, ref, nil), outbox.ErrInvalid)
			_, err := s.Requeue(s.ctx, "a", key)
			require.ErrorIs(s.t, err, outbox.ErrInvalid)
		}
		require.Equal(s.t, outbox.Claimed, s.status("a"))
	}},
	{"a text that cannot be is refused in scopes and filters", func(s *suite) {
		s.stageN(1)
		for _, text := range []string{"default\x00", "default\xff"} {
			for _, scope := range []outbox.Scope{
				{Namespace: text, TaskQueue: "default"}, {Namespace: "default", TaskQueue: text}, {Namespace: "default", TaskQueue: "default", Node: text},
			} {
				_, err := s.ClaimScoped(s.ctx, scope, 1)
				require.ErrorIs(s.t, err, outbox.ErrInvalid)
			}
			_, err := s.List(s.ctx, outbox.Filter{Namespace: text})
			require.ErrorIs(s.t, err, outbox.ErrInvalid)
			_, err = s.CountInFlight(s.ctx, text)
			require.ErrorIs(s.t, err, outbox.ErrInvalid)
			_, err = s.CountClaimed(s.ctx, text)
			require.ErrorIs(s.t, err, outbox.ErrInvalid)
			_, err = s.CountClaimedByNamespace(s.ctx, "default", text)
			require.ErrorIs(s.t, err, outbox.ErrInvalid)
		}
		_, err := s.List(s.ctx, outbox.Filter{Status: "paused"})
		require.ErrorIs(s.t, err, outbox.ErrInvalid)
	}},
	{"instants that cannot be stored are refused everywhere", func(s *suite) {
		s.stageN(1)
		ref := s.claimOne().Ref()
		far := time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
		require.ErrorIs(s.t, s.Retry(s.ctx, ref, 1, far, nil), outbox.ErrInvalid)
		_, err := s.ListStale(s.ctx, far, 1)
		require.ErrorIs(s.t, err, outbox.ErrInvalid)
		_, err = s.RearmStale(s.ctx, far, time.Time{}, 1)
		require.ErrorIs(s.t, err, outbox.ErrInvalid)
		_, err = s.RearmStale(s.ctx, s.clock.Now(), far, 1)
		require.ErrorIs(s.t, err, outbox.ErrInvalid)
		_, err = s.Purge(s.ctx, far, 1)
		require.ErrorIs(s.t, err, outbox.ErrInvalid)
		require.Equal(s.t, outbox.Claimed, s.status(s.key(0)))
	}},
	{"a nil workflow has no rows to settle", func(s *suite) {
		_, err := s.SettleWorkflow(s.ctx, uuid.Nil)
		require.ErrorIs(s.t, err, outbox.ErrInvalid)
	}},
	{"what no target can hold is too large", func(s *suite) {
		row := s.row(1)
		row.Input.Data = make([]byte, 1<<30)
		_, err := s.Append(s.ctx, s.row(0), row)
		require.ErrorIs(s.t, err, outbox.ErrTooLarge)
		row = s.row(1)
		row.ActivityType = strings.Repeat("x", 1<<20)
		_, err = s.Append(s.ctx, s.row(0), row)
		require.ErrorIs(s.t, err, outbox.ErrTooLarge)
		require.Empty(s.t, s.rows())
	}},
	{"what is no transaction is refused as one", func(s *suite) {
		for _, tx := range []outbox.Tx{nil, (*sql.Tx)(nil), (*sql.Conn)(nil), (*sql.DB)(nil)} {
			_, err := s.AppendTx(s.ctx, tx, s.row(0))
			require.ErrorIs(s.t, err, outbox.ErrInvalid, "%T", tx)
			require.ErrorIs(s.t, s.RearmTx(s.ctx, tx, s.row(0)), outbox.ErrInvalid)
			require.ErrorIs(s.t, s.CompleteTx(s.ctx, tx, outbox.Ref{DispatchKey: "a"}), outbox.ErrInvalid)
			require.ErrorIs(s.t, s.CancelTx(s.ctx, tx, outbox.Ref{DispatchKey: "a"}), outbox.ErrInvalid)
			require.ErrorIs(s.t, s.FailTx(s.ctx, tx, outbox.Ref{DispatchKey: "a"}, nil), outbox.ErrInvalid)
			require.ErrorIs(s.t, s.RetryTx(s.ctx, tx, outbox.Ref{DispatchKey: "a"}, 1, time.Time{}, nil), outbox.ErrInvalid)
			_, err = s.SettleWorkflowTx(s.ctx, tx, s.workflow)
			require.ErrorIs(s.t, err, outbox.ErrInvalid)
		}
	}},
	{"a context that has ended stores nothing", func(s *suite) {
		s.stageN(1)
		ref := s.claimOne().Ref()
		before := s.rows()
		ctx, cancel := context.WithCancel(s.ctx)
		cancel()
		for name, call := range operations(s, ref) {
			require.ErrorIs(s.t, call(ctx), context.Canceled, name)
		}
		require.Equal(s.t, before, s.rows())
	}},
}

// operations are all calls without a Tx that touch the database, on the suite's
// row 0 where they need one.
func operations(s *suite, ref outbox.Ref) map[string]func(ctx context.Context) error {
	scope := outbox.Scope{Namespace: "default", TaskQueue: "default"}
	second := func(_ any, err error) error { return err }
	return map[string]func(context.Context) error{
		"Append": func(ctx context.Context) error { return second(s.Append(ctx, s.row(500))) },
		"Rearm":  func(ctx context.Context) error { return s.Rearm(ctx, s.row(501)) },
		"Update": func(ctx context.Context) error {
			return s.Update(ctx, func(context.Context, outbox.Tx) error { return nil })
		},
		"Claim":                func(ctx context.Context) error { return second(s.Claim(ctx, 1)) },
		"ClaimExcluding":       func(ctx context.Context) error { return second(s.ClaimExcluding(ctx, 1, s.workflow)) },
		"ClaimScoped":          func(ctx context.Context) error { return second(s.ClaimScoped(ctx, scope, 1)) },
		"ClaimScopedExcluding": func(ctx context.Context) error { return second(s.ClaimScopedExcluding(ctx, scope, 1, s.workflow)) },
		"Extend":               func(ctx context.Context) error { return s.Extend(ctx, ref) },
		"ListStale":            func(ctx context.Context) error { return second(s.ListStale(ctx, s.clock.Now(), 1)) },
		"RearmStale": func(ctx context.Context) error {
			return second(s.RearmStale(ctx, s.clock.Now().Add(1), time.Time{}, 1))
		},
		"Complete":                func(ctx context.Context) error { return s.Complete(ctx, ref) },
		"Retry":                   func(ctx context.Context) error { return s.Retry(ctx, ref, 1, time.Time{}, errBoom) },
		"Fail":                    func(ctx context.Context) error { return s.Fail(ctx, ref, errBoom) },
		"Cancel":                  func(ctx context.Context) error { return s.Cancel(ctx, ref) },
		"SettleWorkflow":          func(ctx context.Context) error { return second(s.SettleWorkflow(ctx, s.workflow)) },
		"Requeue":                 func(ctx context.Context) error { return second(s.Requeue(ctx, "a")) },
		"Purge":                   func(ctx context.Context) error { return second(s.Purge(ctx, s.clock.Now(), 1)) },
		"Get":                     func(ctx context.Context) error { return second(s.Get(ctx, s.key(0))) },
		"State":                   func(ctx context.Context) error { return second(s.State(ctx, s.key(0))) },
		"List":                    func(ctx context.Context) error { return second(s.List(ctx, outbox.Filter{})) },
		"CountInFlight":           func(ctx context.Context) error { return second(s.CountInFlight(ctx, "default")) },
		"CountClaimed":            func(ctx context.Context) error { return second(s.CountClaimed(ctx, "default")) },
		"CountClaimedByNamespace": func(ctx context.Context) error { return second(s.CountClaimedByNamespace(ctx, "default")) },
		"PendingRoutes":           func(ctx context.Context) error { return second(s.PendingRoutes(ctx)) },
		"UnsettledWorkflows":      func(ctx context.Context) error { return second(s.UnsettledWorkflows(ctx)) },
		"NextVisible": func(ctx context.Context) error {
			_, _, err := s.NextVisible(ctx)
			return err
		},
		"NextVisibleAfter": func(ctx context.Context) error {
			_, _, err := s.NextVisibleAfter(ctx, s.clock.Now())
			return err
		},
		"Rows": func(ctx context.Context) error {
			for _, err := range s.Rows(ctx, outbox.Filter{}) {
				return err
			}
			return nil
		},
		"Watch":   func(ctx context.Context) error { return second(s.Watch(ctx)) },
		"Migrate": s.Migrate,
	}
}
