package outbox

import (
	"context"
	"errors"

	"example.com/outbox/internal/engine"
)

// Rearm makes rows pending again from any state, for crash recovery and for
// workflows that are reopened. An unknown key is inserted with all the row's
// fields, as pending. A known row becomes pending with the given VisibleAfter
// (zero: now); its claim, last error and finish are cleared, its fence grows, so
// that claims handed out before are lost, and everything else is kept. Of the
// same key twice in one call the first row counts.
//
// It returns an InvalidError or ErrTooLarge for rows that Append would refuse; the
// other errors are those of the database.
//
// If the process dies, all rows are rearmed or none; rearming them again is
// harmless, but loses the claims made in between.
func (s *Store) Rearm(ctx context.Context, rows ...Row) error {
	return s.rearm(ctx, alone, rows)
}

// RearmTx is Rearm within the caller's transaction. If it fails, the
// transaction is as it was before the call.
func (s *Store) RearmTx(ctx context.Context, tx Tx, rows ...Row) error {
	return s.rearm(ctx, inside(tx), rows)
}

const (
	onConflictRearm = ` ON CONFLICT (dispatch_key) DO UPDATE SET ` + setRearmed

	// noneSkipped fails unless the INSERT before has stored or changed a number
	// of rows.
	noneSkipped = `SELECT CASE WHEN changes() < ?1 THEN ` + engine.Fail + ` END`
)

// errNotRearmed is for what a trigger of the program's drops without a word.
var errNotRearmed = errors.New("a row was not rearmed, as a trigger dropped it")

func (s *Store) rearm(ctx context.Context, at place, rows []Row) error {
	staged, err := prepareRearm(rows)
	if err != nil || len(staged) == 0 {
		return err
	}
	touched := 0
	return s.write(ctx, at, true, &engine.Call{
		Op: "rearm", Weight: weightOf(staged),
		Plan: func(now string, can engine.Abilities) (statements []engine.Statement) {
			touched = 0
			for _, batch := range statementBatches(staged) {
				insert, args := insertStatement(batch, now, can.Keeps)
				statements = append(statements, engine.Statement{
					Query: insert + onConflictRearm + ` RETURNING 1`, Args: args,
					Row: func(engine.Row) error { touched++; return nil },
				})
				if can.Batch {
					statements = append(statements, engine.Statement{
						Query: noneSkipped, Args: []any{len(batch)},
						Row: func(engine.Row) error { return nil }, Means: errNotRearmed,
					})
				}
				statements = append(statements, insertPayloads(batch, unfenced)...)
			}
			return statements
		},
		Then: func(context.Context, engine.Tx, string) error {
			if touched < len(staged) {
				return errNotRearmed
			}
			return nil
		},
	})
}
