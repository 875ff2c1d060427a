package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	_ "github.com/tursodatabase/go-libsql"
)

// bench is a store in memory with a dispatcher on it, in a bubble whose clock
// advances when nothing is left to do.
type bench struct {
	t     *testing.T
	store *outbox.Store
	stop  context.CancelFunc
	ended chan error // what Run returned
}

// inBubble runs test with a store in memory. What it starts must have ended when
// it returns.
func inBubble(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, err := outbox.Open(context.Background(), "libsql", ":memory:", &outbox.Options{Logger: quiet()})
		require.NoError(t, err)
		b := &bench{t: t, store: store}
		test(t, b)
		if b.stop != nil {
			b.end()
		}
		outboxtest.Check(t, store)
		require.NoError(t, store.Close())
	})
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// run starts a dispatcher.
func (b *bench) run(handler dispatch.Handler, opts dispatch.Options) *dispatch.Dispatcher {
	b.t.Helper()
	if opts.Logger == nil {
		opts.Logger = quiet()
	}
	dispatcher := dispatch.New(b.store, handler, &opts)
	var ctx context.Context
	ctx, b.stop = context.WithCancel(b.t.Context())
	b.ended = make(chan error, 1)
	go func() { b.ended <- dispatcher.Run(ctx) }()
	return dispatcher
}

// end stops the dispatcher, which must end cleanly.
func (b *bench) end() {
	b.t.Helper()
	b.stop()
	require.NoError(b.t, <-b.ended)
	b.stop = nil
}

// append stages n rows of a workflow of its own and returns their keys.
func (b *bench) append(n int, change func(row *outbox.Row)) []string {
	b.t.Helper()
	workflow := uuid.New()
	rows := make([]outbox.Row, n)
	keys := make([]string, n)
	for i := range rows {
		rows[i] = outbox.Row{WorkflowID: workflow, Ordinal: uint64(i), ActivityType: "test"}
		keys[i] = outbox.DispatchKey(workflow, uint64(i))
		if change != nil {
			change(&rows[i])
		}
	}
	_, err := b.store.Append(b.t.Context(), rows...)
	require.NoError(b.t, err)
	return keys
}

func (b *bench) get(key string) outbox.Row {
	b.t.Helper()
	row, err := b.store.Get(b.t.Context(), key)
	require.NoError(b.t, err)
	return row
}

func (b *bench) requireStatus(want outbox.Status, keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		require.Equal(b.t, want, b.get(key).Status, key)
	}
}

// recorder notes what it is told.
type recorder struct {
	mu       sync.Mutex
	claimed  int
	largest  int // claim
	outcomes map[dispatch.Outcome]int
	errors   map[string]int
}

func (r *recorder) observer() dispatch.Observer {
	r.outcomes, r.errors = map[dispatch.Outcome]int{}, map[string]int{}
	return dispatch.Observer{
		Claimed: func(rows []outbox.Row) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.claimed += len(rows)
			r.largest = max(r.largest, len(rows))
		},
		Settled: func(_ context.Context, _ outbox.Row, outcome dispatch.Outcome, _ time.Duration, _ error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.outcomes[outcome]++
		},
		Recovered: func(_ outbox.Row, outcome dispatch.Outcome) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.outcomes["recovered: "+outcome]++
		},
		StoreError: func(operation string, _ error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.errors[operation]++
		},
	}
}

func (r *recorder) count(outcome dispatch.Outcome) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outcomes[outcome]
}

func nothing(context.Context, outbox.Row) error { return nil }

var errTest = errors.New("did not work")

