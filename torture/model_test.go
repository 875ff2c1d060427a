package torture

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
)

// model is the contract of the store in plain Go: what each call makes of the
// rows, and what it answers. A call that returns an error has changed nothing,
// unless that is a ClaimLostError. now is the instant that the call reads from
// its clock.
type model struct {
	rows   map[string]outbox.Row // by dispatch key
	staged int64                 // rows so far, also those that are gone
	events int                   // in the host's own table beside the store
}

func (m *model) clone() *model {
	return &model{maps.Clone(m.rows), m.staged, m.events}
}

// unnumbered and more is the ID of a row whose real one has not been seen yet.
const unnumbered = 1 << 62

func (m *model) insert(row outbox.Row) {
	m.staged++
	row.ID = unnumbered + m.staged
	m.rows[row.DispatchKey] = row
}

// where returns the rows that match, ordered by an instant, then by key.
func (m *model) where(match func(outbox.Row) bool, instant func(outbox.Row) time.Time) []outbox.Row {
	var found []outbox.Row
	for _, row := range m.rows {
		if match(row) {
			found = append(found, row)
		}
	}
	slices.SortFunc(found, func(a, b outbox.Row) int {
		return cmp.Or(instant(a).Compare(instant(b)), cmp.Compare(a.DispatchKey, b.DispatchKey))
	})
	return found
}

func visibleAfter(row outbox.Row) time.Time { return row.VisibleAfter }
func claimedAt(row outbox.Row) time.Time    { return row.ClaimedAt }
func finishedAt(row outbox.Row) time.Time   { return row.FinishedAt }

func live(row outbox.Row) bool { return row.Status == outbox.Pending || row.Status == outbox.Claimed }

// change changes rows that were found, and returns them as they are then.
func (m *model) change(rows []outbox.Row, change func(*outbox.Row)) []outbox.Row {
	for i := range rows {
		change(&rows[i])
		m.rows[rows[i].DispatchKey] = rows[i]
	}
	return rows
}

// The host of the tests refuses rows of two activity types by triggers: one
// undoes the statement, the other the whole transaction.
const (
	forbidden = "forbidden"
	fatal     = "fatal"
)

var (
	errForbidden = errors.New("the host forbids it")
	errFatal     = errors.New("the host ends the transaction")
)

func (m *model) refusal(rows []outbox.Row) error {
	for _, row := range rows {
		if _, known := m.rows[row.DispatchKey]; known {
			continue
		}
		switch row.ActivityType {
		case forbidden:
			return errForbidden
		case fatal:
			return errFatal
		}
	}
	return nil
}

func (m *model) append(now time.Time, given []outbox.Row) (duplicates []string, err error) {
	rows, err := prepare(now, given)
	if err := cmp.Or(err, m.refusal(rows)); err != nil {
		return nil, err
	}
	for _, row := range rows {
		if _, known := m.rows[row.DispatchKey]; known {
			duplicates = append(duplicates, row.DispatchKey)
		} else {
			m.insert(row)
		}
	}
	return duplicates, nil
}

func (m *model) rearm(now time.Time, given []outbox.Row) error {
	rows, err := prepare(now, given)
	if err := cmp.Or(err, m.refusal(rows)); err != nil {
		return err
	}
	for _, row := range rows {
		known, ok := m.rows[row.DispatchKey]
		if !ok {
			row.Status, row.Fence, row.ClaimedAt, row.LastError, row.FinishedAt = outbox.Pending, 0, time.Time{}, "", time.Time{}
			m.insert(row)
			continue
		}
		reopen(&known, row.VisibleAfter)
		m.rows[row.DispatchKey] = known
	}
	return nil
}

// reopen makes a row pending anew; claims handed out before are lost.
func reopen(row *outbox.Row, visibleAfter time.Time) {
	row.Status, row.VisibleAfter = outbox.Pending, visibleAfter
	row.ClaimedAt, row.LastError, row.FinishedAt = time.Time{}, "", time.Time{}
	row.Fence++
}

// claim is all claims: scope is nil for those without one.
func (m *model) claim(now time.Time, limit int, scope *outbox.Scope, held []uuid.UUID) ([]outbox.Row, error) {
	if err := cmp.Or(checkScope(scope), checkLimit(limit)); err != nil {
		return nil, err
	}
	due := m.where(func(row outbox.Row) bool {
		return row.Status == outbox.Pending && !row.VisibleAfter.After(now) &&
			!slices.Contains(held, row.WorkflowID) && (scope == nil || admits(*scope, row))
	}, visibleAfter)
	return m.change(due[:min(limit, len(due))], func(row *outbox.Row) {
		row.Status, row.ClaimedAt = outbox.Claimed, now
		row.Fence++
	}), nil
}

func admits(scope outbox.Scope, row outbox.Row) bool {
	return row.Namespace == scope.Namespace && row.TaskQueue == scope.TaskQueue && (row.Node == "" || row.Node == scope.Node)
}

func (m *model) listStale(olderThan time.Time, limit int) ([]outbox.Row, error) {
	if err := cmp.Or(checkLimit(limit), checkInstant(olderThan)); err != nil {
		return nil, err
	}
	stale := m.where(func(row outbox.Row) bool {
		return row.Status == outbox.Claimed && !row.ClaimedAt.IsZero() && row.ClaimedAt.Before(olderThan)
	}, claimedAt)
	return stale[:min(limit, len(stale))], nil
}

