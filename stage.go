package outbox

import (
	"context"
	"errors"
)

// Append stages rows and returns the keys of those it passed over because a
// row with that key exists, whatever its state: each once, in the order given.
// The same key twice in one call is stored once. With nothing to stage it does
// nothing.
//
// It fills in zero fields: DispatchKey from WorkflowID and Ordinal, Namespace
// and TaskQueue with DefaultRoute, Status with Pending, VisibleAfter and
// CreatedAt with now, FinishedAt of a settled row with now. A row may come
// claimed (with ClaimedAt or without) and starts with fence 1 then; or settled,
// to be imported. ID and Fence are given by the store; FinishedAt of a live row is
// ignored, and LastError is cut to 8 KiB.
//
// It returns an InvalidError, with nothing stored, if a row's text is not valid
// UTF-8 or holds a NUL, its activity type is empty, its workflow id nil, its
// ordinal beyond 2^63-1, its status unknown, its ClaimedAt set without status
// Claimed, or an instant outside the years 0000 to 9999. It returns ErrTooLarge
// for a payload of more than about a gigabyte (on a server: 4.99 MB), or texts
// of more than 512 KiB in one row.
//
// If the process dies, all rows of the call are stored or none.
func (s *Store) Append(ctx context.Context, rows ...Row) (duplicates []string, err error) {
	staged, err := prepareRows(rows)
	if err != nil || len(staged) == 0 {
		return nil, err
	}
	defer s.staged()
	work := &appending{store: s, rows: staged}
	if err := writeMerged(ctx, s, "append", weightOf(staged), work); err != nil {
		return nil, err
	}
	return work.duplicates, nil
}

// AppendTx is Append within the caller's transaction: the rows are staged when
// that commits. If it fails, the transaction is as it was before the call.
func (s *Store) AppendTx(ctx context.Context, tx Tx, rows ...Row) (duplicates []string, err error) {
	staged, err := prepareRows(rows)
	if err != nil || len(staged) == 0 {
		return nil, err
	}
	defer s.stagedIn(tx)
	return within(ctx, s, "append", tx, func(tx Tx, now string) ([]string, error) {
		return s.appendRows(ctx, tx, now, staged)
	})
}

// appending is an Append that others can be merged with.
type appending struct {
	store      *Store
	rows       []stagedRow
	duplicates []string // the outcome
}

func (a *appending) mergesWith(other mergeable) bool {
	_, ok := other.(*appending)
	return ok
}

// runAll appends the rows of all. The first to bring a key stores it; to those
// after it that key is a duplicate.
func (a *appending) runAll(ctx context.Context, tx Tx, now string, all []mergeable) error {
	if len(all) == 1 {
		duplicates, err := a.store.appendRows(ctx, tx, now, a.rows)
		a.duplicates = duplicates
		return err
	}
	var rows []stagedRow
	first := make(map[string]mergeable)
	for _, work := range all {
		for _, row := range work.(*appending).rows {
			if first[row.DispatchKey] == nil {
				first[row.DispatchKey] = work
				rows = append(rows, row)
			}
		}
	}
	duplicates, err := a.store.appendRows(ctx, tx, now, rows)
	if err != nil {
		return err
	}
	for _, key := range duplicates {
		first[key] = nil // it was there before all of them
	}
	for _, work := range all {
		work := work.(*appending)
		work.duplicates = nil
		for i := range work.rows {
			if key := work.rows[i].DispatchKey; first[key] != work {
				work.duplicates = append(work.duplicates, key)
			}
		}
	}
	return nil
}

// Rearm makes rows pending again from any state, for crash recovery and for
// workflows that are reopened. An unknown key is inserted with all the row's
// fields, as pending. A known row becomes pending with the given VisibleAfter
// (zero: now); its claim, last error and finish are cleared, its fence grows, so
// that claims handed out before are lost, and everything else is kept. Of the
// same key twice in one call the first row counts.
//
// Input is checked as by Append. If the process dies, all rows are rearmed or
// none; rearming them again is harmless, but loses the claims made in between.
func (s *Store) Rearm(ctx context.Context, rows ...Row) error {
	staged, err := prepareRearm(rows)
	if err != nil || len(staged) == 0 {
		return err
	}
	defer s.staged()
	_, err = write(ctx, s, "rearm", weightOf(staged), func(tx Tx, now string) (done, error) {
		return done{}, rearmRows(ctx, tx, now, staged)
	})
	return err
}

// RearmTx is Rearm within the caller's transaction. If it fails, the
// transaction is as it was before the call.
func (s *Store) RearmTx(ctx context.Context, tx Tx, rows ...Row) error {
	staged, err := prepareRearm(rows)
	if err != nil || len(staged) == 0 {
		return err
	}
	defer s.stagedIn(tx)
	_, err = within(ctx, s, "rearm", tx, func(tx Tx, now string) (done, error) {
		return done{}, rearmRows(ctx, tx, now, staged)
	})
	return err
}

// A statement takes this many rows or bytes of payload, whichever comes first:
// parsing costs more with more rows, a call of the driver with fewer.
const (
	rowsPerStatement  = 100
	bytesPerStatement = 32 << 20
)

// statementBatches calls fn with rows in batches that fit one statement.
func statementBatches(ctx context.Context, rows []stagedRow, fn func([]stagedRow) error) error {
	for len(rows) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, size := 0, 0
		for n < len(rows) && n < rowsPerStatement && (n == 0 || size+len(rows[n].Input.Data) <= bytesPerStatement) {
			size += len(rows[n].Input.Data)
			n++
		}
		if err := fn(rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

func (s *Store) appendRows(ctx context.Context, tx Tx, now string, rows []stagedRow) (duplicates []string, err error) {
	err = statementBatches(ctx, rows, func(batch []stagedRow) error {
		if !s.deaf() {
			stored, known, err := insertNew(ctx, tx, now, batch)
			if duplicates = append(duplicates, known...); err != nil || stored {
				return err
			}
		}
		inserted, _, err := insertRows(ctx, tx, now, batch, onConflictKeep)
		if err != nil {
			return err
		}
		var known []string
		for i := range batch {
			if _, ok := inserted[batch[i].DispatchKey]; !ok {
				known = append(known, batch[i].DispatchKey)
			}
		}
		if err := checkKnown(ctx, tx, known); err != nil {
			return err
		}
		duplicates = append(duplicates, known...)
		return insertPayloads(ctx, tx, batch, inserted)
	})
	return duplicates, err
}

func rearmRows(ctx context.Context, tx Tx, now string, rows []stagedRow) error {
	return statementBatches(ctx, rows, func(batch []stagedRow) error {
		inserted, touched, err := insertRows(ctx, tx, now, batch, onConflictRearm)
		if err == nil && touched < len(batch) {
			err = errors.New("a row was not rearmed, as a trigger dropped it")
		}
		if err != nil {
			return err
		}
		return insertPayloads(ctx, tx, batch, inserted)
	})
}
