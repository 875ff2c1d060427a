package torture

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
)

func (m *model) get(key string) (outbox.Row, error) {
	row, known := m.rows[key]
	if !known {
		return outbox.Row{}, outbox.ErrNotFound
	}
	return row, nil
}

func (m *model) state(key string) (outbox.RowState, error) {
	row, err := m.get(key)
	return outbox.RowState{Status: row.Status, Attempt: row.Attempt, VisibleAfter: row.VisibleAfter}, err
}

func (m *model) list(filter outbox.Filter) ([]outbox.Row, error) {
	unknown := filter.Status != "" && !slices.Contains(statuses, filter.Status)
	if err := cmp.Or(checkLimit(filter.Limit), invalidIf(unknown || badText(filter.Namespace))); err != nil {
		return nil, err
	}
	found := m.where(func(row outbox.Row) bool {
		return (filter.Status == "" || row.Status == filter.Status) &&
			(filter.Namespace == "" || row.Namespace == filter.Namespace) &&
			(!filter.WorkflowID.Valid || row.WorkflowID == filter.WorkflowID.UUID) &&
			(filter.After == 0 || row.ID > filter.After)
	}, visibleAfter)
	slices.SortFunc(found, func(a, b outbox.Row) int { return cmp.Compare(a.ID, b.ID) })
	if filter.Limit > 0 {
		found = found[:min(filter.Limit, len(found))]
	}
	return found, nil
}

// count counts the rows of a namespace that match.
func (m *model) count(namespace string, match func(outbox.Row) bool) (n int64, err error) {
	for _, row := range m.rows {
		if row.Namespace == namespace && match(row) {
			n++
		}
	}
	return n, invalidIf(badText(namespace))
}

func isClaimed(row outbox.Row) bool { return row.Status == outbox.Claimed }

func (m *model) countClaimedByNamespace(namespaces []string) (map[string]int64, error) {
	counts := map[string]int64{}
	for _, namespace := range namespaces {
		n, err := m.count(namespace, isClaimed)
		if err != nil {
			return nil, err
		}
		counts[namespace] = n
	}
	return counts, nil
}

func (m *model) pendingRoutes(now time.Time) []outbox.Scope {
	routes := map[outbox.Scope]bool{}
	for _, row := range m.rows {
		if row.Status == outbox.Pending && !row.VisibleAfter.After(now) {
			routes[outbox.Scope{Namespace: row.Namespace, TaskQueue: row.TaskQueue, Node: row.Node}] = true
		}
	}
	return slices.SortedFunc(maps.Keys(routes), func(a, b outbox.Scope) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.TaskQueue, b.TaskQueue), strings.Compare(a.Node, b.Node))
	})
}

func (m *model) unsettledWorkflows() []uuid.UUID {
	workflows := map[uuid.UUID]bool{}
	for _, row := range m.rows {
		if live(row) {
			workflows[row.WorkflowID] = true
		}
	}
	return slices.SortedFunc(maps.Keys(workflows), func(a, b uuid.UUID) int { return strings.Compare(a.String(), b.String()) })
}

func (m *model) nextVisible() (at time.Time, ok bool) {
	pending := m.where(func(row outbox.Row) bool { return row.Status == outbox.Pending }, visibleAfter)
	if len(pending) == 0 {
		return time.Time{}, false
	}
	return pending[0].VisibleAfter, true
}
