package outbox

import (
	"context"

	"example.com/outbox/internal/engine"
)

// Requeue makes failed rows pending again, visible now, with attempt 0, their
// last error and finish cleared and their fence grown: the operator's redrive
// of dead letters. It returns how many there were; keys of other rows and of
// none are passed over. A key that no row can have is an ErrInvalid; the other
// errors are those of the database.
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
	count := 0
	err = s.write(ctx, alone, true, &engine.Call{
		Op: "requeue", Weight: len(refs),
		Plan: func(now string, can engine.Abilities) (statements []engine.Statement) {
			count = 0
			for batch := range argumentBatches(refs, Ref.size) {
				statements = append(statements, counted(engine.Statement{
					Query: `UPDATE main.outbox SET ` + setRequeued + ` WHERE ` + matchedRows + failedStatus + `)`,
					Args:  []any{now, encodeRefs(batch)},
				}, &count, can))
			}
			return statements
		},
	})
	if err != nil {
		return 0, err
	}
	return count, nil
}
