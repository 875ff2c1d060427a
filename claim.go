package outbox

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"example.com/outbox/internal/engine"
	"github.com/google/uuid"
)

// Claim takes up to limit rows that are pending and due, whatever their route,
// and returns them ordered by VisibleAfter, then DispatchKey. Each is Claimed
// now, with ClaimedAt set to the present and its Fence grown by one. If no row is
// due it returns none and has written nothing.
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
// claiming order. ?1 is now, ?2 the limit, ?3 and ?4 where to start; args are
// what follows.
type selection struct {
	query string
	args  []any
	first position
}

// position is a place in claiming order; zero is before all rows.
type position struct{ visibleAfter, dispatchKey string }

func (chosen selection) bind(now string, limit int) []any {
	return append([]any{now, limit, chosen.first.visibleAfter, chosen.first.dispatchKey}, chosen.args...)
}

// The selections walk their index from its first due row to the limit. A scoped
// one has an arm for unpinned rows and an arm for those of the node, so that it
// never steps over rows that it may not take; what is sorted are the two arms,
// each no longer than the limit.
const (
	selectDue = `SELECT id FROM main.outbox INDEXED BY outbox_due WHERE ` + pendingAndDue
	notHeld   = ` AND workflow_id NOT IN (SELECT value FROM json_each(?5))`
	inOrder   = ` ORDER BY visible_after, dispatch_key LIMIT ?2`

	pendingAndDue = `status = 'pending' AND visible_after <= ?1 AND (visible_after, dispatch_key) >= (?3, ?4)`

	scopedFrom = `SELECT id, visible_after, dispatch_key FROM main.outbox INDEXED BY outbox_route
	WHERE ` + pendingAndDue + ` AND namespace = ?5 AND task_queue = ?6 AND node `
	scopedNotHeld = ` AND workflow_id NOT IN (SELECT value FROM json_each(?8))`

	selectScoped = `SELECT id FROM (
	SELECT * FROM (` + scopedFrom + `IS NULL` + inOrder + `) UNION ALL
	SELECT * FROM (` + scopedFrom + `= ?7` + inOrder + `))` + inOrder

	selectScopedNotHeld = `SELECT id FROM (
	SELECT * FROM (` + scopedFrom + `IS NULL` + scopedNotHeld + inOrder + `) UNION ALL
	SELECT * FROM (` + scopedFrom + `= ?7` + scopedNotHeld + inOrder + `))` + inOrder
)

// claim looks first, outside the write lock, whether anything is due, and then
// starts where it found something, so that the rows of held workflows in front
// are passed over once. What is staged before that place in between was staged
// after the look. Where a look costs as much as a claim, it is left out as long
// as claims find rows, or travels with the claim.
func (s *Store) claim(ctx context.Context, limit int, chosen selection) ([]Row, error) {
	if err := checkLimit(limit); err != nil || limit == 0 {
		return nil, err
	}
	if can := s.db.Can(ctx); can.Look || s.idle.Load() && !can.Batch {
		first, due, err := s.firstDue(ctx, chosen)
		if err != nil || !due {
			return nil, err
		}
		chosen.first = first
	}
	work := &claiming{selection: chosen, limit: limit}
	if err := s.write(ctx, alone, false, work.call()); err != nil {
		return nil, err
	}
	s.idle.Store(len(work.claimed) == 0)
	for _, row := range work.dead {
		s.logger.WarnContext(ctx, "outbox: row cannot be decoded and is a dead letter now",
			"id", row.ID, "dispatch_key", row.DispatchKey, "reason", row.defect)
	}
	return rowsOf(work.claimed), nil
}

func (s *Store) firstDue(ctx context.Context, chosen selection) (first position, due bool, err error) {
	found, err := engine.Look(ctx, s.db, "claim", func(tx engine.Tx) ([]string, error) {
		now, err := s.instant()
		if err != nil {
			return nil, err
		}
		return engine.Texts(ctx, tx, `SELECT CAST(visible_after || char(0) || dispatch_key AS BLOB) FROM main.outbox WHERE id = (`+chosen.query+`)`,
			chosen.bind(now, 1)...)
	})
	if err != nil || len(found) == 0 {
		return position{}, false, err
	}
	first.visibleAfter, first.dispatchKey, _ = strings.Cut(found[0], "\x00")
	if textDefect(first.dispatchKey) != "" {
		first.dispatchKey = "" // before any
	}
	return first, true, nil
}

