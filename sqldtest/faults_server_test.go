//go:build sqld

package sqldtest

import (
	"context"
	"database/sql"
	"errors"
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

func TestStoreSurvivesAServerThatForgotAllItsStreams(t *testing.T) {
	eachDriver(t, testStoreSurvivesAServerThatForgotAllItsStreams)
}

func testStoreSurvivesAServerThatForgotAllItsStreams(t *testing.T, driver string) {
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
				db, err := sql.Open(driver, server.url())
				require.NoError(t, err)
				defer db.Close()
				db.SetMaxIdleConns(streams)
				store := outbox.New(db, nil)
				require.NoError(t, store.Migrate(patiently(t)))
				opened := openOver(t, driver, server.url(), nil)
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

func TestFrozenServerHoldsNoCallPastItsDeadline(t *testing.T) {
	eachDriver(t, testFrozenServerHoldsNoCallPastItsDeadline)
}

func testFrozenServerHoldsNoCallPastItsDeadline(t *testing.T, driver string) {
	t.Parallel()
	server := startServer(t)
	store := openOver(t, driver, server.url(), nil)
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
	eachDriver(t, testServerDownWhileGoroutinesAppend)
}

func testServerDownWhileGoroutinesAppend(t *testing.T, driver string) {
	t.Parallel()
	const (
		writers = 8
		down    = 20 * time.Second
	)
	server := startServer(t)
	store := openOver(t, driver, server.url(), nil)
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
