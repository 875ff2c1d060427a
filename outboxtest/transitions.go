package outboxtest

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// The state machine: what each call makes of a row in each state. "=" is a
// success that changes nothing, "lost" an ErrClaimLost that changes nothing.
// Every row of the table has been claimed once, so its fence is 1.
var stateMachine = []struct {
	call      string
	ref       string
	pending   string
	claimed   string
	done      string
	failed    string
	cancelled string
}{
	{"Complete", "fenced", "done", "done", "=", "lost", "lost"},
	{"Complete", "unfenced", "done", "done", "=", "=", "="},
	{"Complete", "stale", "lost", "lost", "lost", "lost", "lost"},

	{"Retry", "fenced", "pending", "pending", "lost", "lost", "lost"},
	{"Retry", "unfenced", "pending", "pending", "=", "=", "="},
	{"Retry", "stale", "lost", "lost", "lost", "lost", "lost"},

	{"Fail", "fenced", "failed", "failed", "lost", "=", "lost"},
	{"Fail", "unfenced", "failed", "failed", "=", "=", "="},
	{"Fail", "stale", "lost", "lost", "lost", "lost", "lost"},

	{"Cancel", "fenced", "cancelled", "cancelled", "lost", "lost", "="},
	{"Cancel", "unfenced", "cancelled", "cancelled", "=", "=", "="},
	{"Cancel", "stale", "lost", "lost", "lost", "lost", "lost"},

	{"Extend", "fenced", "lost", "claimed", "lost", "lost", "lost"},
	{"Extend", "unfenced", "=", "claimed", "=", "=", "="},
	{"Extend", "stale", "lost", "lost", "lost", "lost", "lost"},

	{"SettleWorkflow", "by workflow", "cancelled", "cancelled", "=", "=", "="},
	{"RearmStale", "by age", "=", "pending", "=", "=", "="},
	{"Claim", "by age", "claimed+", "=", "=", "=", "="},
	{"Append", "by key", "=", "=", "=", "=", "="},
	{"Rearm", "by key", "pending+", "pending+", "pending+", "pending+", "pending+"},
	{"Requeue", "by key", "=", "=", "=", "pending+", "="},
}

// checkTransition runs one call on a row in one state. A "+" behind the state
// that is wanted says that the fence grows.
func checkTransition(s *suite, call, ref string, from outbox.Status, want string) {
	s.stageN(1)
	claimed := s.claimOne()
	s.bring(claimed, from)
	before := s.get(s.key(0))
	require.Equal(s.t, from, before.Status)
	s.clock.Advance(time.Hour)

	target := claimed.Ref()
	switch ref {
	case "unfenced":
		target.Fence = 0
	case "stale":
		target.Fence = 99
	}
	retryAt := s.clock.Now().Add(time.Minute)
	var err error
	switch call {
	case "Complete":
		err = s.Complete(s.ctx, target)
	case "Retry":
		err = s.Retry(s.ctx, target, 5, retryAt, errors.New("again"))
	case "Fail":
		err = s.Fail(s.ctx, target, errors.New("enough"))
	case "Cancel":
		err = s.Cancel(s.ctx, target)
	case "Extend":
		err = s.Extend(s.ctx, target)
	case "SettleWorkflow":
		_, err = s.SettleWorkflow(s.ctx, s.workflow)
	case "RearmStale":
		_, err = s.RearmStale(s.ctx, s.clock.Now(), retryAt, 9)
	case "Claim":
		_, err = s.Claim(s.ctx, 9)
	case "Append":
		_, err = s.Append(s.ctx, s.row(0))
	case "Rearm":
		row := s.row(0)
		row.VisibleAfter = retryAt
		err = s.Rearm(s.ctx, row)
	case "Requeue":
		_, err = s.Requeue(s.ctx, s.key(0))
	default:
		s.t.Fatalf("no such call: %s", call)
	}

	after := before
	if want == "lost" {
		require.ErrorIs(s.t, err, outbox.ErrClaimLost)
	} else {
		require.NoError(s.t, err)
	}
	if status, grows := strings.CutSuffix(want, "+"); want != "lost" && want != "=" {
		after.Status = outbox.Status(status)
		after.ClaimedAt = time.Time{}
		if grows {
			after.Fence++
		}
		switch after.Status {
		case outbox.Claimed:
			after.ClaimedAt = s.clock.Now()
		case outbox.Pending:
			after.VisibleAfter = retryAt
			after.FinishedAt = time.Time{}
		default:
			after.FinishedAt = s.clock.Now()
		}
		switch call {
		case "Retry":
			after.Attempt, after.LastError = 5, "again"
		case "Fail":
			after.LastError = "enough"
		case "Rearm":
			after.LastError = ""
		case "Requeue":
			after.Attempt, after.LastError, after.VisibleAfter = 0, "", s.clock.Now()
		}
	}
	require.Equal(s.t, after, s.get(s.key(0)))

	// Repeating after a lost answer tells the same, and changes nothing more.
	if call == "Complete" || call == "Fail" || call == "Cancel" {
		var again error
		switch call {
		case "Complete":
			again = s.Complete(s.ctx, target)
		case "Fail":
			again = s.Fail(s.ctx, target, errors.New("enough"))
		case "Cancel":
			again = s.Cancel(s.ctx, target)
		}
		require.Equal(s.t, err, again)
		require.Equal(s.t, after, s.get(s.key(0)))
	}
}

