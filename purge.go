package outbox

import (
	"context"
	"time"

	"example.com/outbox/internal/engine"
)

// Purge deletes up to limit settled rows that finished strictly before the
// given instant, the oldest first, with their payloads, and returns how many.
// Limit 0 does nothing; a negative one is an ErrInvalid.
//
// A purged key can be appended anew and its fence starts again, so what is kept
// is the horizon of idempotency and of fencing: keep rows for longer than a
// duplicate or a late claimer may take to show up.
//
// If the process dies, all of the rows are gone or none.
func (s *Store) Purge(ctx context.Context, finishedBefore time.Time, limit int) (purged int, err error) {
	if err := checkLimit(limit); err != nil {
		return 0, err
	}
	before, err := requireInstant("finishedBefore", finishedBefore)
	if err != nil || limit == 0 {
		return 0, err
	}
	count := 0
	err = s.write(ctx, alone, false, &engine.Call{
		Op: "purge", Weight: limit, Whole: limit > purgePage,
		Plan: func(_ string, can engine.Abilities) []engine.Statement {
			count = 0
			return []engine.Statement{counted(engine.Statement{
				Query: purgeFinished, Args: []any{before, min(limit, purgePage)},
			}, &count, can)}
		},
		Then: func(ctx context.Context, tx engine.Tx, _ string) error {
			for page := 1; count < limit && count == page*purgePage; page++ {
				n, err := engine.Count(ctx, tx, purgeFinished+` RETURNING 1`, before, min(limit-count, purgePage))
				if err != nil {
					return err
				}
				count += n
			}
			return nil
		},
	})
	if err != nil {
		return 0, err
	}
	return count, nil
}

// purgePage bounds what one statement of a Purge collects in memory.
const purgePage = 1000

const purgeFinished = `DELETE FROM main.outbox WHERE id IN (
	SELECT id FROM main.outbox INDEXED BY outbox_finished WHERE finished_at < ?1 ORDER BY finished_at LIMIT ?2)`
