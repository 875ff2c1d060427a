package outbox

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/outbox/internal/engine"
	"github.com/google/uuid"
)

// Get returns the row of a key with its payload, or ErrNotFound. Of a row that
// cannot be decoded it returns what can be, with the reason as its LastError. The
// other errors are those of the database.
func (s *Store) Get(ctx context.Context, dispatchKey string) (Row, error) {
	row, err := s.get(ctx, "get", `SELECT `+selectedRow+fromKey, dispatchKey)
	return row.readable(), err
}

// State returns the changing part of a row without its payload, or ErrNotFound.
// What cannot be decoded of it is zero. The other errors are those of the database.
func (s *Store) State(ctx context.Context, dispatchKey string) (RowState, error) {
	row, err := s.get(ctx, "state", `SELECT `+bareRow+fromKey, dispatchKey)
	return RowState{Status: row.Status, Attempt: row.Attempt, VisibleAfter: row.VisibleAfter}, err
}

const fromKey = ` FROM main.outbox INDEXED BY outbox_key WHERE dispatch_key = ?1`

func (s *Store) get(ctx context.Context, op, text, dispatchKey string) (storedRow, error) {
	if textDefect(dispatchKey) != "" {
		return storedRow{}, ErrNotFound // no row can have it
	}
	found, err := engine.Read(ctx, s.db, op, func(tx engine.Tx) ([]storedRow, error) {
		return queryRows(ctx, tx, text, dispatchKey)
	})
	switch {
	case err != nil:
		return storedRow{}, err
	case len(found) == 0:
		return storedRow{}, ErrNotFound
	}
	return found[0], nil
}

// CountInFlight returns how many rows of a namespace are pending or claimed: 0
// if there are none. A namespace that no row can have is an ErrInvalid; the other
// errors are those of the database.
func (s *Store) CountInFlight(ctx context.Context, namespace string) (int64, error) {
	if err := checkText("namespace", namespace); err != nil {
		return 0, err
	}
	return s.count(ctx, "count in flight", countInFlight, namespace)
}

// CountClaimed returns how many rows of a namespace are claimed: 0 if there are
// none. A namespace that no row can have is an ErrInvalid; the other errors are
// those of the database.
func (s *Store) CountClaimed(ctx context.Context, namespace string) (int64, error) {
	if err := checkText("namespace", namespace); err != nil {
		return 0, err
	}
	return s.count(ctx, "count claimed", `SELECT `+countClaimed+`?1)`, namespace)
}

const (
	countClaimed = `(SELECT count(*) FROM main.outbox INDEXED BY outbox_claims WHERE status = 'claimed' AND namespace = `

	countInFlight = `SELECT ` + countClaimed + `?1)
	+ (SELECT count(*) FROM main.outbox INDEXED BY outbox_route WHERE status = 'pending' AND namespace = ?1)`

	countClaimedEach = `SELECT key, ` + countClaimed + `name.value) FROM json_each(?1) AS name`
)

func (s *Store) count(ctx context.Context, op, text, namespace string) (int64, error) {
	return engine.Read(ctx, s.db, op, func(tx engine.Tx) (n int64, err error) {
		err = tx.QueryRowContext(ctx, text, namespace).Scan(&n)
		return n, err
	})
}

// CountClaimedByNamespace returns how many rows of each given namespace are
// claimed, in one query. Every name given is in the map; without names the map
// is empty. A name that no row can have is an ErrInvalid; the other errors are
// those of the database.
func (s *Store) CountClaimedByNamespace(ctx context.Context, namespaces ...string) (map[string]int64, error) {
	for _, namespace := range namespaces {
		if err := checkText("namespace", namespace); err != nil {
			return nil, err
		}
	}
	if len(namespaces) == 0 {
		return map[string]int64{}, nil
	}
	return engine.Read(ctx, s.db, "count claimed", func(tx engine.Tx) (map[string]int64, error) {
		counts := make(map[string]int64, len(namespaces))
		err := engine.Query(ctx, tx, countClaimedEach, []any{encodeJSON(namespaces)}, func(rows engine.Row) error {
			var position int
			var n int64
			if err := rows.Scan(&position, &n); err != nil {
				return err
			}
			counts[namespaces[position]] = n
			return nil
		})
		return counts, err
	})
}

// PendingRoutes returns the routes that have at least one row to be claimed
// now, sorted by namespace, task queue and node; nil if there is none. Whether a
// workflow is held is not looked at. On an embedded replica it reads the local
// file, which a claim that finds nothing brings up to date. Its errors are those of
// the database.
func (s *Store) PendingRoutes(ctx context.Context) ([]Scope, error) {
	packed, err := engine.Read(ctx, s.db, "pending routes", func(tx engine.Tx) ([]string, error) {
		now, err := s.instant()
		if err != nil {
			return nil, err
		}
		return engine.Texts(ctx, tx, pendingRoutes, now)
	})
	if err != nil {
		return nil, err
	}
	var routes []Scope
	for _, text := range packed {
		// No Scope can name another. An unscoped claim makes its rows dead letters.
		if fields := strings.Split(text, "\x00"); len(fields) == 3 && utf8.ValidString(text) {
			routes = append(routes, Scope{Namespace: fields[0], TaskQueue: fields[1], Node: fields[2]})
		}
	}
	return routes, nil
}