// bring settles or rearms a claimed row.
func (s *suite) bring(row outbox.Row, to outbox.Status) {
	s.t.Helper()
	var err error
	switch to {
	case outbox.Pending:
		s.clock.Advance(time.Minute)
		_, err = s.RearmStale(s.ctx, s.clock.Now(), time.Time{}, 9)
	case outbox.Claimed:
	case outbox.Done:
		err = s.Complete(s.ctx, row.Ref())
	case outbox.Failed:
		err = s.Fail(s.ctx, row.Ref(), errBoom)
	case outbox.Cancelled:
		err = s.Cancel(s.ctx, row.Ref())
	}
	require.NoError(s.t, err)
}

var transitionRules = func() []rule {
	var rules []rule
	for _, line := range stateMachine {
		for _, cell := range []struct {
			from outbox.Status
			want string
		}{
			{outbox.Pending, line.pending}, {outbox.Claimed, line.claimed}, {outbox.Done, line.done},
			{outbox.Failed, line.failed}, {outbox.Cancelled, line.cancelled},
		} {
			rules = append(rules, rule{line.call + " " + line.ref + " of " + string(cell.from) + " is " + cell.want, func(s *suite) {
				checkTransition(s, line.call, line.ref, cell.from, cell.want)
			}})
		}
	}
	return rules
}()

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
	{"a cause that panics is stored as fmt would print it", func(s *suite) {
		s.stageN(1)
		var cause *panicking
		require.NoError(s.t, s.Fail(s.ctx, s.claimOne().Ref(), cause))
		require.Equal(s.t, outbox.Failed, s.status(s.key(0)))
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
	{"purge deletes settled rows that finished before, the oldest first", func(s *suite) {
		var rows []outbox.Row
		for i := range 6 {
			row := s.row(i)
			row.Input.Data = []byte(strings.Repeat("x", i*600))
			rows = append(rows, row)
		}
		s.stage(rows...)
		for i, row := range s.claim(5) {
			s.clock.Advance(time.Second)
			switch i {
			case 0:
				require.NoError(s.t, s.Fail(s.ctx, row.Ref(), errBoom))
			case 1:
				require.NoError(s.t, s.Cancel(s.ctx, row.Ref()))
			default:
				require.NoError(s.t, s.Complete(s.ctx, row.Ref()))
			}
		}
		purge := func(before time.Time, limit, want int) {
			n, err := s.Purge(s.ctx, before, limit)
			require.NoError(s.t, err)
			require.Equal(s.t, want, n)
		}
		purge(s.clock.Now(), 0, 0)
		purge(s.clock.Now(), 2, 2)
		_, err := s.Get(s.ctx, s.key(1))
		require.ErrorIs(s.t, err, outbox.ErrNotFound)
		purge(s.clock.Now(), 9, 2) // strictly before
		purge(s.clock.Now().Add(1), 9, 1)
		require.Equal(s.t, s.keys(5), keysOf(s.rows()))
		require.Equal(s.t, 1, s.count(`SELECT count(*) FROM outbox_payload`))
		s.stage(s.row(0))
		require.Zero(s.t, s.get(s.key(0)).Fence, "a purged key starts anew")
	}},
	{"purge goes on past its pages", func(s *suite) {
		s.stageN(2500)
		_, err := s.SettleWorkflow(s.ctx, s.workflow)
		require.NoError(s.t, err)
		n, err := s.Purge(s.ctx, s.clock.Now().Add(1), 2200)
		require.NoError(s.t, err)
		require.Equal(s.t, 2200, n)
		n, err = s.Purge(s.ctx, s.clock.Now().Add(1), 1<<40)
		require.NoError(s.t, err)
		require.Equal(s.t, 300, n)
	}},
	{"the Tx forms settle with the caller's transaction or not at all", func(s *suite) {
		s.stageN(3)
		rows := s.claim(2)
		for _, outcome := range []error{errBoom, nil} {
			err := s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
				if err := s.CompleteTx(ctx, tx, rows[0].Ref()); err != nil {
					return err
				}
				keys, err := s.SettleWorkflowTx(ctx, tx, s.workflow)
				require.Equal(s.t, s.keys(1, 2), keys)
				return errors.Join(err, outcome)
			})
			require.Equal(s.t, outcome != nil, err != nil)
			if outcome != nil {
				RequireCounts(s.t, s.Store, map[outbox.Status]int{outbox.Pending: 1, outbox.Claimed: 2})
			}
		}
		RequireCounts(s.t, s.Store, map[outbox.Status]int{outbox.Done: 1, outbox.Cancelled: 2})
	}},
	{"a lost claim in CompleteTx leaves the others completed", func(s *suite) {
		s.stageN(2)
		rows := s.claim(2)
		require.NoError(s.t, s.Cancel(s.ctx, rows[0].Ref()))
		require.NoError(s.t, s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
			require.ErrorIs(s.t, s.CompleteTx(ctx, tx, rows[0].Ref(), rows[1].Ref()), outbox.ErrClaimLost)
			return nil
		}))
		require.Equal(s.t, outbox.Done, s.status(s.key(1)))
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

type panicking struct{ text string }

func (p *panicking) Error() string { return p.text }
