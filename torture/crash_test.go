package torture_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/stretchr/testify/require"
)

// Processes write to one file until they are killed at random moments. What
// they were told is stored must be there, and nothing may be there by half.
func TestCrashLosesNoAnsweredCallAndHalvesNone(t *testing.T) {
	all, storedAll, storedNone := 0, 0, 0
	for _, how := range []setting{walFull, walNormal, rollback} {
		t.Run(string(how), func(t *testing.T) {
			c := &crashing{
				t: t, how: how, rand: newRand(t), ledger: newLedger(),
				file: filepath.Join(t.TempDir(), "outbox.db"),
			}
			killed := 0
			for round := 1; killed < (*kills+2)/3 && !t.Failed(); round++ {
				killed += c.crash()
				c.recover(round%8 == 0)
			}
			t.Logf("%d processes killed; of %d calls %d were answered; of the others %d had stored all, %d nothing",
				killed, c.ledger.calls, c.ledger.answered, c.ledger.open.stored, c.ledger.open.absent)
			all, storedAll, storedNone = all+killed, storedAll+c.ledger.open.stored, storedNone+c.ledger.open.absent
		})
	}
	if all >= 100 {
		require.Positive(t, storedAll, "no process was killed between its COMMIT and the answer")
		require.Positive(t, storedNone, "no process was killed before the COMMIT of a call")
	}
}

// crashing is a file to which processes write that are killed.
type crashing struct {
	t      *testing.T
	how    setting
	file   string
	rand   *rand.Rand
	ledger *ledger
	calls  []call // of the last ones killed
}

// crash lets one process or two write to the file, kills each at a random
// moment, and returns how many they were.
func (c *crashing) crash() int {
	n := 1 + c.rand.IntN(3)/2
	var (
		all  sync.WaitGroup
		made = make([][]call, n)
	)
	for i := range n {
		told, err := json.Marshal(job{File: c.file, How: c.how, Seed: c.rand.Uint64(), Workers: 6, Deadlines: 0.05})
		require.NoError(c.t, err)
		process := startChild(c.t, "work", string(told))
		lines, moment := 1+c.rand.IntN(600), time.Duration(c.rand.IntN(2000))*time.Microsecond
		if c.rand.IntN(8) == 0 { // while it opens the file
			lines, moment = 0, 20*moment
		}
		all.Go(func() { made[i] = process.callsUntilKilled(lines, moment) })
	}
	all.Wait()
	c.calls = slices.Concat(made...)
	return n
}

// recover opens the file that was left behind, compares it with what its
// writers have said, and shows that the work goes on.
func (c *crashing) recover(purge bool) {
	ctx := context.Background()
	store, closeAll, err := openFile(ctx, c.how, c.file)
	require.NoError(c.t, err)
	defer func() { require.NoError(c.t, closeAll()) }()
	outboxtest.Check(c.t, store)
	found := takeSnapshot(c.t, store)
	c.ledger.audit(c.t, c.calls, found)

	c.repeatUnanswered(store, found)
	c.rearmStale(store)
	c.claimSome(store)
	if purge {
		c.purge(store)
	}
	outboxtest.Check(c.t, store)
	c.ledger.before = takeSnapshot(c.t, store)
}

// repeatUnanswered makes completions again whose answer was lost.
func (c *crashing) repeatUnanswered(store *outbox.Store, found snapshot) {
	for _, made := range c.calls {
		if made.Kind != completed || made.Outcome != unanswered || c.rand.IntN(2) == 0 {
			continue
		}
		err := store.Complete(context.Background(), made.Refs...)
		cancelled := slices.ContainsFunc(made.Refs, func(ref outbox.Ref) bool {
			return found.rows[ref.DispatchKey].Status == outbox.Cancelled
		})
		if cancelled {
			require.ErrorIs(c.t, err, outbox.ErrClaimLost)
		} else {
			require.NoError(c.t, err, "%v", made)
		}
	}
}

// rearmStale takes back what the killed had claimed.
func (c *crashing) rearmStale(store *outbox.Store) {
	ctx := context.Background()
	claimed, err := store.List(ctx, outbox.Filter{Status: outbox.Claimed})
	require.NoError(c.t, err)
	rearmed, err := store.RearmStale(ctx, time.Now().Add(time.Hour), time.Time{}, 1<<30)
	require.NoError(c.t, err)
	require.ElementsMatch(c.t, refsOf(claimed), refsOf(rearmed))
	held, err := store.CountClaimed(ctx, outbox.DefaultRoute)
	require.NoError(c.t, err)
	require.Zero(c.t, held)
}

// claimSome claims a few rows, and completes half of them.
func (c *crashing) claimSome(store *outbox.Store) {
	ctx := context.Background()
	before, err := store.List(ctx, outbox.Filter{Status: outbox.Pending})
	require.NoError(c.t, err)
	rows, err := store.Claim(ctx, 10)
	require.NoError(c.t, err)
	require.Len(c.t, rows, min(10, len(before)))
	c.ledger.hand(c.t, refsOf(rows))
	for i, row := range rows {
		if i%2 == 0 {
			require.NoError(c.t, store.Complete(ctx, row.Ref()))
		} else {
			require.NoError(c.t, store.Retry(ctx, row.Ref(), row.Attempt, time.Time{}, nil))
		}
	}
}

// purge forgets all that is settled, to keep the file small.
func (c *crashing) purge(store *outbox.Store) {
	ctx := context.Background()
	_, err := store.Purge(ctx, time.Now().Add(time.Hour), 1<<30)
	require.NoError(c.t, err)
	require.NoError(c.t, store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM history")
		return err
	}))
	left, err := store.List(ctx, outbox.Filter{})
	require.NoError(c.t, err)
	inFlight, err := store.CountInFlight(ctx, outbox.DefaultRoute)
	require.NoError(c.t, err)
	require.Len(c.t, left, int(inFlight))
}

func refsOf(rows []outbox.Row) []outbox.Ref {
	refs := make([]outbox.Ref, 0, len(rows))
	for _, row := range rows {
		refs = append(refs, row.Ref())
	}
	return refs
}