func TestResultOfAHandlerDecidesWhatBecomesOfItsRow(t *testing.T) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of a bubble
	for name, c := range map[string]struct {
		handler   dispatch.Handler
		attempt   uint32
		want      outbox.Status
		attempts  uint32
		delay     time.Duration
		lastError string
		outcome   dispatch.Outcome
	}{
		"nil completes":              {handler: nothing, want: outbox.Done, outcome: dispatch.Completed},
		"an error retries later":     {handler: failing(errTest), want: outbox.Pending, attempts: 1, delay: 7 * time.Second, lastError: "did not work", outcome: dispatch.Retried},
		"the last attempt fails":     {handler: failing(errTest), attempt: 2, want: outbox.Failed, attempts: 2, lastError: "did not work", outcome: dispatch.Failed},
		"permanent fails":            {handler: failing(fmt.Errorf("wrapped: %w", dispatch.Permanent(errTest))), want: outbox.Failed, lastError: "wrapped: did not work", outcome: dispatch.Failed},
		"retry after retries then":   {handler: failing(dispatch.RetryAfter(time.Hour, errTest)), want: outbox.Pending, attempts: 1, delay: time.Hour, lastError: "did not work", outcome: dispatch.Retried},
		"retry after has a last too": {handler: failing(dispatch.RetryAfter(time.Hour, errTest)), attempt: 2, want: outbox.Failed, attempts: 2, lastError: "did not work", outcome: dispatch.Failed},
		"accepted stays claimed":     {handler: failing(dispatch.Accepted), want: outbox.Claimed, outcome: dispatch.OutcomeAccepted},
		"a panic is an error":        {handler: func(context.Context, outbox.Row) error { panic("ouch") }, want: outbox.Pending, attempts: 1, delay: 7 * time.Second, lastError: "ouch", outcome: dispatch.Retried},
		"an ended goroutine as well": {handler: func(context.Context, outbox.Row) error { runtime.Goexit(); return nil }, want: outbox.Pending, attempts: 1, delay: 7 * time.Second, lastError: "ended its goroutine", outcome: dispatch.Retried},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				keys := b.append(1, func(row *outbox.Row) { row.Attempt = c.attempt })
				var seen recorder
				b.run(c.handler, dispatch.Options{
					MaxAttempts: 3,
					Backoff:     func(attempt uint32) time.Duration { return time.Duration(7+attempt) * time.Second },
					Observer:    seen.observer(),
				})
				synctest.Wait()
				row := b.get(keys[0])
				require.Equal(t, c.want, row.Status)
				require.Equal(t, c.attempts, row.Attempt)
				require.Contains(t, row.LastError, c.lastError)
				if row.Status == outbox.Pending {
					require.Equal(t, start.Add(c.delay), row.VisibleAfter)
				}
				require.Equal(t, 1, seen.count(c.outcome))
			})
		})
	}
}

func failing(err error) dispatch.Handler {
	return func(context.Context, outbox.Row) error { return err }
}

func TestPanicLeavesItsStackInTheLastError(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(1, nil)
		b.run(func(context.Context, outbox.Row) error { panic(errTest) }, dispatch.Options{})
		synctest.Wait()
		require.Contains(t, b.get(keys[0]).LastError, "TestPanicLeavesItsStackInTheLastError")
	})
}

func TestRetryNowRunsAgainWithoutDelayAndSpendsAnAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(1, nil)
		start := time.Now()
		b.run(func(_ context.Context, row outbox.Row) error {
			if row.Attempt < 3 {
				return dispatch.RetryNow(errTest)
			}
			return nil
		}, dispatch.Options{})
		synctest.Wait()
		require.Equal(t, uint32(3), b.get(keys[0]).Attempt)
		b.requireStatus(outbox.Done, keys...)
		require.Equal(t, start, time.Now(), "no time has passed")
	})
}

func TestNeverMoreHandlersThanConcurrencyAndNoRowIsClaimedThatCannotStart(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(50, nil)
		var seen recorder
		var mu sync.Mutex
		running, most := 0, 0
		b.run(func(context.Context, outbox.Row) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second)
			counts, err := b.store.CountClaimed(context.Background(), outbox.DefaultRoute)
			mu.Lock()
			defer mu.Unlock()
			running--
			if counts > 4 {
				return fmt.Errorf("%d rows are claimed", counts)
			}
			return err
		}, dispatch.Options{Concurrency: 4, MaxAttempts: 1, Observer: seen.observer()})
		time.Sleep(time.Minute)
		b.requireStatus(outbox.Done, keys...)
		require.Equal(t, 4, most)
		require.Equal(t, 4, seen.largest)
		require.Equal(t, 50, seen.claimed)
	})
}

func TestRowThatFallsDueStartsThenAlsoBehindHeldOnes(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		held := uuid.New()
		b.append(3, func(row *outbox.Row) { row.WorkflowID = held; row.DispatchKey = uuid.NewString() })
		start := time.Now()
		due := start.Add(1234 * time.Millisecond)
		b.append(1, func(row *outbox.Row) { row.VisibleAfter = due })
		var began time.Time
		b.run(func(context.Context, outbox.Row) error {
			began = time.Now()
			return nil
		}, dispatch.Options{PollInterval: time.Hour, Held: func() []uuid.UUID { return []uuid.UUID{held} }})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, due, began)
	})
}

func TestRowStagedInThisProcessStartsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var took time.Duration
		staged := time.Now()
		b.run(func(context.Context, outbox.Row) error {
			took = time.Since(staged)
			return nil
		}, dispatch.Options{PollInterval: time.Hour})
		time.Sleep(10 * time.Minute)
		staged = time.Now()
		keys := b.append(1, nil)
		synctest.Wait()
		b.requireStatus(outbox.Done, keys...)
		require.Zero(t, took)
	})
}

