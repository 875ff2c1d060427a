//go:build sqld

package sqldtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// patience is more than any call needs that does not hang: a server may keep
// the lock of a connection that was cut for 10 seconds.
const patience = 40 * time.Second

func patiently(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// requireTyped fails the test unless err is one that a caller can tell.
func requireTyped(t testing.TB, err error) {
	t.Helper()
	if !typed(err) {
		require.Fail(t, "an error that no caller can tell", "%v", err)
	}
}

func typed(err error) bool {
	for _, kind := range []error{
		outbox.ErrBusy, outbox.ErrUnavailable, outbox.ErrRolledBack, outbox.ErrCommitUnknown, outbox.ErrTooLarge,
		context.DeadlineExceeded, context.Canceled,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// requireWorks fails the test unless the store does all its work, at the first
// attempt.
func requireWorks(t testing.TB, store *outbox.Store) {
	t.Helper()
	ctx := patiently(t)
	fresh := row(uuid.New(), 0)
	fresh.TaskQueue = uuid.NewString()
	duplicates, err := store.Append(ctx, fresh)
	require.NoError(t, err)
	require.Empty(t, duplicates)
	_, err = store.CountInFlight(ctx, outbox.DefaultRoute)
	require.NoError(t, err)
	rows, err := store.ClaimScoped(ctx, outbox.Scope{Namespace: outbox.DefaultRoute, TaskQueue: fresh.TaskQueue}, 1)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.NoError(t, store.Complete(ctx, rows[0].Ref()))
	outboxtest.Check(t, store)
}

func requireStored(t testing.TB, store *outbox.Store, stored bool, rows ...outbox.Row) {
	t.Helper()
	for _, row := range rows {
		_, err := store.State(patiently(t), outbox.DispatchKey(row.WorkflowID, row.Ordinal))
		if stored {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, outbox.ErrNotFound)
		}
	}
}

// keysOf are the keys of rows that have none of their own.
func keysOf(rows ...outbox.Row) (keys []string) {
	for _, row := range rows {
		keys = append(keys, outbox.DispatchKey(row.WorkflowID, row.Ordinal))
	}
	return keys
}

func TestUpdateWhoseTransactionTheServerDroppedStoresNothing(t *testing.T) {
	t.Parallel()
	const first = "INSERT INTO host VALUES (1)"
	drops := map[string]func(t *testing.T, s *server){
		"killed and started again": func(_ *testing.T, s *server) {
			s.kill()
			s.start()
		},
		"idle for longer than 10 s": func(*testing.T, *server) { time.Sleep(11 * time.Second) },
		"open for longer than 5 s while another waits": func(t *testing.T, s *server) {
			other := open(t, s.url(), nil) // migrated already: this takes no lock
			_, err := other.Append(patiently(t), row(uuid.New(), 0))
			require.NoError(t, err, "the one that waits")
		},
	}
	endings := map[string]func(ctx context.Context, store *outbox.Store, tx outbox.Tx) error{
		"says nothing more": func(context.Context, *outbox.Store, outbox.Tx) error { return nil },
		"returns the error of a statement": func(ctx context.Context, _ *outbox.Store, tx outbox.Tx) error {
			_, err := tx.ExecContext(ctx, first)
			return err
		},
		"returns the error of a query": func(ctx context.Context, _ *outbox.Store, tx outbox.Tx) error {
			var n int
			return tx.QueryRowContext(ctx, "SELECT count(*) FROM host").Scan(&n)
		},
		"swallows the error of its last statement": func(ctx context.Context, _ *outbox.Store, tx outbox.Tx) error {
			_, _ = tx.ExecContext(ctx, first)
			return nil
		},
		"swallows every error and goes on": func(ctx context.Context, store *outbox.Store, tx outbox.Tx) error {
			for range 3 {
				_, _ = tx.ExecContext(ctx, first)
				var n int
				_ = tx.QueryRowContext(ctx, "SELECT count(*) FROM host").Scan(&n)
				_, _ = store.AppendTx(ctx, tx, row(uuid.New(), 0))
			}
			return nil
		},
	}
	for dropped, drop := range drops {
		for ending, end := range endings {
			t.Run(dropped+"/"+ending, func(t *testing.T) {
				t.Parallel()
				server := startServer(t)
				store := open(t, server.url(), nil)
				require.NoError(t, store.Update(patiently(t), func(ctx context.Context, tx outbox.Tx) error {
					_, err := tx.ExecContext(ctx, "CREATE TABLE host (n INTEGER)")
					return err
				}))
				staged := row(uuid.New(), 1)
				err := store.Update(patiently(t), func(ctx context.Context, tx outbox.Tx) error {
					_, err := tx.ExecContext(ctx, first)
					require.NoError(t, err)
					_, err = store.AppendTx(ctx, tx, staged)
					require.NoError(t, err)
					drop(t, server)
					return end(ctx, store, tx)
				})
				requireTyped(t, err)
				requireStored(t, store, false, staged)
				require.NoError(t, store.Update(patiently(t), func(ctx context.Context, tx outbox.Tx) error {
					var n int
					err := tx.QueryRowContext(ctx, "SELECT count(*) FROM host").Scan(&n)
					require.Zero(t, n, "nothing of the function is stored")
					return err
				}))
				requireWorks(t, store)
			})
		}
	}
}

func TestStoreSurvivesAServerThatForgotAllItsStreams(t *testing.T) {
	t.Parallel()
	const streams = 8
	for name, forget := range map[string]func(*server){
		"killed and started again": func(s *server) {
			s.kill()
			s.start()
		},
		"idle for longer than 10 s": func(*server) { time.Sleep(11 * time.Second) },
	} {
		for first, call := range map[string]func(context.Context, *outbox.Store) error{
			"read": func(ctx context.Context, store *outbox.Store) error {
				_, err := store.CountInFlight(ctx, outbox.DefaultRoute)
				return err
			},
			"append": func(ctx context.Context, store *outbox.Store) error {
				_, err := store.Append(ctx, row(uuid.New(), 0))
				return err
			},
			"claim": func(ctx context.Context, store *outbox.Store) error {
				_, err := store.Claim(ctx, 1)
				return err
			},
		} {
			t.Run(name+"/"+first, func(t *testing.T) {
				t.Parallel()
				server := startServer(t)
				db, err := sql.Open("libsql", server.url())
				require.NoError(t, err)
				defer db.Close()
				db.SetMaxIdleConns(streams)
				store := outbox.New(db, nil)
				require.NoError(t, store.Migrate(patiently(t)))
				opened := open(t, server.url(), nil)
				requireWorks(t, opened)

				var conns []*sql.Conn
				for range streams { // all at once, so that the pool has as many
					conn, err := db.Conn(patiently(t))
					require.NoError(t, err)
					var n int
					require.NoError(t, conn.QueryRowContext(patiently(t), "SELECT 1").Scan(&n))
					conns = append(conns, conn)
				}
				for _, conn := range conns {
					require.NoError(t, conn.Close())
				}
				forget(server)
				require.NoError(t, call(patiently(t), opened), "the first call of an opened store")
				require.NoError(t, call(patiently(t), store), "the first call over the host's database")
				requireWorks(t, opened)
				requireWorks(t, store)
			})
		}
	}
}

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

func requireHit(t testing.TB, hit <-chan struct{}) {
	t.Helper()
	select {
	case <-hit:
	default:
		require.Fail(t, "no request had the text that the fault waits for")
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
	t.Parallel()
	server := startServer(t)
	store := open(t, server.url(), nil)
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

func TestConnectionCutInTheMiddleOfACallStoresAllOrNothing(t *testing.T) {
	t.Parallel()
	for _, request := range []struct{ name, text string }{
		{"begin", `"BEGIN IMMEDIATE`},
		{"insert is described", `describe","sql":"INSERT INTO main.outbox (`},
		{"insert", `"stmt":{"sql":"INSERT INTO main.outbox (`},
		{"payload is described", `describe","sql":"INSERT INTO main.outbox_payload`},
		{"payload", `"stmt":{"sql":"INSERT INTO main.outbox_payload`},
	} {
		t.Run("append/"+request.name, func(t *testing.T) {
			t.Parallel()
			proxy := newProxy(t, startServer(t))
			store := open(t, proxy.url(), nil)
			for _, fault := range faults() {
				rows := []outbox.Row{row(uuid.New(), 0), row(uuid.New(), 1)}
				rows[1].Input.Data = make([]byte, 10_000)
				hit := proxy.strike(fault.kind, request.text, fault.after)
				duplicates, err := store.Append(patiently(t), rows...)
				requireHit(t, hit)
				require.Empty(t, duplicates)
				if err != nil {
					require.ErrorIs(t, err, outbox.ErrUnavailable)
				}
				requireStored(t, store, err == nil, rows...)
				requireWorks(t, store)
			}
		})
	}
	for _, request := range []struct{ name, text string }{
		{"begin", `"BEGIN IMMEDIATE`},
		{"update is described", `describe","sql":"UPDATE outbox`},
		{"update", `"stmt":{"sql":"UPDATE outbox`},
		{"payloads are described", `describe","sql":"WITH`},
		{"payloads", `"stmt":{"sql":"WITH`},
	} {
		t.Run("claim/"+request.name, func(t *testing.T) {
			t.Parallel()
			proxy := newProxy(t, startServer(t))
			store := open(t, proxy.url(), nil)
			for _, fault := range faults() {
				rows := []outbox.Row{row(uuid.New(), 0), row(uuid.New(), 1), row(uuid.New(), 2)}
				rows[1].Input.Data = make([]byte, 10_000)
				_, err := store.Append(patiently(t), rows...)
				require.NoError(t, err)
				hit := proxy.strike(fault.kind, request.text, fault.after)
				claimed, err := store.Claim(patiently(t), 10)
				requireHit(t, hit)
				if err != nil {
					require.ErrorIs(t, err, outbox.ErrUnavailable)
					require.Empty(t, claimed)
					outboxtest.RequireCounts(t, store, map[outbox.Status]int{outbox.Pending: 3})
					claimed, err = store.Claim(patiently(t), 10)
					require.NoError(t, err)
				}
				require.Len(t, claimed, 3, "no row is claimed without being handed out")
				for _, row := range claimed {
					require.Equal(t, int64(1), row.Fence)
					require.NoError(t, store.Complete(patiently(t), row.Ref()))
				}
				_, err = store.Purge(patiently(t), time.Now().Add(time.Hour), 10)
				require.NoError(t, err)
			}
			requireWorks(t, store)
		})
	}
	for _, request := range []struct{ name, text string }{
		{"described", `describe","sql":"SELECT`},
		{"select", `"stmt":{"sql":"SELECT`},
	} {
		t.Run("read/"+request.name, func(t *testing.T) {
			t.Parallel()
			proxy := newProxy(t, startServer(t))
			store := open(t, proxy.url(), nil)
			for i := range 4 {
				_, err := store.Append(patiently(t), row(uuid.New(), i))
				require.NoError(t, err)
			}
			for _, fault := range faults() {
				hit := proxy.strike(fault.kind, request.text, fault.after)
				rows, err := store.List(patiently(t), outbox.Filter{})
				requireHit(t, hit)
				if err != nil {
					require.ErrorIs(t, err, outbox.ErrUnavailable)
				} else {
					require.Len(t, rows, 4, "a list that was cut off is not taken for a whole one")
				}
				rows, err = store.List(patiently(t), outbox.Filter{})
				require.NoError(t, err)
				require.Len(t, rows, 4)
			}
			requireWorks(t, store)
		})
	}
}

// faults are a request that is cut, and answers that are cut in several places:
// within their parts and between them.
func faults() []fault {
	list := []fault{{kind: cutRequest}}
	for _, after := range []int{0, 240, 350, 420, 700} {
		list = append(list, fault{kind: cutAnswer, after: after})
	}
	return list
}

// calls are one of each kind, with a row that is claimed.
func calls(store *outbox.Store, claimed outbox.Ref) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"append": func(ctx context.Context) error {
			_, err := store.Append(ctx, row(uuid.New(), 0))
			return err
		},
		"claim": func(ctx context.Context) error {
			_, err := store.Claim(ctx, 1)
			return err
		},
		"extend": func(ctx context.Context) error { return store.Extend(ctx, claimed) },
		"update": func(ctx context.Context) error {
			return store.Update(ctx, func(context.Context, outbox.Tx) error { return nil })
		},
		"count": func(ctx context.Context) error {
			_, err := store.CountInFlight(ctx, outbox.DefaultRoute)
			return err
		},
		"get": func(ctx context.Context) error {
			_, err := store.Get(ctx, claimed.DispatchKey)
			return err
		},
		"rearm stale": func(ctx context.Context) error {
			_, err := store.RearmStale(ctx, time.Unix(0, 0), time.Time{}, 1)
			return err
		},
	}
}

// claimedRow returns a ref of a row that the store has claimed.
func claimedRow(t testing.TB, store *outbox.Store) outbox.Ref {
	t.Helper()
	_, err := store.Append(patiently(t), row(uuid.New(), 0))
	require.NoError(t, err)
	rows, err := store.Claim(patiently(t), 1)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	return rows[0].Ref()
}

// returnsInTime runs call with a deadline that will pass, and fails the test if
// it does not return soon after.
func returnsInTime(t testing.TB, call func(context.Context) error) error {
	t.Helper()
	const deadline, margin = 300 * time.Millisecond, 5 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	returned := make(chan error, 1)
	go func() { returned <- call(ctx) }()
	select {
	case err := <-returned:
		return err
	case <-time.After(deadline + margin):
		require.Fail(t, "a call hangs past its deadline")
		return nil
	}
}

func TestFrozenServerHoldsNoCallPastItsDeadline(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	store := open(t, server.url(), nil)
	claimed := claimedRow(t, store)
	server.freeze()
	for range 2 { // more than the pool has connections
		for name, call := range calls(store, claimed) {
			require.ErrorIs(t, returnsInTime(t, call), context.DeadlineExceeded, name)
		}
	}
	server.thaw()
	requireWorks(t, store)
	require.NoError(t, store.Complete(patiently(t), claimed))
}

func TestServerThatFreezesInTheMiddleOfAnUpdate(t *testing.T) {
	t.Parallel()
	for _, swallows := range []bool{false, true} {
		server := startServer(t)
		store := open(t, server.url(), nil)
		staged := row(uuid.New(), 0)
		err := returnsInTime(t, func(ctx context.Context) error {
			return store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
				_, err := store.AppendTx(ctx, tx, staged)
				require.NoError(t, err)
				server.freeze()
				_, err = store.AppendTx(ctx, tx, row(uuid.New(), 1))
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				if swallows {
					err = nil
				}
				return err
			})
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		server.thaw()
		requireWorks(t, store)
		requireStored(t, store, false, staged)
	}
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

func TestAnswersThatNeverComeDoNotUseUpThePool(t *testing.T) {
	t.Parallel()
	proxy := newProxy(t, startServer(t))
	store := open(t, proxy.url(), nil)
	claimed := claimedRow(t, store)
	for range 20 { // frozen until the test ends
		hit := proxy.strike(freeze, "SELECT", 0)
		err := returnsInTime(t, func(ctx context.Context) error {
			_, err := store.Get(ctx, claimed.DispatchKey)
			return err
		})
		requireHit(t, hit)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	requireWorks(t, store)
}

func TestServerDownWhileGoroutinesAppend(t *testing.T) {
	t.Parallel()
	const (
		writers = 8
		down    = 20 * time.Second
	)
	server := startServer(t)
	store := open(t, server.url(), nil)
	var (
		all      sync.WaitGroup
		attempts atomic.Int64
		failures atomic.Int64
		stop     = make(chan struct{})
		keys     = make([][]string, writers)
	)
	for i := range writers {
		all.Go(func() {
			workflow := uuid.New()
			for ordinal := 0; ; ordinal++ {
				select {
				case <-stop:
					return
				default:
				}
				staged := row(workflow, ordinal)
				for unknown := false; ; {
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					duplicates, err := store.Append(ctx, staged)
					cancel()
					attempts.Add(1)
					if err == nil {
						assert.True(t, unknown || len(duplicates) == 0, "only a lost answer explains a row that is found")
						break
					}
					failures.Add(1)
					if !assert.True(t, typed(err), "an error that no caller can tell: %v", err) ||
						!assert.NotErrorIs(t, err, context.DeadlineExceeded, "a call hangs") {
						return
					}
					unknown = unknown || errors.Is(err, outbox.ErrCommitUnknown)
					time.Sleep(10 * time.Millisecond) // as a caller would before it tries again
				}
				keys[i] = append(keys[i], keysOf(staged)...)
			}
		})
	}
	time.Sleep(time.Second)
	server.kill()
	time.Sleep(down)
	server.start()
	requireWorks(t, store)
	time.Sleep(time.Second)
	close(stop)
	all.Wait()

	acknowledged := 0
	for i := range writers {
		require.NotEmpty(t, keys[i])
		acknowledged += len(keys[i])
		for _, key := range keys[i] {
			_, err := store.State(patiently(t), key)
			require.NoError(t, err, "a row that was acknowledged is lost")
		}
	}
	outboxtest.RequireCounts(t, store, map[outbox.Status]int{outbox.Pending: acknowledged, outbox.Done: 1})
	require.NotZero(t, failures.Load())
	t.Logf("%d rows, %d of %d attempts failed", acknowledged, failures.Load(), attempts.Load())
}

func TestPayloadsNearTheServersLimit(t *testing.T) {
	t.Parallel()
	const largest = 4_999_994 // bytes of a blob that the server stores
	store := open(t, startServer(t).url(), nil)
	ctx := patiently(t)
	rows := []outbox.Row{row(uuid.New(), 0), row(uuid.New(), 1), row(uuid.New(), 2)}
	rows[1].Input.Data = make([]byte, largest)
	for i := range rows[1].Input.Data {
		rows[1].Input.Data[i] = byte(i % 251)
	}
	for _, size := range []int{largest + 1, 5_000_001, 20_000_000} {
		tooLarge := row(uuid.New(), 3)
		tooLarge.Input.Data = make([]byte, size)
		_, err := store.Append(ctx, rows[0], tooLarge, rows[2])
		require.ErrorIs(t, err, outbox.ErrTooLarge, size)
		requireStored(t, store, false, rows[0], tooLarge, rows[2])
		err = store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
			if _, err := store.AppendTx(ctx, tx, rows[2]); err != nil {
				return err
			}
			_, err := store.AppendTx(ctx, tx, tooLarge)
			return err
		})
		require.ErrorIs(t, err, outbox.ErrTooLarge, size)
		requireStored(t, store, false, rows[2], tooLarge)
	}
	_, err := store.Append(ctx, rows...)
	require.NoError(t, err)
	for fence := int64(1); fence <= 2; fence++ {
		claimed, err := store.Claim(ctx, 10)
		require.NoError(t, err)
		require.Len(t, claimed, len(rows))
		for _, row := range claimed {
			require.Equal(t, fence, row.Fence)
			want := rows[row.Ordinal].Input.Data
			require.True(t, string(want) == string(row.Input.Data), "the payload comes back to the byte")
			require.NoError(t, store.Extend(ctx, row.Ref()))
		}
		stale, err := store.ListStale(ctx, time.Now().Add(time.Hour), 10)
		require.NoError(t, err)
		require.Len(t, stale, len(rows))
		rearmed, err := store.RearmStale(ctx, time.Now().Add(time.Hour), time.Time{}, 10)
		require.NoError(t, err)
		require.Len(t, rearmed, len(rows))
	}
	listed, err := store.List(ctx, outbox.Filter{})
	require.NoError(t, err)
	require.Len(t, listed, len(rows))
	got, err := store.Get(ctx, keysOf(rows[1])[0])
	require.NoError(t, err)
	require.Len(t, got.Input.Data, largest)
	claimed, err := store.Claim(ctx, 10)
	require.NoError(t, err)
	for _, row := range claimed {
		require.NoError(t, store.Complete(ctx, row.Ref()))
	}
	outboxtest.RequireCounts(t, store, map[outbox.Status]int{outbox.Done: len(rows)})
	requireWorks(t, store)
}

func TestGatewayThatAnswersInTheServersStead(t *testing.T) {
	t.Parallel()
	proxy := newProxy(t, startServer(t))
	store := open(t, proxy.url(), nil)
	for _, status := range []int64{200, 429, 500, 502, 503, 504} {
		claimed := claimedRow(t, store)
		proxy.status.Store(status)
		for name, call := range calls(store, claimed) {
			require.ErrorIs(t, call(patiently(t)), outbox.ErrUnavailable, "%s, status %d", name, status)
		}
		proxy.status.Store(0)
		staged := row(uuid.New(), 0)
		err := store.Update(patiently(t), func(ctx context.Context, tx outbox.Tx) error {
			_, err := store.AppendTx(ctx, tx, staged)
			proxy.status.Store(status)
			return err
		})
		require.ErrorIs(t, err, outbox.ErrCommitUnknown, "the server may have done what the gateway does not tell")
		proxy.status.Store(0)
		requireStored(t, store, false, staged)
		requireWorks(t, store)
	}
}
