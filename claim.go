package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Claim takes up to limit rows that are pending and due, whatever their route,
// and returns them ordered by VisibleAfter, then DispatchKey. Each is Claimed
// now, with ClaimedAt set to the present and its Fence grown by one. It returns
// nothing if no row is due, and then has written nothing and taken no lock.
// Limit 0 does nothing; a negative one is an ErrInvalid.
//
// A due row that cannot be decoded is not returned: it becomes a dead letter,
// with the reason as its last error, and is logged.
//
// If the process dies, the rows stay claimed until RearmStale takes them back.
func (s *Store) Claim(ctx context.Context, limit int) ([]Row, error) {
	return s.claim(ctx, limit, selection{query: selectDue + inOrder})
}

// ClaimExcluding is Claim for all rows but those of held workflows. They are
// passed over in place, however many there are: they stay pending and do not
// count towards the limit.
func (s *Store) ClaimExcluding(ctx context.Context, limit int, held ...uuid.UUID) ([]Row, error) {
	if len(held) == 0 {
		return s.Claim(ctx, limit)
	}
	return s.claim(ctx, limit, selection{
		query: selectDue + notHeld + inOrder,
		args:  []any{encodeJSON(held)},
	})
}

// ClaimScoped is Claim for the rows that scope admits.
func (s *Store) ClaimScoped(ctx context.Context, scope Scope, limit int) ([]Row, error) {
	return s.ClaimScopedExcluding(ctx, scope, limit)
}

// ClaimScopedExcluding is Claim for the rows that scope admits but those of
// held workflows, which are passed over as in ClaimExcluding.
func (s *Store) ClaimScopedExcluding(ctx context.Context, scope Scope, limit int, held ...uuid.UUID) ([]Row, error) {
	for _, text := range []struct{ field, value string }{
		{"Namespace", scope.Namespace}, {"TaskQueue", scope.TaskQueue}, {"Node", scope.Node},
	} {
		if err := checkText("scope."+text.field, text.value); err != nil {
			return nil, err
		}
	}
	chosen := selection{query: selectScoped, args: []any{scope.Namespace, scope.TaskQueue, scope.Node}}
	if len(held) > 0 {
		chosen.query = selectScopedNotHeld
		chosen.args = append(chosen.args, encodeJSON(held))
	}
	return s.claim(ctx, limit, chosen)
}

// selection is what a claim may take: a query for the ids of pending rows in
// claiming order. ?1 is now, ?2 the limit; args are what follows.
type selection struct {
	query string
	args  []any
}

func (chosen selection) bind(now string, limit int) []any {
	return append([]any{now, limit}, chosen.args...)
}

// The selections walk their index from its first due row to the limit and sort
// nothing. A scoped one has an arm for unpinned rows and an arm for those of
// the node, so that it never steps over rows that it may not take.
const (
	selectDue = `SELECT id FROM outbox INDEXED BY outbox_due WHERE status = 'pending' AND visible_after <= ?1`
	notHeld   = ` AND workflow_id NOT IN (SELECT value FROM json_each(?3))`
	inOrder   = ` ORDER BY visible_after, dispatch_key LIMIT ?2`

	scopedFrom = `SELECT id, visible_after, dispatch_key FROM outbox INDEXED BY outbox_route
	WHERE status = 'pending' AND visible_after <= ?1 AND namespace = ?3 AND task_queue = ?4 AND node `
	scopedNotHeld = ` AND workflow_id NOT IN (SELECT value FROM json_each(?6))`

	selectScoped = `SELECT id FROM (
	SELECT * FROM (` + scopedFrom + `IS NULL` + inOrder + `) UNION ALL
	SELECT * FROM (` + scopedFrom + `= ?5` + inOrder + `))` + inOrder

	selectScopedNotHeld = `SELECT id FROM (
	SELECT * FROM (` + scopedFrom + `IS NULL` + scopedNotHeld + inOrder + `) UNION ALL
	SELECT * FROM (` + scopedFrom + `= ?5` + scopedNotHeld + inOrder + `))` + inOrder
)