// pendingRoutes skips from the first row of one route to the first of the next:
// another node, else another queue, else another namespace. Each step compares
// single columns, which seeks; a comparison of row values would walk the route.
const (
	pendingRoutes = `WITH RECURSIVE route (id) AS (
	SELECT (` + firstOfRoute + ` ORDER BY namespace, task_queue, node, visible_after LIMIT 1)
	UNION ALL
	SELECT ifnull(ifnull(
		(` + firstOfRoute + ` AND namespace = seen.namespace AND task_queue = seen.task_queue AND node > ifnull(seen.node, '')
			ORDER BY node, visible_after LIMIT 1),
		(` + firstOfRoute + ` AND namespace = seen.namespace AND task_queue > seen.task_queue
			ORDER BY task_queue, node, visible_after LIMIT 1)),
		(` + firstOfRoute + ` AND namespace > seen.namespace
			ORDER BY namespace, task_queue, node, visible_after LIMIT 1))
	FROM route CROSS JOIN main.outbox AS seen ON seen.id = route.id
)
SELECT CAST(namespace || char(0) || task_queue || char(0) || ifnull(node, '') AS BLOB)
FROM route CROSS JOIN main.outbox ON outbox.id = route.id
WHERE visible_after <= ?1 AND typeof(namespace) = 'text' AND typeof(task_queue) = 'text' AND typeof(node) <> 'blob'`

	firstOfRoute = `SELECT id FROM main.outbox INDEXED BY outbox_route WHERE status = 'pending'`
)

// UnsettledWorkflows returns the workflows that have at least one live row,
// sorted; nil if there is none. Its errors are those of the database.
func (s *Store) UnsettledWorkflows(ctx context.Context) ([]uuid.UUID, error) {
	texts, err := engine.Read(ctx, s.db, "unsettled workflows", func(tx engine.Tx) ([]string, error) {
		return engine.Texts(ctx, tx, unsettledWorkflows)
	})
	if err != nil {
		return nil, err
	}
	var workflows []uuid.UUID
	for _, text := range texts {
		// A row with another text becomes a dead letter when it is claimed.
		if id, err := decodeUUID(text); err == nil {
			workflows = append(workflows, id)
		}
	}
	return workflows, nil
}

// unsettledWorkflows skips from one workflow to the next in the index, however
// many rows each has.
const (
	unsettledWorkflows = `WITH RECURSIVE owner (id) AS (
	SELECT (` + nextUnsettled + ` ORDER BY workflow_id LIMIT 1)
	UNION ALL
	SELECT (` + nextUnsettled + ` AND workflow_id > owner.id ORDER BY workflow_id LIMIT 1) FROM owner WHERE id IS NOT NULL
)
SELECT CAST(id AS BLOB) FROM owner WHERE typeof(id) = 'text'`

	nextUnsettled = `SELECT workflow_id FROM main.outbox INDEXED BY outbox_unsettled WHERE finished_at IS NULL`
)

// NextVisible returns when the earliest pending row falls due, which may be in
// the past. ok is false if no row is pending. Its errors are those of the database.
func (s *Store) NextVisible(ctx context.Context) (at time.Time, ok bool, err error) {
	return s.nextVisible(ctx, "")
}

// NextVisibleAfter returns when the next pending row falls due after an instant:
// how long a loop may sleep that has just claimed all it could. Rows that were
// due before and are still pending, because their workflows are held or their
// routes are another's, do not hide those to come. ok is false if there is none. An
// instant outside the years 0000 to 9999 is an ErrInvalid; the other errors are
// those of the database.
func (s *Store) NextVisibleAfter(ctx context.Context, after time.Time) (at time.Time, ok bool, err error) {
	text, err := requireInstant("after", after)
	if err != nil {
		return time.Time{}, false, err
	}
	return s.nextVisible(ctx, text)
}

func (s *Store) nextVisible(ctx context.Context, after string) (at time.Time, ok bool, err error) {
	texts, err := engine.Read(ctx, s.db, "next visible", func(tx engine.Tx) ([]string, error) {
		return engine.Texts(ctx, tx, nextVisible, after)
	})
	if err != nil || len(texts) == 0 {
		return time.Time{}, false, err
	}
	at, err = decodeInstant(texts[0])
	return at, err == nil, err
}

// nextVisible passes over what has the shape of an instant but is none.
const nextVisible = `SELECT CAST(visible_after AS BLOB) FROM main.outbox INDEXED BY outbox_due
WHERE status = 'pending' AND visible_after > ?1
	AND datetime(substr(visible_after, 1, 19)) = replace(substr(visible_after, 1, 19), 'T', ' ')
ORDER BY visible_after LIMIT 1`
