package outbox

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Complete settles rows as Done. See the package documentation for what a
// fence decides: a fenced ref that has lost its row is reported in a
// ClaimLostError after the others of the call were stored, while one that this
// very claim has completed before is a success. Without refs it does nothing.
//
// If the process dies, all of the call is stored or nothing; calling again is
// safe.
func (s *Store) Complete(ctx context.Context, refs ...Ref) error {
	return s.transition(ctx, complete, refs)
}

// CompleteTx is Complete within the caller's transaction. A ClaimLostError
// leaves the other refs of the call completed in it; any other error leaves the
// transaction as it was before the call.
func (s *Store) CompleteTx(ctx context.Context, tx Tx, refs ...Ref) error {
	if err := checkRefs(refs); err != nil || len(refs) == 0 {
		return err
	}
	work := &settling{store: s, change: complete, refs: refs}
	_, err := within(ctx, s, complete.op, tx, func(tx Tx, now string) (done, error) {
		return done{}, work.runAll(ctx, tx, now, []mergeable{work})
	})
	if err != nil {
		return err
	}
	return work.claimLost()
}

// Retry makes a live row pending again, not to be claimed before visibleAfter
// (zero: now), with the given attempt and the text of cause as its last error.
// Repeated with the same fence it applies again. Errors are those of Complete.
func (s *Store) Retry(ctx context.Context, ref Ref, attempt uint32, visibleAfter time.Time, cause error) error {
	after, err := checkInstant("visibleAfter", visibleAfter)
	if err != nil {
		return err
	}
	change := retry
	change.at = after
	change.args = []any{int64(attempt), errorText(cause)}
	return s.transition(ctx, change, []Ref{ref})
}

// Fail settles a live row as Failed, a dead letter, with the text of cause as
// its last error: valid UTF-8 without NULs, at most 8 KiB. Errors are those of
// Complete.
func (s *Store) Fail(ctx context.Context, ref Ref, cause error) error {
	change := fail
	change.args = []any{errorText(cause)}
	return s.transition(ctx, change, []Ref{ref})
}

// Cancel settles rows as Cancelled. Errors are those of Complete.
func (s *Store) Cancel(ctx context.Context, refs ...Ref) error {
	return s.transition(ctx, cancel, refs)
}

// transition is one change of state. They differ in what they set, and in the
// states they apply to.
type transition struct {
	op   string
	set  string // ?1 is at, ?2 the refs, args what follows
	from string
	to   Status
	at   string // empty: now
	args []any
}

const liveStatus = `('pending', 'claimed')`

var (
	complete = transition{op: "complete", to: Done, from: liveStatus,
		set: `status = 'done', claimed_at = NULL, finished_at = ?1`}
	cancel = transition{op: "cancel", to: Cancelled, from: liveStatus,
		set: `status = 'cancelled', claimed_at = NULL, finished_at = ?1`}
	fail = transition{op: "fail", to: Failed, from: liveStatus,
		set: `status = 'failed', claimed_at = NULL, finished_at = ?1, last_error = nullif(?3, '')`}
	retry = transition{op: "retry", to: Pending, from: liveStatus,
		set: `status = 'pending', claimed_at = NULL, visible_after = ?1, attempt = ?3, last_error = nullif(?4, '')`}
	extend = transition{op: "extend", to: Claimed, from: `('claimed')`,
		set: `claimed_at = ?1`}
)

func (s *Store) transition(ctx context.Context, change transition, refs []Ref) error {
	if err := checkRefs(refs); err != nil || len(refs) == 0 {
		return err
	}
	work := &settling{store: s, change: change, refs: refs}
	if change.to == Pending {
		defer s.staged()
	}
	if err := writeMerged(ctx, s, change.op, len(refs), work); err != nil {
		return err
	}
	return work.claimLost()
}

// settling is a transition that others like it can be merged with.
type settling struct {
	store  *Store
	change transition
	refs   []Ref
	lost   []string // the outcome
}

// mergesWith is false for a change that comes with values of its own.
func (w *settling) mergesWith(other mergeable) bool {
	o, ok := other.(*settling)
	return ok && o.change.op == w.change.op && len(w.change.args) == 0
}

func (w *settling) runAll(ctx context.Context, tx Tx, now string, all []mergeable) error {
	refs := w.refs
	if len(all) > 1 {
		refs = nil
		for _, work := range all {
			refs = append(refs, work.(*settling).refs...)
		}
	}
	lost, err := w.store.apply(ctx, tx, now, w.change, refs)
	if err != nil {
		return err
	}
	for _, work := range all {
		work := work.(*settling)
		work.lost = nil
		for _, ref := range work.refs {
			if lost[ref] {
				work.lost = append(work.lost, ref.DispatchKey)
			}
		}
	}
	return nil
}

// claimLost is the error of a call whose other refs are stored.
func (w *settling) claimLost() error {
	if len(w.lost) == 0 {
		return nil
	}
	return &ClaimLostError{DispatchKeys: unique(w.lost)}
}

