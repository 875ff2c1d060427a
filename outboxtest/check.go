package outboxtest

import (
	"context"
	"fmt"
	"testing"

	"example.com/outbox"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const instant = `'[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]Z'`

// invariants are conditions that no row may ever meet.
var invariants = []struct{ wrong, query string }{
	{"an instant is not in the stored form", `SELECT count(*) FROM outbox WHERE visible_after NOT GLOB ` + instant +
		` OR created_at NOT GLOB ` + instant + ` OR claimed_at NOT GLOB ` + instant + ` OR finished_at NOT GLOB ` + instant},
	{"a row that is not claimed has a claimed-at", `SELECT count(*) FROM outbox WHERE claimed_at IS NOT NULL AND status <> 'claimed'`},
	{"a claimed row has no fence", `SELECT count(*) FROM outbox WHERE status = 'claimed' AND fence < 1`},
	{"a live row is finished, or a settled one is not",
		`SELECT count(*) FROM outbox WHERE (finished_at IS NULL) <> (status IN ('pending', 'claimed'))`},
	{"a row has no payload", `SELECT count(*) FROM outbox WHERE input IS NULL AND id NOT IN (SELECT id FROM outbox_payload)`},
	{"a payload has no row", `SELECT count(*) FROM outbox_payload WHERE id NOT IN (SELECT id FROM outbox WHERE input IS NULL)`},
	{"a key is stored twice", `SELECT count(*) - count(DISTINCT dispatch_key) FROM outbox`},
	{"an index misses pending rows", `SELECT (SELECT count(*) FROM outbox NOT INDEXED WHERE status = 'pending')
		<> (SELECT count(*) FROM outbox INDEXED BY outbox_due WHERE status = 'pending')`},
	{"an index misses claimed rows", `SELECT (SELECT count(*) FROM outbox NOT INDEXED WHERE status = 'claimed')
		<> (SELECT count(*) FROM outbox INDEXED BY outbox_claims WHERE status = 'claimed')`},
}

// Check fails the test if the store is not consistent: instants are well formed,
// so that their order is that of time, only claimed rows have a claimed-at, only settled ones are
// finished, every payload has its row and every row its payload, the indexes
// agree with the table, and no transaction was left open.
func Check(t testing.TB, store *outbox.Store) {
	t.Helper()
	// That Update can begin shows that no transaction was left open.
	err := store.Update(context.Background(), func(ctx context.Context, tx outbox.Tx) error {
		for _, invariant := range invariants {
			var n int
			if err := tx.QueryRowContext(ctx, invariant.query).Scan(&n); err != nil {
				return fmt.Errorf("%s: %w", invariant.wrong, err)
			}
			assert.Zero(t, n, "outboxtest: %s", invariant.wrong)
		}
		return nil
	})
	require.NoError(t, err, "outboxtest: the store cannot be checked")
}

// RequireCounts fails the test unless the store holds exactly these rows by
// status; a status that is left out counts 0.
func RequireCounts(t testing.TB, store *outbox.Store, want map[outbox.Status]int) {
	t.Helper()
	err := store.Update(context.Background(), func(ctx context.Context, tx outbox.Tx) error {
		for _, status := range []outbox.Status{outbox.Pending, outbox.Claimed, outbox.Done, outbox.Failed, outbox.Cancelled} {
			var n int
			err := tx.QueryRowContext(ctx, `SELECT count(*) FROM outbox WHERE status = ?`, string(status)).Scan(&n)
			if err != nil {
				return err
			}
			require.Equal(t, want[status], n, "outboxtest: rows that are %s", status)
		}
		return nil
	})
	require.NoError(t, err)
}