func (m *model) rearmStale(now, olderThan, after time.Time, limit int) ([]outbox.Row, error) {
	stale, err := m.listStale(olderThan, limit)
	if err := cmp.Or(err, checkInstant(after)); err != nil {
		return nil, err
	}
	return m.change(stale, func(row *outbox.Row) {
		row.Status, row.VisibleAfter, row.ClaimedAt = outbox.Pending, instant(after, now), time.Time{}
	}), nil
}

// transition changes the rows of the refs that hold theirs, and reports the
// others as lost.
func (m *model) transition(refs []outbox.Ref, to outbox.Status, applies func(outbox.Row) bool, change func(*outbox.Row)) error {
	if err := checkRefs(refs); err != nil {
		return err
	}
	var lost []string
	for _, ref := range refs {
		row, known := m.rows[ref.DispatchKey]
		holds := known && (ref.Fence == 0 || ref.Fence == row.Fence)
		switch {
		case holds && applies(row):
			change(&row)
			m.rows[ref.DispatchKey] = row
		case holds && row.Status == to: // this very claim has done it before
		case ref.Fence != 0 && !slices.Contains(lost, ref.DispatchKey):
			lost = append(lost, ref.DispatchKey)
		}
	}
	if len(lost) > 0 {
		return &outbox.ClaimLostError{DispatchKeys: lost}
	}
	return nil
}

func settle(row *outbox.Row, now time.Time, to outbox.Status) {
	row.Status, row.ClaimedAt, row.FinishedAt = to, time.Time{}, now
}

func (m *model) complete(now time.Time, refs []outbox.Ref) error {
	return m.transition(refs, outbox.Done, live, func(row *outbox.Row) { settle(row, now, outbox.Done) })
}

func (m *model) cancel(now time.Time, refs []outbox.Ref) error {
	return m.transition(refs, outbox.Cancelled, live, func(row *outbox.Row) { settle(row, now, outbox.Cancelled) })
}

func (m *model) fail(now time.Time, ref outbox.Ref, cause error) error {
	return m.transition([]outbox.Ref{ref}, outbox.Failed, live, func(row *outbox.Row) {
		settle(row, now, outbox.Failed)
		row.LastError = causeText(cause)
	})
}

func (m *model) retry(now time.Time, ref outbox.Ref, attempt uint32, after time.Time, cause error) error {
	if err := checkInstant(after); err != nil {
		return err
	}
	return m.transition([]outbox.Ref{ref}, outbox.Pending, live, func(row *outbox.Row) {
		row.Status, row.VisibleAfter, row.ClaimedAt = outbox.Pending, instant(after, now), time.Time{}
		row.Attempt, row.LastError = attempt, causeText(cause)
	})
}

func (m *model) extend(now time.Time, refs []outbox.Ref) error {
	claimed := func(row outbox.Row) bool { return row.Status == outbox.Claimed }
	return m.transition(refs, outbox.Claimed, claimed, func(row *outbox.Row) { row.ClaimedAt = now })
}

func (m *model) settleWorkflow(now time.Time, workflow uuid.UUID) ([]string, error) {
	if workflow == uuid.Nil {
		return nil, outbox.ErrInvalid
	}
	owned := m.where(func(row outbox.Row) bool { return row.WorkflowID == workflow && live(row) }, visibleAfter)
	m.change(owned, func(row *outbox.Row) { settle(row, now, outbox.Cancelled) })
	return slices.Sorted(maps.Keys(byKey(owned))), nil
}

func (m *model) requeue(now time.Time, keys []string) (int, error) {
	if err := checkKeys(keys); err != nil {
		return 0, err
	}
	failed := m.where(func(row outbox.Row) bool {
		return row.Status == outbox.Failed && slices.Contains(keys, row.DispatchKey)
	}, visibleAfter)
	m.change(failed, func(row *outbox.Row) {
		reopen(row, now)
		row.Attempt = 0
	})
	return len(failed), nil
}

// purge deletes the oldest settled rows. Which of several that finished at one
// instant go first is not promised; kept says which the store left.
func (m *model) purge(before time.Time, limit int, kept map[string]outbox.Row) (int, error) {
	if err := cmp.Or(checkLimit(limit), checkInstant(before)); err != nil {
		return 0, err
	}
	old := m.where(func(row outbox.Row) bool { return !live(row) && row.FinishedAt.Before(before) }, finishedAt)
	n := min(limit, len(old))
	for _, row := range old {
		_, stays := kept[row.DispatchKey]
		if n > 0 && (row.FinishedAt.Before(old[n-1].FinishedAt) || row.FinishedAt.Equal(old[n-1].FinishedAt) && !stays) {
			delete(m.rows, row.DispatchKey)
		}
	}
	return n, nil
}

func byKey(rows []outbox.Row) map[string]outbox.Row {
	keyed := make(map[string]outbox.Row, len(rows))
	for _, row := range rows {
		keyed[row.DispatchKey] = row
	}
	return keyed
}