func TestHeldWorkflowIsTakenUpWhenItIsHeldNoLonger(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var mu sync.Mutex
		workflow := uuid.New()
		held := []uuid.UUID{workflow}
		keys := b.append(2, func(row *outbox.Row) { row.WorkflowID = workflow; row.DispatchKey = "held:" + uuid.NewString() })
		rows, err := b.store.List(t.Context(), outbox.Filter{})
		require.NoError(t, err)
		for i, row := range rows {
			keys[i] = row.DispatchKey
		}
		dispatcher := b.run(nothing, dispatch.Options{PollInterval: time.Hour, Held: func() []uuid.UUID {
			mu.Lock()
			defer mu.Unlock()
			return held
		}})
		time.Sleep(time.Minute)
		b.requireStatus(outbox.Pending, keys...)
		mu.Lock()
		held = nil
		mu.Unlock()
		dispatcher.Wake()
		synctest.Wait()
		b.requireStatus(outbox.Done, keys...)
	})
}

func TestErrorsOfTheStoreAreSurvivedWithoutSpinning(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		exec := func(statement string) {
			require.NoError(t, b.store.Update(t.Context(), func(ctx context.Context, tx outbox.Tx) error {
				_, err := tx.ExecContext(ctx, statement)
				return err
			}))
		}
		exec(`CREATE TRIGGER broken BEFORE UPDATE ON outbox BEGIN SELECT RAISE(ABORT, 'broken'); END`)
		keys := b.append(5, nil)
		var seen recorder
		b.run(nothing, dispatch.Options{Observer: seen.observer()})
		time.Sleep(10 * time.Minute)
		b.requireStatus(outbox.Pending, keys...)
		seen.mu.Lock()
		tries := seen.errors["claim"]
		seen.mu.Unlock()
		require.Greater(t, tries, 30)
		require.Less(t, tries, 300, "in ten minutes")
		exec(`DROP TRIGGER broken`)
		time.Sleep(time.Minute)
		b.requireStatus(outbox.Done, keys...)
	})
}

func TestOutcomeIsStoredHoweverOftenTheStoreFails(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		exec := func(statement string) {
			require.NoError(t, b.store.Update(t.Context(), func(ctx context.Context, tx outbox.Tx) error {
				_, err := tx.ExecContext(ctx, statement)
				return err
			}))
		}
		exec(`CREATE TRIGGER broken BEFORE UPDATE ON outbox WHEN NEW.status = 'done' BEGIN SELECT RAISE(ABORT, 'broken'); END`)
		keys := b.append(5, nil)
		var seen recorder
		handled := 0
		b.run(func(context.Context, outbox.Row) error { handled++; return nil }, dispatch.Options{Concurrency: 1, Observer: seen.observer()})
		time.Sleep(10 * time.Minute)
		require.Equal(t, 1, handled, "its row is held until its outcome is stored, however long that takes")
		exec(`DROP TRIGGER broken`)
		time.Sleep(time.Minute)
		b.requireStatus(outbox.Done, keys...)
		require.Equal(t, 5, handled)
	})
}

func TestClosedStoreEndsRun(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		other, err := outbox.Open(t.Context(), "libsql", ":memory:", nil)
		require.NoError(t, err)
		dispatcher := dispatch.New(other, nothing, &dispatch.Options{Logger: quiet()})
		ended := make(chan error)
		go func() { ended <- dispatcher.Run(t.Context()) }()
		synctest.Wait()
		require.ErrorContains(t, dispatcher.Run(t.Context()), "already")
		require.NoError(t, other.Close())
		require.ErrorIs(t, <-ended, outbox.ErrClosed)
		require.Error(t, dispatch.New(b.store, nil, nil).Run(t.Context()))
	})
}

func TestExponentialDoublesVariesAndNeverOverflows(t *testing.T) {
	backoff := dispatch.Exponential(time.Second, time.Hour)
	for attempt, longest := range map[uint32]time.Duration{
		0: time.Second, 1: 2 * time.Second, 11: 2048 * time.Second, 12: time.Hour, 62: time.Hour, 63: time.Hour, 64: time.Hour, 1<<32 - 1: time.Hour,
	} {
		for range 1000 {
			pause := backoff(attempt)
			require.LessOrEqual(t, pause, longest)
			require.GreaterOrEqual(t, pause, longest/2)
		}
	}
	require.Positive(t, dispatch.Exponential(0, -1)(7))
	require.Positive(t, dispatch.Exponential(1<<62, 1<<63-1)(1<<31))
}