const (
	// givenRefs are the refs of a call, in the order given.
	givenRefs = `(SELECT key AS position, ` + refFence + ` AS fence, ` + refKey + ` AS dispatch_key FROM json_each(?2)) AS ref`

	// CROSS JOIN keeps the planner from walking the rows and searching the refs.
	matchedRows = `SELECT outbox.id FROM ` + givenRefs + ` CROSS JOIN outbox INDEXED BY outbox_key
	ON outbox.dispatch_key = ref.dispatch_key
WHERE (ref.fence = 0 OR outbox.fence = ref.fence) AND outbox.status IN `

	// lostRefs are the fenced refs whose rows are not, with that very fence,
	// in the state asked for, whether they came there just now or before.
	lostRefs = `SELECT ref.position FROM ` + givenRefs + ` LEFT JOIN outbox INDEXED BY outbox_key
	ON outbox.dispatch_key = ref.dispatch_key AND outbox.fence = ref.fence AND outbox.status = ?1
WHERE ref.fence <> 0 AND outbox.id IS NULL`
)

// apply makes the change in one statement for all refs, or a few if their keys
// are long. A second one finds out which refs are lost, if any can be.
func (s *Store) apply(ctx context.Context, tx Tx, now string, change transition, refs []Ref) (lost map[Ref]bool, err error) {
	for batch := range argumentBatches(refs, Ref.size) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		encoded := encodeRefs(batch)
		changed, err := s.countChanged(ctx, tx,
			`UPDATE outbox SET `+change.set+` WHERE id IN (`+matchedRows+change.from+`)`,
			append([]any{cmp.Or(change.at, now), encoded}, change.args...)...)
		if err != nil {
			return nil, err
		}
		if changed == len(batch) || !slices.ContainsFunc(batch, func(ref Ref) bool { return ref.Fence != 0 }) {
			continue
		}
		positions, err := queryInts(ctx, tx, lostRefs, string(change.to), encoded)
		if err != nil {
			return nil, err
		}
		if lost == nil {
			lost = make(map[Ref]bool)
		}
		for _, position := range positions {
			lost[batch[position]] = true
		}
	}
	return lost, nil
}

// SettleWorkflow cancels all live rows of a workflow and returns their keys,
// sorted: none if it has no live row.
//
// If the process dies, all of them are cancelled or none.
func (s *Store) SettleWorkflow(ctx context.Context, workflowID uuid.UUID) (keys []string, err error) {
	if err := checkWorkflow(workflowID); err != nil {
		return nil, err
	}
	return write(ctx, s, "settle workflow", unbounded, func(tx Tx, now string) ([]string, error) {
		return settleWorkflow(ctx, tx, now, workflowID)
	})
}

// SettleWorkflowTx is SettleWorkflow within the caller's transaction. If it
// fails, the transaction is as it was before the call.
func (s *Store) SettleWorkflowTx(ctx context.Context, tx Tx, workflowID uuid.UUID) (keys []string, err error) {
	if err := checkWorkflow(workflowID); err != nil {
		return nil, err
	}
	return within(ctx, s, "settle workflow", tx, func(tx Tx, now string) ([]string, error) {
		return settleWorkflow(ctx, tx, now, workflowID)
	})
}

const settleLive = `UPDATE outbox INDEXED BY outbox_unsettled SET status = 'cancelled', claimed_at = NULL, finished_at = ?1
WHERE finished_at IS NULL AND workflow_id = ?2 AND status IN ` + liveStatus + ` RETURNING CAST(dispatch_key AS BLOB)`

func settleWorkflow(ctx context.Context, tx Tx, now string, workflowID uuid.UUID) ([]string, error) {
	keys, err := queryTexts(ctx, tx, settleLive, now, workflowID.String())
	slices.Sort(keys)
	return keys, err
}

// Requeue makes failed rows pending again, visible now, with attempt 0, their
// last error and finish cleared and their fence grown: the operator's redrive
// of dead letters. It returns how many there were; keys of other rows and of
// none are passed over.
//
// If the process dies, all of the call is stored or nothing.
func (s *Store) Requeue(ctx context.Context, dispatchKeys ...string) (requeued int, err error) {
	refs := make([]Ref, len(dispatchKeys))
	for i, key := range dispatchKeys {
		refs[i].DispatchKey = key
	}
	if err := checkRefs(refs); err != nil || len(refs) == 0 {
		return 0, err
	}
	defer s.staged()
	return write(ctx, s, "requeue", len(refs), func(tx Tx, now string) (int, error) {
		requeued := 0
		for batch := range argumentBatches(refs, Ref.size) {
			n, err := countRows(ctx, tx, requeueFailed, now, encodeRefs(batch))
			if err != nil {
				return 0, err
			}
			requeued += n
		}
		return requeued, nil
	})
}

// reopenedFence is the fence of a row that is reopened. One that cannot grow
// further stays; the next claim buries its row.
const reopenedFence = `CASE WHEN outbox.fence < 9223372036854775807 THEN outbox.fence + 1 ELSE outbox.fence END`

const requeueFailed = `UPDATE outbox SET status = 'pending', attempt = 0, visible_after = ?1,
	last_error = NULL, finished_at = NULL, fence = ` + reopenedFence + `
WHERE id IN (` + matchedRows + `('failed')) RETURNING 1`

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
