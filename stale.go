package outbox

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// ListStale returns up to limit rows that were claimed, or last extended,
// strictly before olderThan, ordered by ClaimedAt, then DispatchKey. A claimed
// row without ClaimedAt is never stale. Limit 0 returns none; a negative one
// is an ErrInvalid. On an embedded replica it may lag.
func (s *Store) ListStale(ctx context.Context, olderThan time.Time, limit int) ([]Row, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	before, err := requireInstant("olderThan", olderThan)
	if err != nil || limit == 0 {
		return nil, err
	}
	stale, err := read(ctx, s, "list stale", func(tx Tx) ([]storedRow, error) {
		return queryRows(ctx, tx, selectStale, before, limit)
	})
	return readableRows(stale), err
}

// RearmStale makes up to limit rows that ListStale would return pending again,
// with the given visibleAfter (zero: now), and returns them as they are then,
// in ListStale's order. Attempt and Fence are kept: the lost claimer may still
// settle its row until another claims it.
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
	found, err := look(ctx, s, "rearm stale", func(tx Tx) (bool, error) {
		return anyRow(ctx, tx, `SELECT id `+fromStale, before, 1)
	})
	if err != nil || !found {
		return nil, err
	}
	defer s.staged()
	stale, err := write(ctx, s, "rearm stale", limit, func(tx Tx, now string) ([]storedRow, error) {
		return rearmStale(ctx, tx, before, cmp.Or(after, now), limit)
	})
	return readableRows(stale), err
}

const (
	fromStale = `FROM outbox INDEXED BY outbox_claimed
WHERE status = 'claimed' AND claimed_at < ?1 ORDER BY claimed_at, dispatch_key LIMIT ?2`

	selectStale = `SELECT ` + selectedRow + ` ` + fromStale

	rearmByID = `UPDATE outbox SET status = 'pending', visible_after = ?1, claimed_at = NULL
WHERE id IN (SELECT value FROM json_each(?2)) RETURNING id`
)

func rearmStale(ctx context.Context, tx Tx, before, after string, limit int) ([]storedRow, error) {
	rows, err := queryRows(ctx, tx, selectStale, before, limit)
	if err != nil {
		return nil, err
	}
	visibleAfter, err := decodeInstant(after)
	if err != nil {
		return nil, err
	}
	var rearmed []storedRow
	for chunk := range slices.Chunk(rows, idsPerStatement) {
		ids := make([]int64, len(chunk))
		for i := range chunk {
			ids[i] = chunk[i].ID
		}
		changed, err := queryInts(ctx, tx, rearmByID, after, encodeJSON(ids))
		if err != nil {
			return nil, err
		}
		for _, row := range chunk {
			if slices.Contains(changed, row.ID) { // a trigger of the host's may have kept it as it was
				row.Status, row.VisibleAfter, row.ClaimedAt = Pending, visibleAfter, time.Time{}
				rearmed = append(rearmed, row)
			}
		}
	}
	return rearmed, nil
}
