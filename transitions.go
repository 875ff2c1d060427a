package outbox

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"example.com/outbox/internal/engine"
)

// Complete settles rows as Done. See the package documentation for what a
// fence decides: a fenced ref that has lost its row is reported in a
// ClaimLostError after the others of the call were stored, while one that this
// very claim has completed before is a success. Without refs it does nothing. A
// key that no row can have is an ErrInvalid; the other errors are those of the
// database.
//
// If the process dies, all of the call is stored or nothing; calling again is
// safe.
func (s *Store) Complete(ctx context.Context, refs ...Ref) error {
	return s.settle(ctx, alone, &transition{change: complete, refs: refs})
}

// CompleteTx is Complete within the caller's transaction. A ClaimLostError
// leaves the other refs of the call completed in it; any other error leaves the
// transaction as it was before the call.
func (s *Store) CompleteTx(ctx context.Context, tx Tx, refs ...Ref) error {
	return s.settle(ctx, inside(tx), &transition{change: complete, refs: refs})
}

// Retry makes a live row pending again, not to be claimed before visibleAfter
// (zero: now), with the given attempt and the text of cause as its last error:
// valid UTF-8 without NULs, at most 8 KiB. Repeated with the same fence it
// applies again. A key that no row can have, or a visibleAfter outside the years
// 0000 to 9999, is an ErrInvalid; a fenced ref that has lost its row is a
// ClaimLostError; the other errors are those of the database.
//
// If the process dies, the row is pending or as it was; calling again is safe.
func (s *Store) Retry(ctx context.Context, ref Ref, attempt uint32, visibleAfter time.Time, cause error) error {
	return s.retry(ctx, alone, ref, attempt, visibleAfter, cause)
}

// RetryTx is Retry within the caller's transaction. A ClaimLostError, as any
// other error, leaves that as it was before the call.
func (s *Store) RetryTx(ctx context.Context, tx Tx, ref Ref, attempt uint32, visibleAfter time.Time, cause error) error {
	return s.retry(ctx, inside(tx), ref, attempt, visibleAfter, cause)
}

func (s *Store) retry(ctx context.Context, at place, ref Ref, attempt uint32, visibleAfter time.Time, cause error) error {
	instant, err := checkInstant("visibleAfter", visibleAfter)
	if err != nil {
		return err
	}
	return s.settle(ctx, at, &transition{change: retry, refs: []Ref{ref}, at: instant, args: []any{int64(attempt), errorText(cause)}})
}

// Fail settles a live row as Failed, a dead letter, with the text of cause as
// its last error: valid UTF-8 without NULs, at most 8 KiB. A key that no row can
// have is an ErrInvalid; a fenced ref that has lost its row is a ClaimLostError;
// the other errors are those of the database.
//
// If the process dies, the row is failed or as it was; calling again is safe.
func (s *Store) Fail(ctx context.Context, ref Ref, cause error) error {
	return s.settle(ctx, alone, &transition{change: fail, refs: []Ref{ref}, args: []any{errorText(cause)}})
}

// FailTx is Fail within the caller's transaction. A ClaimLostError, as any other
// error, leaves that as it was before the call.
func (s *Store) FailTx(ctx context.Context, tx Tx, ref Ref, cause error) error {
	return s.settle(ctx, inside(tx), &transition{change: fail, refs: []Ref{ref}, args: []any{errorText(cause)}})
}

// Cancel settles rows as Cancelled. Without refs it does nothing. A key that no row
// can have is an ErrInvalid; fenced refs that have lost their rows are named in a
// ClaimLostError, after the others were stored; the other errors are those of the
// database.
//
// If the process dies, all of the call is stored or nothing; calling again is
// safe.
func (s *Store) Cancel(ctx context.Context, refs ...Ref) error {
	return s.settle(ctx, alone, &transition{change: cancel, refs: refs})
}

// CancelTx is Cancel within the caller's transaction. A ClaimLostError leaves the
// other refs of the call cancelled in it; any other error leaves the transaction
// as it was before the call.
func (s *Store) CancelTx(ctx context.Context, tx Tx, refs ...Ref) error {
	return s.settle(ctx, inside(tx), &transition{change: cancel, refs: refs})
}

// Extend sets ClaimedAt of rows that are claimed to now: the heartbeat of a
// long job. A fenced ref whose row is no longer claimed with that fence is lost
// (ClaimLostError, after the others were extended), also one that RearmStale took
// back, although that can still be completed. A key that no row can have is an
// ErrInvalid; the other errors are those of the database.
func (s *Store) Extend(ctx context.Context, refs ...Ref) error {
	return s.settle(ctx, alone, &transition{change: extend, refs: refs})
}

// transition is a change with the refs that ask for it.
type transition struct {
	change
	refs []Ref
	at   string // the instant that it writes; empty: now
	args []any  // ?3 and what follows

	lost []Ref // the outcome: refs that had lost their rows
}

// settle runs a transition.
func (s *Store) settle(ctx context.Context, at place, t *transition) error {
	if err := checkRefs(t.refs); err != nil || len(t.refs) == 0 {
		return err
	}
	if err := s.write(ctx, at, t.to == Pending, t.call()); err != nil {
		return err
	}
	if len(t.lost) == 0 {
		return nil
	}
	keys := make([]string, len(t.lost))
	for i, ref := range t.lost {
		keys[i] = ref.DispatchKey
	}
	return &ClaimLostError{DispatchKeys: unique(keys)}
}