// claiming is the work of a claim.
type claiming struct {
	selection
	limit int

	returned      []storedRow // by the statement that claims, yet to be looked at
	claimed, dead []storedRow // the outcome: rows to hand out, and rows that could not be decoded
}

func (c *claiming) call() *engine.Call {
	return &engine.Call{
		Op: "claim", Weight: c.limit,
		Plan: func(now string, _ engine.Abilities) []engine.Statement {
			c.returned, c.claimed, c.dead = nil, nil, nil
			return []engine.Statement{c.statement(now)}
		},
		Then: c.conclude,
		Idle: func(now string) *engine.Statement {
			return &engine.Statement{
				Query: `SELECT CASE WHEN NOT EXISTS (` + c.query + `) THEN ` + engine.Fail + ` END`,
				Args:  c.bind(now, 1),
			}
		},
	}
}

// statement claims as many rows as are missing.
func (c *claiming) statement(now string) engine.Statement {
	return engine.Statement{
		Query: `UPDATE main.outbox SET ` + setClaimed + ` WHERE id IN (` + c.query + `) RETURNING ` + returnedRow,
		Args:  c.bind(now, c.limit-len(c.claimed)),
		Row:   collect(&c.returned),
	}
}

// conclude claims until the limit is reached or nothing is left. Undecodable
// rows are dead letters at once, and others are claimed in their place.
func (c *claiming) conclude(ctx context.Context, tx engine.Tx, now string) error {
	for {
		good, bad, err := sortOut(ctx, tx, c.returned)
		if err != nil {
			return err
		}
		c.returned = nil
		c.claimed = append(c.claimed, good...)
		if len(bad) == 0 {
			break
		}
		c.dead = append(c.dead, bad...)
		if err := deadLetterRows(ctx, tx, now, bad); err != nil {
			return err
		}
		if len(c.claimed) == c.limit {
			break
		}
		more, err := deadLetterDamaged(ctx, tx, now, c.selection) // there may be more where these came from
		if err != nil {
			return err
		}
		c.dead = append(c.dead, more...)
		if err := engine.Run(ctx, tx, c.statement(now)); err != nil {
			return err
		}
	}
	// RETURNING promises no order.
	slices.SortFunc(c.claimed, func(a, b storedRow) int {
		return cmp.Or(a.VisibleAfter.Compare(b.VisibleAfter), strings.Compare(a.DispatchKey, b.DispatchKey))
	})
	return nil
}

// sortOut fetches the payloads that rows lack, and tells the rows that can be
// decoded from those that cannot.
func sortOut(ctx context.Context, tx engine.Tx, rows []storedRow) (good, bad []storedRow, err error) {
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

// idsPerStatement bounds a list of ids.
const idsPerStatement = 1000

// payloadsByID returns payloads, by id, until they are more than a portion
// together. Those that are missing it leaves out.
const payloadsByID = `WITH size (id, bytes) AS (
	SELECT outbox.id, ifnull(length(input), length(data)) FROM main.outbox LEFT JOIN main.outbox_payload ON outbox_payload.id = outbox.id
	WHERE outbox.id IN (SELECT value FROM json_each(?1))
), place (id, before) AS (SELECT id, sum(bytes) OVER (ORDER BY id) - bytes FROM size WHERE bytes IS NOT NULL)
SELECT outbox.id, ` + payloadColumn + ` FROM place CROSS JOIN main.outbox ON outbox.id = place.id WHERE before < ?2`

// payloadPortion is about how many bytes of payloads are fetched at once: an
// answer of a server holds these and the largest payload.
const payloadPortion = 4 << 20

// selectPayloads fetches the payloads that RETURNING left out.
func selectPayloads(ctx context.Context, tx engine.Tx, rows []storedRow) error {
	unread := make(map[int64]*storedRow)
	for i := range rows {
		if rows[i].unread {
			unread[rows[i].ID] = &rows[i]
		}
	}
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(unread)), idsPerStatement) {
		for portion := -1; len(ids) > 0 && portion != 0; {
			portion = 0
			err := engine.Query(ctx, tx, payloadsByID, []any{encodeJSON(ids), payloadPortion}, func(found engine.Row) error {
				var (
					id   int64
					data []byte
				)
				if err := found.Scan(&id, &data); err != nil {
					return err
				}
				unread[id].setPayload(data)
				portion++
				return nil
			})
			if err != nil {
				return err
			}
			ids = slices.DeleteFunc(ids, func(id int64) bool { return !unread[id].unread })
		}
	}
	return nil
}
