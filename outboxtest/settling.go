package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

var settlingRules = []rule{
	{"lost refs are named once, in order, after the others were stored", func(s *suite) {
		s.stageN(5)
		rows := s.claim(5)
		require.NoError(s.t, s.Cancel(s.ctx, rows[1].Ref(), rows[3].Ref()))
		unknown := outbox.Ref{DispatchKey: "nobody", Fence: 3}
		err := s.Complete(s.ctx, rows[3].Ref(), rows[0].Ref(), unknown, rows[1].Ref(), rows[3].Ref(), rows[2].Ref())
		var lost *outbox.ClaimLostError
		require.ErrorAs(s.t, err, &lost)
		require.ErrorIs(s.t, err, outbox.ErrClaimLost)
		require.Equal(s.t, []string{s.key(3), "nobody", s.key(1)}, lost.DispatchKeys)
		RequireCounts(s.t, s.Store, map[outbox.Status]int{outbox.Done: 2, outbox.Cancelled: 2, outbox.Claimed: 1})
	}},
	{"an unfenced ref to a settled row or to none is a silent no-op", func(s *suite) {
		s.stageN(1)
		require.NoError(s.t, s.Cancel(s.ctx, s.claimOne().Ref()))
		require.NoError(s.t, s.Complete(s.ctx, outbox.Ref{DispatchKey: s.key(0)}, outbox.Ref{DispatchKey: "nobody"}, outbox.Ref{}))
		require.NoError(s.t, s.Retry(s.ctx, outbox.Ref{DispatchKey: "nobody"}, 1, time.Time{}, nil))
		require.Equal(s.t, outbox.Cancelled, s.status(s.key(0)))
	}},
	{"of one key with two fences, only the right one is a success", func(s *suite) {
		s.stageN(1)
		row := s.claimOne()
		err := s.Complete(s.ctx, outbox.Ref{DispatchKey: row.DispatchKey, Fence: 7}, row.Ref(), outbox.Ref{DispatchKey: row.DispatchKey})
		var lost *outbox.ClaimLostError
		require.ErrorAs(s.t, err, &lost)
		require.Equal(s.t, s.keys(0), lost.DispatchKeys)
		require.Equal(s.t, outbox.Done, s.status(s.key(0)))
	}},
	{"a retry waits for its instant and keeps attempt and cause", func(s *suite) {
		s.stageN(1)
		row := s.claimOne()
		at := s.clock.Now().Add(time.Second)
		require.NoError(s.t, s.Retry(s.ctx, row.Ref(), 1, at, errBoom))
		require.NoError(s.t, s.Retry(s.ctx, row.Ref(), 2, at, errBoom), "repeated, it applies again")
		require.Empty(s.t, s.claim(1))
		s.clock.Set(at)
		again := s.claimOne()
		require.EqualValues(s.t, 2, again.Attempt)
		require.Equal(s.t, "boom", again.LastError)
		require.NoError(s.t, s.Retry(s.ctx, again.Ref(), 2, time.Time{}, nil))
		require.Empty(s.t, s.get(s.key(0)).LastError)
		require.Len(s.t, s.claim(1), 1, "without an instant it is visible now")
	}},
	{"a cause is cleaned and cut to 8 KiB", func(s *suite) {
		for i, cause := range []string{
			"a\x00b", "\xff\xfe broken", strings.Repeat("é", 8000), strings.Repeat("x", 8191) + "é", strings.Repeat("\xff\x00", 1<<20),
		} {
			s.stage(s.row(i))
			require.NoError(s.t, s.Fail(s.ctx, s.claimOne().Ref(), errors.New(cause)))
			got := s.get(s.key(i)).LastError
			require.NotEmpty(s.t, got)
			require.LessOrEqual(s.t, len(got), 8<<10)
			require.True(s.t, utf8.ValidString(got))
			require.NotContains(s.t, got, "\x00")
		}
		require.Equal(s.t, "a\uFFFDb", s.get(s.key(0)).LastError)
	}},
	{"a cause whose methods panic settles its row with what can be told", func(s *suite) {
		for i, cause := range []struct {
			err  error
			want string
		}{
			{(*os.PathError)(nil), "PathError"},
			{(*url.Error)(nil), "url.Error"},
			{(*strange)(nil), "strange"},
			{&strange{panics: "no text"}, "no text"},
			{&strange{panics: errBoom}, "boom"},
			{&strange{panics: stringer{}}, "strange"},
			{&strange{panics: &strange{panics: stringer{}}}, "strange"},
			{fmt.Errorf("wrapped: %w", (*os.PathError)(nil)), "wrapped"},
			{errors.Join(errBoom), "boom"},
		} {
			s.stage(s.row(4*i), s.row(4*i+1), s.row(4*i+2), s.row(4*i+3))
			rows := s.claim(4)
			later := s.clock.Now().Add(time.Hour)
			require.NoError(s.t, s.Fail(s.ctx, rows[0].Ref(), cause.err))
			require.NoError(s.t, s.Retry(s.ctx, rows[1].Ref(), 1, later, cause.err))
			require.NoError(s.t, s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
				return errors.Join(s.FailTx(ctx, tx, rows[2].Ref(), cause.err), s.RetryTx(ctx, tx, rows[3].Ref(), 1, later, cause.err))
			}))
			for j, want := range []outbox.Status{outbox.Failed, outbox.Pending, outbox.Failed, outbox.Pending} {
				row := s.get(rows[j].DispatchKey)
				require.Equal(s.t, want, row.Status)
				require.Contains(s.t, row.LastError, cause.want)
			}
		}
	}},
	{"a clock that panics reaches its caller and leaves nothing behind", func(s *suite) {
		s.stageN(2)
		ref := s.claim(1)[0].Ref()
		before := s.rows()
		s.clock.breakWith("no time")
		for range 10 { // more than there are connections
			for name, call := range map[string]func(){
				"Append":   func() { _, _ = s.Append(s.ctx, s.row(9)) },
				"Claim":    func() { _, _ = s.Claim(s.ctx, 1) },
				"Complete": func() { _ = s.Complete(s.ctx, ref) },
				"Fail":     func() { _ = s.Fail(s.ctx, ref, errBoom) },
				"Routes":   func() { _, _ = s.PendingRoutes(s.ctx) },
				"CompleteTx": func() {
					_ = s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error { return s.CompleteTx(ctx, tx, ref) })
				},
			} {
				require.PanicsWithValue(s.t, "no time", call, name)
			}
		}
		s.clock.breakWith(nil)
		require.Equal(s.t, before, s.rows())
		require.NoError(s.t, s.Complete(s.ctx, ref))
		require.Len(s.t, s.claim(9), 1)
	}},
	{"settling a workflow cancels its live rows and returns their keys sorted", func(s *suite) {
		s.stageN(5)
		other := s.row(0)
		other.DispatchKey, other.WorkflowID = "other", uuid.New()
		s.stage(other)
		rows := s.claim(2)
		require.NoError(s.t, s.Complete(s.ctx, rows[0].Ref()))
		keys, err := s.SettleWorkflow(s.ctx, s.workflow)
		require.NoError(s.t, err)
		require.Equal(s.t, s.keys(1, 2, 3, 4), keys)
		require.ErrorIs(s.t, s.Complete(s.ctx, rows[1].Ref()), outbox.ErrClaimLost, "no late completion revives it")
		keys, err = s.SettleWorkflow(s.ctx, s.workflow)
		require.NoError(s.t, err)
		require.Empty(s.t, keys)
		require.Equal(s.t, outbox.Pending, s.status("other"))
	}},
	{"requeue takes back failed rows alone and counts them", func(s *suite) {
		s.stageN(4)
		rows := s.claim(3)
		require.NoError(s.t, s.Retry(s.ctx, rows[0].Ref(), 6, time.Time{}, errBoom))
		require.NoError(s.t, s.Fail(s.ctx, s.claim(1)[0].Ref(), errBoom))
		require.NoError(s.t, s.Fail(s.ctx, rows[1].Ref(), errBoom))
		failed := s.keys(0, 1)
		s.clock.Advance(time.Hour)
		n, err := s.Requeue(s.ctx, append(s.keys(0, 0, 1, 2, 3), "nobody")...)
		require.NoError(s.t, err)
		require.Equal(s.t, len(failed), n)
		got := s.get(s.key(0))
		require.Equal(s.t, outbox.Pending, got.Status)
		require.Zero(s.t, got.Attempt)
		require.Empty(s.t, got.LastError)
		require.Zero(s.t, got.FinishedAt)
		require.Equal(s.t, s.clock.Now(), got.VisibleAfter)
	}},
	{"forty thousand rows go through in one call each", func(s *suite) {
		const n = 40_000
		var rows []outbox.Row
		var refs []outbox.Ref
		for i := range n {
			rows = append(rows, outbox.Row{WorkflowID: s.workflow, Ordinal: uint64(i), ActivityType: "send"})
		}
		s.stage(rows...)
		for limit := n; len(refs) < n; {
			rows, err := s.Claim(s.ctx, limit)
			if errors.Is(err, outbox.ErrTooLarge) { // on an embedded replica
				limit /= 2
				continue
			}
			require.NoError(s.t, err)
			require.NotEmpty(s.t, rows)
			for _, row := range rows {
				refs = append(refs, row.Ref())
			}
		}
		require.Len(s.t, refs, n)
		require.NoError(s.t, s.Complete(s.ctx, refs...))
		require.NoError(s.t, s.Complete(s.ctx, refs...))
		require.Equal(s.t, n, s.count(`SELECT count(*) FROM outbox WHERE status = 'done'`))
	}},
}

// strange is an error whose text cannot be had, also of a nil one.
type strange struct{ panics any }

func (s *strange) Error() string { panic(s.panics) }

// stringer is a value that cannot be printed either.
type stringer struct{}

func (stringer) String() string { panic("neither") }
