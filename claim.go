package outbox

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"example.com/outbox/internal/engine"
	"github.com/google/uuid"
)

// Claim takes up to limit rows that are pending and due, whatever their route,
// and returns them ordered by VisibleAfter, then DispatchKey. Each is Claimed
// now, with ClaimedAt set to the present and its Fence grown by one. If no row is
// due it returns none and has written nothing.
// Limit 0 does nothing; a negative one is an ErrInvalid. The other errors are those
// of the database.
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

// ClaimScoped is Claim for the rows that scope admits. A text of the scope that no
// row can have is an ErrInvalid.
func (s *Store) ClaimScoped(ctx context.Context, scope Scope, limit int) ([]Row, error) {
	return s.ClaimScopedExcluding(ctx, scope, limit)
}

// ClaimScopedExcluding is Claim for the rows that scope admits but those of
// held workflows, which are passed over as in ClaimExcluding. A text of the scope
// that no row can have is an ErrInvalid.
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
	page  int // how many a statement claims at most

	returned      []storedRow // by the statement that claims, yet to be looked at
	claimed, dead []storedRow // the outcome: rows to hand out, and rows that could not be decoded
}

func (c *claiming) call() *engine.Call {
	return &engine.Call{
		Op: "claim", Weight: c.limit,
		Plan: func(now string, can engine.Abilities) []engine.Statement {
			c.returned, c.claimed, c.dead = nil, nil, nil
			if c.page = c.limit; can.Batch {
				c.page = min(c.limit, claimPage)
			}
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

// claimPage is how many rows go into one answer of a server, which it bounds.
const claimPage = 2000

// statement claims as many rows as are missing.
func (c *claiming) statement(now string) engine.Statement {
	return engine.Statement{
		Query: `UPDATE main.outbox SET ` + setClaimed + ` WHERE id IN (` + c.query + `) RETURNING ` + returnedRow,
		Args:  c.bind(now, min(c.page, c.limit-len(c.claimed))),
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
		full := len(c.returned) == c.page
		c.returned = nil
		c.claimed = append(c.claimed, good...)
		if len(bad) == 0 && (!full || len(c.claimed) == c.limit) {
			break
		}
		c.dead = append(c.dead, bad...)
		if err := deadLetterRows(ctx, tx, now, bad); err != nil {
			return err
		}
		if len(c.claimed) == c.limit {
			break
		}
		if len(bad) > 0 { // there may be more where these came from
			more, err := deadLetterDamaged(ctx, tx, now, c.selection)
			if err != nil {
				return err
			}
			c.dead = append(c.dead, more...)
		}
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
