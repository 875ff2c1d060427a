package outbox

import (
	"context"
	"slices"

	"example.com/outbox/internal/engine"
	"github.com/google/uuid"
)

// SettleWorkflow cancels all live rows of a workflow and returns their keys,
// sorted: none if it has no live row. A nil workflow is an ErrInvalid; the other
// errors are those of the database.
//
// If the process dies, all of them are cancelled or none.
func (s *Store) SettleWorkflow(ctx context.Context, workflowID uuid.UUID) (keys []string, err error) {
	return s.settleWorkflow(ctx, alone, workflowID)
}

// SettleWorkflowTx is SettleWorkflow within the caller's transaction. If it
// fails, the transaction is as it was before the call.
func (s *Store) SettleWorkflowTx(ctx context.Context, tx Tx, workflowID uuid.UUID) (keys []string, err error) {
	return s.settleWorkflow(ctx, inside(tx), workflowID)
}

const settleLive = `UPDATE main.outbox INDEXED BY outbox_unsettled SET ` + setCancelled + `
WHERE finished_at IS NULL AND workflow_id = ?2 AND status IN ` + liveStatus + ` RETURNING CAST(dispatch_key AS BLOB)`

func (s *Store) settleWorkflow(ctx context.Context, at place, workflowID uuid.UUID) ([]string, error) {
	if err := checkWorkflow(workflowID); err != nil {
		return nil, err
	}
	var keys []string
	err := s.write(ctx, at, false, &engine.Call{
		Op: "settle workflow", Weight: engine.Unbounded,
		Plan: func(now string, _ engine.Abilities) []engine.Statement {
			keys = nil
			return []engine.Statement{{Query: settleLive, Args: []any{now, workflowID.String()}, Row: func(row engine.Row) error {
				var key []byte
				err := row.Scan(&key)
				keys = append(keys, string(key))
				return err
			}}}
		},
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(keys)
	return keys, nil
}
