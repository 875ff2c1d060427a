//go:build sqld

package sqldtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// sentCommit is in the request that has a COMMIT executed.
const sentCommit = `"stmt":{"sql":"COMMIT`

// answerCuts are numbers of bytes of an answer: none, part of the status line,
// of the head, and of the body in several places.
var answerCuts = []int{0, 1, 17, 200, 310, 400, 500, 600, 700}

func TestLostAnswerToCommitIsTold(t *testing.T) {
	t.Parallel()
	for _, after := range answerCuts {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			t.Parallel()
			proxy := newProxy(t, startServer(t))
			store := open(t, proxy.url(), nil)
			// lose makes call lose the answer to its COMMIT.
			lose := func(call func() error) {
				t.Helper()
				hit := proxy.strike(cutAnswer, sentCommit, after)
				require.ErrorIs(t, call(), outbox.ErrCommitUnknown)
				requireHit(t, hit)
			}
			rows := []outbox.Row{row(uuid.New(), 0), row(uuid.New(), 1)}
			rows[1].Input.Data = make([]byte, 10_000)
			lose(func() error {
				_, err := store.Append(patiently(t), rows...)
				return err
			})
			duplicates, err := store.Append(patiently(t), rows...)
			require.NoError(t, err)
			require.Equal(t, keysOf(rows...), duplicates, "the second call tells what it finds")
			outboxtest.RequireCounts(t, store, map[outbox.Status]int{outbox.Pending: 2})

			lose(func() error {
				claimed, err := store.Claim(patiently(t), 10)
				require.Empty(t, claimed, "rows are handed out by a claim that succeeds")
				return err
			})
			outboxtest.RequireCounts(t, store, map[outbox.Status]int{outbox.Claimed: 2})
			lose(func() error {
				_, err := store.RearmStale(patiently(t), time.Now().Add(time.Hour), time.Time{}, 10)
				return err
			})
			claimed, err := store.Claim(patiently(t), 10)
			require.NoError(t, err)
			require.Len(t, claimed, 2, "a claim that was lost is taken back as any other")
			require.Equal(t, int64(2), claimed[0].Fence)

			for _, call := range []func() error{
				func() error { return store.Extend(patiently(t), claimed[0].Ref()) },
				func() error { return store.Retry(patiently(t), claimed[0].Ref(), 1, time.Time{}, nil) },
				func() error { return store.Complete(patiently(t), claimed[0].Ref()) },
				func() error { return store.Fail(patiently(t), claimed[1].Ref(), errors.New("no")) },
			} {
				lose(call)
				require.NoError(t, call(), "repeated, it succeeds")
			}
			outboxtest.RequireCounts(t, store, map[outbox.Status]int{outbox.Done: 1, outbox.Failed: 1})
			lose(func() error {
				_, err := store.Requeue(patiently(t), claimed[1].DispatchKey)
				return err
			})
			requeued, err := store.Requeue(patiently(t), claimed[1].DispatchKey)
			require.NoError(t, err)
			require.Zero(t, requeued, "it was requeued before")
			cancel := func() error { return store.Cancel(patiently(t), outbox.Ref{DispatchKey: claimed[1].DispatchKey}) }
			lose(cancel)
			require.NoError(t, cancel())

			staged := row(uuid.New(), 2)
			lose(func() error {
				return store.Update(patiently(t), func(ctx context.Context, tx outbox.Tx) error {
					_, err := store.AppendTx(ctx, tx, staged)
					return err
				})
			})
			requireStored(t, store, true, staged)
			lose(func() error {
				_, err := store.SettleWorkflow(patiently(t), staged.WorkflowID)
				return err
			})
			outboxtest.RequireCounts(t, store, map[outbox.Status]int{outbox.Done: 1, outbox.Cancelled: 2})
			lose(func() error {
				_, err := store.Purge(patiently(t), time.Now().Add(time.Hour), 10)
				return err
			})
			outboxtest.RequireCounts(t, store, nil)
			requireWorks(t, store)
		})
	}
}

func TestCommitThatNeverReachedTheServerStoresNothing(t *testing.T) {
	t.Parallel()
	proxy := newProxy(t, startServer(t))
	store := open(t, proxy.url(), nil)
	staged := row(uuid.New(), 0)
	hit := proxy.strike(cutRequest, sentCommit, 0)
	_, err := store.Append(patiently(t), staged)
	require.ErrorIs(t, err, outbox.ErrUnavailable, "the transaction is found open still, and undone")
	requireHit(t, hit)
	requireStored(t, store, false, staged)
	duplicates, err := store.Append(patiently(t), staged)
	require.NoError(t, err)
	require.Empty(t, duplicates, "the second call tells that it was the first")
	requireWorks(t, store)
}

func TestServerThatIsDownAtCommitHasStoredNothing(t *testing.T) {
	eachDriver(t, testServerThatIsDownAtCommitHasStoredNothing)
}

func testServerThatIsDownAtCommitHasStoredNothing(t *testing.T, driver string) {
	t.Parallel()
	server := startServer(t)
	store := openOver(t, driver, server.url(), nil)
	staged := row(uuid.New(), 0)
	err := store.Update(patiently(t), func(ctx context.Context, tx outbox.Tx) error {
		_, err := store.AppendTx(ctx, tx, staged)
		server.kill()
		return err
	})
	// Whether the COMMIT was sent depends on whether the driver has noticed that
	// the connection is closed.
	require.True(t, errors.Is(err, outbox.ErrUnavailable) || errors.Is(err, outbox.ErrCommitUnknown), "%v", err)
	server.start()
	requireStored(t, store, false, staged)
	requireWorks(t, store)
}

func TestFrozenCommitIsUnknownAtItsDeadline(t *testing.T) {
	t.Parallel()
	proxy := newProxy(t, startServer(t))
	store := open(t, proxy.url(), nil)
	staged := row(uuid.New(), 0)
	hit := proxy.strike(freeze, sentCommit, 0)
	err := returnsInTime(t, func(ctx context.Context) error {
		_, err := store.Append(ctx, staged)
		return err
	})
	requireHit(t, hit)
	require.ErrorIs(t, err, outbox.ErrCommitUnknown)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	duplicates, err := store.Append(patiently(t), staged)
	require.NoError(t, err)
	require.Equal(t, keysOf(staged), duplicates)
	requireWorks(t, store)
	proxy.thaw()
	requireWorks(t, store)
}