// call describes the transition. Those that bring no values of their own can be
// joined.
func (t *transition) call() *engine.Call {
	call := &engine.Call{Op: t.op, Weight: len(t.refs), Plan: t.plan, Of: t, Join: joinTransitions}
	if len(t.args) == 0 {
		call.Kind = t.op
	}
	return call
}

// joinTransitions makes one transition of several.
func joinTransitions(calls []*engine.Call) *engine.Call {
	joined := &transition{change: calls[0].Of.(*transition).change}
	for _, call := range calls {
		joined.refs = append(joined.refs, call.Of.(*transition).refs...)
	}
	call := joined.call()
	call.Then = func(context.Context, engine.Tx, string) error {
		lost := make(map[Ref]bool, len(joined.lost))
		for _, ref := range joined.lost {
			lost[ref] = true
		}
		for _, call := range calls {
			t := call.Of.(*transition)
			t.lost = nil
			for _, ref := range t.refs {
				if lost[ref] {
					t.lost = append(t.lost, ref)
				}
			}
		}
		return nil
	}
	return call
}

const (
	// givenRefs are the refs of a call, in the order given. CROSS JOIN keeps the
	// planner from walking the rows and searching the refs.
	givenRefs = `(SELECT key AS position, ` + refFence + ` AS fence, ` + refKey + ` AS dispatch_key FROM json_each(?2)) AS ref`

	matchedRows = `id IN (SELECT outbox.id FROM ` + givenRefs + ` CROSS JOIN main.outbox INDEXED BY outbox_key
	ON outbox.dispatch_key = ref.dispatch_key
WHERE (ref.fence = 0 OR outbox.fence = ref.fence) AND outbox.status IN `

	// lostRefs are the fenced refs whose rows are not, with that very fence,
	// in the state asked for, whether they came there just now or before.
	lostRefs = `SELECT ref.position FROM ` + givenRefs + ` LEFT JOIN main.outbox INDEXED BY outbox_key
	ON outbox.dispatch_key = ref.dispatch_key AND outbox.fence = ref.fence AND outbox.status = ?1
WHERE ref.fence <> 0 AND outbox.id IS NULL`
)

// plan makes the change in one statement for all refs, or a few if their keys
// are long. A second one finds out which refs are lost, if any can be.
func (t *transition) plan(now string, can engine.Abilities) (statements []engine.Statement) {
	t.lost = nil
	for batch := range argumentBatches(t.refs, Ref.size) {
		changed := 0
		statements = append(statements, t.update(cmp.Or(t.at, now), batch, &changed, can))
		if !slices.ContainsFunc(batch, func(ref Ref) bool { return ref.Fence != 0 }) {
			continue
		}
		statements = append(statements, engine.Statement{
			Query: lostRefs, Args: []any{string(t.to), encodeRefs(batch)},
			Unless: func() bool { return changed == len(batch) },
			Row: func(row engine.Row) error {
				var position int
				err := row.Scan(&position)
				if err == nil {
					t.lost = append(t.lost, batch[position])
				}
				return err
			},
		})
	}
	return statements
}

// update is the UPDATE of some refs. One alone is found by its key: SQLite takes
// longer to compile a list.
func (t *transition) update(at string, refs []Ref, changed *int, can engine.Abilities) engine.Statement {
	statement := engine.Statement{Query: `UPDATE main.outbox INDEXED BY outbox_key SET ` + t.set + ` WHERE dispatch_key = ?2 AND status IN ` + t.from}
	ref := refs[0]
	if len(refs) > 1 {
		statement.Query = `UPDATE main.outbox SET ` + t.set + ` WHERE ` + matchedRows + t.from + `)`
		statement.Args = append([]any{at, encodeRefs(refs)}, t.args...)
	} else {
		statement.Args = append([]any{at, ref.DispatchKey}, t.args...)
		if ref.Fence != 0 {
			statement.Args = append(statement.Args, ref.Fence)
			statement.Query += ` AND fence = ?` + strconv.Itoa(len(statement.Args))
		}
	}
	return counted(statement, changed, can)
}

// counted has an UPDATE or DELETE count the rows it changes. Asking the driver is
// cheaper than returning each of them, where its answer is right.
func counted(statement engine.Statement, n *int, can engine.Abilities) engine.Statement {
	if can.Counts {
		statement.Changed = func(changed, _ int64) error {
			*n += int(changed)
			return nil
		}
		return statement
	}
	statement.Query += ` RETURNING 1`
	statement.Row = func(engine.Row) error {
		*n++
		return nil
	}
	return statement
}

// size is about how many bytes a ref takes in an argument.
func (ref Ref) size() int { return len(ref.DispatchKey) + 24 }

// unique returns list without repetitions, in order.
func unique(list []string) []string {
	seen := make(map[string]bool, len(list))
	return slices.DeleteFunc(list, func(text string) bool {
		repeated := seen[text]
		seen[text] = true
		return repeated
	})
}
