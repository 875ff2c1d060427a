package outbox

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"example.com/outbox/internal/engine"
)

// ListStale returns up to limit rows that were claimed, or last extended,
// strictly before olderThan, ordered by ClaimedAt, then DispatchKey. A claimed
// row without ClaimedAt is never stale. Limit 0 returns none. A negative one, or
// an instant outside the years 0000 to 9999, is an ErrInvalid; the other errors
// are those of the database. On an embedded replica it may lag.
func (s *Store) ListStale(ctx context.Context, olderThan time.Time, limit int) ([]Row, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	before, err := requireInstant("olderThan", olderThan)
	if err != nil || limit == 0 {
		return nil, err
	}
	stale, err := engine.Read(ctx, s.db, "list stale", func(tx engine.Tx) ([]storedRow, error) {
		rows, err := queryRows(ctx, tx, selectStale, before, limit)
		if err != nil {
			return nil, err
		}
		return rows, selectPayloads(ctx, tx, rows)
	})
	if err != nil {
		return nil, err
	}
	sortStale(stale)
	return readableRows(stale), nil
}

// RearmStale makes up to limit rows that ListStale would return pending again,
// with the given visibleAfter (zero: now), and returns them as they are then,
// in ListStale's order. Attempt and Fence are kept: the lost claimer may still
// settle its row until another claims it. Limit 0 does nothing. A negative one, or
// an instant outside the years 0000 to 9999, is an ErrInvalid; the other errors
// are those of the database.
//
// If the process dies, all of the rows are rearmed or none.
func (s *Store) RearmStale(ctx context.Context, olderThan, visibleAfter time.Time, limit int) ([]Row, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	before, err := requireInstant("olderThan", olderThan)
	if err != nil {
		return nil, err
	}
	after, err := checkInstant("visibleAfter", visibleAfter)
	if err != nil || limit == 0 {
		return nil, err
	}
	if can := s.db.Can(ctx); !can.Batch {
		found, err := engine.Look(ctx, s.db, "rearm stale", func(tx engine.Tx) (int, error) {
			return engine.Count(ctx, tx, staleIDs, before, 1)
		})
		if err != nil || found == 0 {
			return nil, err
		}
	}
	var stale []storedRow
	err = s.write(ctx, alone, true, rearmStaleCall(before, after, limit, &stale))
	if err != nil {
		return nil, err
	}
	return readableRows(stale), nil
}

// staleIDs finds the oldest claims of each namespace through the index of claims,
// and sorts what is stale among them: ids and no payloads. ?1 is the instant, ?2
// the limit.
const (
	staleIDs = `WITH RECURSIVE tenant (name) AS (
	SELECT (` + claimedNamespace + ` ORDER BY namespace LIMIT 1)
	UNION ALL
	SELECT (` + claimedNamespace + ` AND namespace > tenant.name ORDER BY namespace LIMIT 1) FROM tenant WHERE name IS NOT NULL
)
SELECT id FROM tenant CROSS JOIN main.outbox INDEXED BY outbox_claims
WHERE status = 'claimed' AND namespace = tenant.name AND claimed_at < ?1 ORDER BY claimed_at, dispatch_key LIMIT ?2`

	claimedNamespace = `SELECT namespace FROM main.outbox INDEXED BY outbox_claims WHERE status = 'claimed'`

	rearmStale = `UPDATE main.outbox SET ` + setReturned + ` WHERE id IN (` + staleIDs + `) RETURNING id`
)

// Large payloads are fetched apart: a server bounds what one answer holds.
var selectStale = `SELECT ` + returnedRow + ` FROM main.outbox WHERE id IN (` + staleIDs + `)`

// sortStale puts stale rows in order: the oldest claim first, then by key.
func sortStale(rows []storedRow) {
	slices.SortFunc(rows, func(a, b storedRow) int {
		return cmp.Or(a.ClaimedAt.Compare(b.ClaimedAt), strings.Compare(a.DispatchKey, b.DispatchKey))
	})
}

// rearmStaleCall reads the stale rows, in their order, and then makes the same
// rows pending: the write lock is held throughout.
func rearmStaleCall(before, after string, limit int, stale *[]storedRow) *engine.Call {
	var (
		rows    []storedRow
		at      string
		changed map[int64]bool
	)
	return &engine.Call{
		Op: "rearm stale", Weight: limit,
		Plan: func(now string, _ engine.Abilities) []engine.Statement {
			rows, at, changed = nil, cmp.Or(after, now), make(map[int64]bool)
			return []engine.Statement{
				{Query: selectStale, Args: []any{before, limit}, Row: collect(&rows)},
				{Query: rearmStale, Args: []any{before, limit, at}, Row: func(row engine.Row) error {
					var id int64
					err := row.Scan(&id)
					changed[id] = true
					return err
				}},
			}
		},
		Then: func(ctx context.Context, tx engine.Tx, _ string) error {
			*stale = nil
			sortStale(rows)
			visibleAfter, err := decodeInstant(at)
			if err != nil {
				return err
			}
			for _, row := range rows {
				if changed[row.ID] { // a trigger of the program's may have kept it as it was
					row.Status, row.VisibleAfter, row.ClaimedAt = Pending, visibleAfter, time.Time{}
					*stale = append(*stale, row)
				}
			}
			return selectPayloads(ctx, tx, *stale)
		},
		Idle: func(string) *engine.Statement {
			return &engine.Statement{
				Query: `SELECT CASE WHEN NOT EXISTS (` + staleIDs + `) THEN ` + engine.Fail + ` END`,
				Args:  []any{before, 1},
			}
		},
	}
}
