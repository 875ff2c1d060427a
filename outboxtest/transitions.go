package outboxtest

import (
	"errors"
	"strings"
	"time"

	"example.com/outbox"
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
