package outbox

import (
	"context"
	"time"
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
	return write(ctx, s, "purge", limit, func(tx Tx, _ string) (int, error) {
		purged := 0
		for purged < limit {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
			page := min(limit-purged, purgePage)
			n, err := countRows(ctx, tx, purgeFinished, before, page)
			if err != nil {
				return 0, err
			}
			purged += n
			if n < page {
				break
			}
		}
		return purged, nil
	})
}

// purgePage bounds what one statement of a Purge collects in memory.
const purgePage = 1000

const purgeFinished = `DELETE FROM outbox WHERE id IN (
	SELECT id FROM outbox INDEXED BY outbox_finished WHERE finished_at < ?1 ORDER BY finished_at LIMIT ?2)
RETURNING 1`
