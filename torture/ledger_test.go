package torture_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"example.com/outbox"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// snapshot is what a file holds.
type snapshot struct {
	rows   map[string]standing
	events map[string]string // of the host's table: the call that stored each
}

// takeSnapshot reads a file that nobody writes to.
func takeSnapshot(t testing.TB, store *outbox.Store) snapshot {
	t.Helper()
	taken := snapshot{map[string]standing{}, map[string]string{}}
	for page := (outbox.Filter{Limit: 500}); ; {
		rows, err := store.List(context.Background(), page)
		require.NoError(t, err)
		for _, row := range rows {
			taken.rows[row.DispatchKey] = standing{row.Status, row.Fence, row.Attempt}
			assert.Equal(t, payloadOf(row.DispatchKey), row.Input, row.DispatchKey)
			page.After = row.ID
		}
		if len(rows) < page.Limit {
			break
		}
	}
	err := store.Update(context.Background(), func(ctx context.Context, tx outbox.Tx) error {
		var integrity string
		if err := tx.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&integrity); err != nil {
			return err
		}
		assert.Equal(t, "ok", integrity)
		rows, err := tx.QueryContext(ctx, "SELECT CAST(event AS BLOB), CAST(call AS BLOB) FROM history")
		if err != nil {
			return err
		}
		for rows.Next() {
			var event, call []byte
			if err := rows.Scan(&event, &call); err != nil {
				return err
			}
			taken.events[string(event)] = string(call)
		}
		return rows.Err()
	})
	require.NoError(t, err)
	return taken
}

// ledger compares what calls said with what a file holds.
type ledger struct {
	before snapshot
	handed map[outbox.Ref]bool // by claims, and not purged since

	calls, answered int
	open            struct{ stored, absent int } // calls without an answer whose outcome shows
}

func newLedger() *ledger {
	return &ledger{before: snapshot{map[string]standing{}, map[string]string{}}, handed: map[outbox.Ref]bool{}}
}

// audit fails the test unless what was found is what the calls since the last
// snapshot may have left behind.
func (l *ledger) audit(t testing.TB, calls []call, found snapshot) {
	t.Helper()
	h := newHistory(calls)
	for i := range calls {
		c := &calls[i]
		l.calls++
		if c.Outcome != unanswered {
			l.answered++
		}
		assert.Empty(t, c.Problem, "%v", *c)
		l.auditWhole(t, c, h, found)
		if c.Kind == claiming && c.Outcome == stored {
			l.hand(t, c.Refs)
		}
	}
	claimedUnheard := 0
	for key, stands := range found.rows {
		before, path := l.before.rows[key], h.paths[key]
		assert.False(t, before == standing{} && path == nil, "%s was never staged", key)
		possible := path.from(before)
		heard := h.settled(key, possible)
		if heard[stands] {
			continue
		}
		if h.openClaims > 0 {
			possible.also(anotherClaim)
			claimedUnheard++
		}
		assert.True(t, h.settled(key, possible)[stands], "%s is %v and may be %v after %s", key, stands, h.settled(key, possible), path)
	}
	assert.LessOrEqual(t, claimedUnheard, h.openClaims, "rows that claims have taken without an answer")
	for key, before := range l.before.rows {
		_, there := found.rows[key]
		assert.True(t, there, "%s is lost, and was %v", key, before)
	}
	for event, by := range found.events {
		assert.True(t, l.before.events[event] == by || h.calls[by], "nobody has stored the event %q", event)
	}
	for event, by := range l.before.events {
		assert.Equal(t, by, found.events[event], "the event %q is lost", event)
	}
	l.before = found
}

// hand notes that claims were handed out.
func (l *ledger) hand(t testing.TB, refs []outbox.Ref) {
	t.Helper()
	for _, ref := range refs {
		assert.False(t, l.handed[ref], "%v was handed out twice", ref)
		l.handed[ref] = true
	}
}

// auditWhole checks that a call was stored whole, or not at all.
func (l *ledger) auditWhole(t testing.TB, c *call, h *history, found snapshot) {
	t.Helper()
	for _, key := range c.Lost {
		assert.Equal(t, outbox.Cancelled, found.rows[key].Status, "nobody else may have taken %s from %v", key, *c)
	}
	did, didNot := c.traces(h, found)
	switch c.Outcome {
	case stored:
		assert.Empty(t, didNot, "stored, but not these: %v", *c)
	case refused:
		assert.Empty(t, did, "refused, but these are there: %v", *c)
	case unanswered:
		assert.True(t, len(did) == 0 || len(didNot) == 0, "half stored: %v\nthere: %q\nnot there: %q", *c, did, didNot)
		if len(did) > 0 {
			l.open.stored++
		} else if len(didNot) > 0 {
			l.open.absent++
		}
	}
}

// traces are the parts of a call that show in what was found, and those that
// do not. A part that others may have covered is neither.
func (c *call) traces(h *history, found snapshot) (did, didNot []string) {
	note := func(part string, there bool) {
		if there {
			did = append(did, part)
		} else {
			didNot = append(didNot, part)
		}
	}
	switch c.Kind {
	case appending, staging:
		for _, key := range c.Keys {
			note(key, found.rows[key] != standing{})
			if c.Kind == staging {
				note(stagedEvent(key), found.events[stagedEvent(key)] == c.ID)
			}
		}
	case completed, shipping:
		for _, ref := range c.Refs {
			if c.Kind == shipping {
				note(shippedEvent(ref.DispatchKey), found.events[shippedEvent(ref.DispatchKey)] == c.ID)
			}
			stands := found.rows[ref.DispatchKey]
			if c.Outcome != refused && stands.Status != outbox.Cancelled {
				note(ref.DispatchKey, stands.Status == outbox.Done && stands.Fence == ref.Fence)
			}
		}
	case settling:
		for _, key := range h.staged[c.Workflow.String()] {
			if h.paths[key].requeued() { // maybe afterwards
				continue
			}
			if stands := found.rows[key]; c.Outcome == stored {
				listed := slices.Contains(c.Keys, key)
				note(fmt.Sprintf("%s listed: %v, %v", key, listed, stands), stands.settled() && listed == (stands.Status == outbox.Cancelled))
			} else if stands.live() || stands.Status == outbox.Cancelled {
				note(key, !stands.live())
			}
		}
	}
	return did, didNot
}

func (p path) String() string {
	text := ""
	for _, st := range p {
		text += fmt.Sprintf("\n\t%s by %s: %q", st.call.Kind, st.call.ID, st.call.Outcome)
	}
	return text
}