// claim looks first, outside the write lock, whether anything is due.
func (s *Store) claim(ctx context.Context, limit int, chosen selection) ([]Row, error) {
	if err := checkLimit(limit); err != nil || limit == 0 {
		return nil, err
	}
	// On a server the look costs two requests, and a claim without it four: it
	// is left out while there is work.
	if s.opened != serverDatabase || s.idle.Load() {
		due, err := s.anyDue(ctx, chosen)
		if err != nil || !due {
			return nil, err
		}
	}
	rows, err := write(ctx, s, "claim", func(tx Tx, now string) (claimedRows, error) {
		return claimRows(ctx, tx, now, limit, chosen)
	})
	if err != nil {
		return nil, err
	}
	s.idle.Store(len(rows.claimed) == 0)
	for _, row := range rows.dead {
		s.logger.WarnContext(ctx, "outbox: row cannot be decoded and is a dead letter now",
			"id", row.ID, "dispatch_key", row.DispatchKey, "reason", row.defect)
	}
	return rowsOf(rows.claimed), nil
}

// expectDue makes the next claim go straight for the rows.
func (s *Store) expectDue() { s.idle.Store(false) }

func (s *Store) anyDue(ctx context.Context, chosen selection) (bool, error) {
	return look(ctx, s, "claim", func(tx Tx) (bool, error) {
		now, err := s.instant()
		if err != nil {
			return false, err
		}
		return anyRow(ctx, tx, chosen.query, chosen.bind(now, 1)...)
	})
}

// claimedRows is what a claim did: rows to hand out, and rows that could not be
// decoded.
type claimedRows struct{ claimed, dead []storedRow }

// claimSelected leaves a fence that is no integer as it is, to be found out.
const claimSelected = `UPDATE outbox SET status = 'claimed', claimed_at = ?1,
	fence = CASE typeof(fence) WHEN 'integer' THEN fence + 1 ELSE fence END WHERE id IN (`

// claimRows claims until limit is reached or nothing is left. Undecodable rows
// are dead letters at once, and others are claimed in their place.
func claimRows(ctx context.Context, tx Tx, now string, limit int, chosen selection) (claimedRows, error) {
	var claimed, dead []storedRow
	for {
		good, bad, err := decodedRows(ctx, tx, claimSelected+chosen.query+`) RETURNING `+returnedRow,
			chosen.bind(now, limit-len(claimed)))
		if err != nil {
			return claimedRows{}, err
		}
		claimed = append(claimed, good...)
		if len(bad) == 0 {
			break
		}
		dead = append(dead, bad...)
		if err := buryRows(ctx, tx, now, bad); err != nil {
			return claimedRows{}, err
		}
		if len(claimed) < limit { // there may be more where these came from
			more, err := buryDamaged(ctx, tx, now, chosen)
			if err != nil {
				return claimedRows{}, err
			}
			dead = append(dead, more...)
		}
	}
	// RETURNING promises no order.
	slices.SortFunc(claimed, func(a, b storedRow) int {
		return cmp.Or(a.VisibleAfter.Compare(b.VisibleAfter), strings.Compare(a.DispatchKey, b.DispatchKey))
	})
	return claimedRows{claimed, dead}, nil
}

// idsPerStatement bounds a list of ids.
const idsPerStatement = 1000

const (
	payloadsByID = `SELECT id, ` + payloadColumn + `, ` + payloadMissing + `
FROM outbox WHERE id IN (SELECT value FROM json_each(?1))`
)

// selectPayloads fetches the payloads that RETURNING left out, in portions that
// a server's answer can hold.
func selectPayloads(ctx context.Context, tx Tx, rows []storedRow) error {
	const most = 4 << 20
	for len(rows) > 0 {
		large := make(map[int64]*storedRow)
		var ids []int64
		var n int
		var size int64
		for n < len(rows) && len(ids) < idsPerStatement && (size == 0 || size+rows[n].unread <= most) {
			if row := &rows[n]; row.unread > 0 {
				large[row.ID] = row
				ids = append(ids, row.ID)
				size += row.unread
			}
			n++
		}
		rows = rows[n:]
		if len(ids) == 0 {
			continue
		}
		err := query(ctx, tx, payloadsByID, []any{encodeJSON(ids)}, func(found *sql.Rows) error {
			var (
				id      int64
				data    []byte
				missing bool
			)
			if err := found.Scan(&id, &data, &missing); err != nil {
				return err
			}
			if row := large[id]; row != nil && !missing {
				row.setPayload(data)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// buryDamaged buries the undecodable rows that are next in line, in ever larger
// steps, until it meets one that can be decoded: a claim that found its way to
// the good ones a few rows at a time would take too long for a server.
func buryDamaged(ctx context.Context, tx Tx, now string, chosen selection) (dead []storedRow, err error) {
	const first, most = 100, 10_000
	for step := first; ; step = min(2*step, most) {
		_, bad, err := decodedRows(ctx, tx, `SELECT `+returnedRow+` FROM outbox WHERE id IN (`+chosen.query+`)`,
			chosen.bind(now, step))
		if err != nil {
			return nil, err
		}
		if err := buryRows(ctx, tx, now, bad); err != nil {
			return nil, err
		}
		dead = append(dead, bad...)
		if len(bad) < step {
			return dead, nil
		}
	}
}

// decodedRows runs a query for returnedRow, fetches what payloads that leaves
// out, and tells the rows that can be decoded from those that cannot.
func decodedRows(ctx context.Context, tx Tx, text string, args []any) (good, bad []storedRow, err error) {
	rows, err := queryRows(ctx, tx, text, args...)
	if err != nil {
		return nil, nil, err
	}
	if err := selectPayloads(ctx, tx, rows); err != nil {
		return nil, nil, err
	}
	for _, row := range rows {
		if row.check() != nil {
			bad = append(bad, row)
		} else {
			good = append(good, row)
		}
	}
	return good, bad, nil
}

// bury makes dead letters, each with its reason. A fence that could grow no
// further has become a REAL; it is set back.
const bury = `UPDATE outbox SET status = 'failed', claimed_at = NULL, finished_at = ?1, last_error = bad.reason,
	fence = CASE WHEN typeof(fence) = 'integer' AND fence >= 0 THEN fence ELSE 9223372036854775807 END
FROM (SELECT value ->> 0 AS id, value ->> 1 AS reason FROM json_each(?2)) AS bad
WHERE outbox.id = bad.id`

func buryRows(ctx context.Context, tx Tx, now string, rows []storedRow) error {
	for chunk := range slices.Chunk(rows, idsPerStatement) {
		reasons := make([][2]any, len(chunk))
		for i, row := range chunk {
			reasons[i] = [2]any{row.ID, row.defectText()}
		}
		if _, err := tx.ExecContext(ctx, bury, now, encodeJSON(reasons)); err != nil {
			return err
		}
	}
	return nil
}

// Extend sets ClaimedAt of rows that are claimed to now: the heartbeat of a
// long job. A fenced ref whose row is no longer claimed with that fence is lost
// (ClaimLostError, after the others were extended), also one that RearmStale
// took back, although that can still be completed.
func (s *Store) Extend(ctx context.Context, refs ...Ref) error {
	return s.transition(ctx, extend, refs)
}

// ListStale returns up to limit rows that were claimed, or last extended,
// strictly before olderThan, ordered by ClaimedAt, then DispatchKey. A claimed
// row without ClaimedAt is never stale. Limit 0 returns none; a negative one
// is an ErrInvalid. On an embedded replica it may lag.
func (s *Store) ListStale(ctx context.Context, olderThan time.Time, limit int) ([]Row, error) {
	before, err := checkStale(olderThan, limit)
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
	before, err := checkStale(olderThan, limit)
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
	defer s.expectDue()
	stale, err := write(ctx, s, "rearm stale", func(tx Tx, now string) ([]storedRow, error) {
		return rearmStale(ctx, tx, before, cmp.Or(after, now), limit)
	})
	return readableRows(stale), err
}

const (
	fromStale = `FROM outbox INDEXED BY outbox_claimed
WHERE status = 'claimed' AND claimed_at < ?1 ORDER BY claimed_at, dispatch_key LIMIT ?2`

	selectStale = `SELECT ` + selectedRow + ` ` + fromStale

	rearmByID = `UPDATE outbox SET status = 'pending', visible_after = ?1, claimed_at = NULL
WHERE id IN (SELECT value FROM json_each(?2))`
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
	for chunk := range slices.Chunk(rows, idsPerStatement) {
		ids := make([]int64, len(chunk))
		for i := range chunk {
			ids[i] = chunk[i].ID
			chunk[i].Status, chunk[i].VisibleAfter, chunk[i].ClaimedAt = Pending, visibleAfter, time.Time{}
		}
		if _, err := tx.ExecContext(ctx, rearmByID, after, encodeJSON(ids)); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

func checkStale(olderThan time.Time, limit int) (before string, err error) {
	if err := checkLimit(limit); err != nil {
		return "", err
	}
	before, ok := encodeInstant(olderThan)
	if !ok {
		return "", &InvalidError{Index: -1, Field: "olderThan", Reason: outsideYears}
	}
	return before, nil
}
