package dispatch_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// shards are stores in memory, each with a dispatcher of one pool.
type shards struct {
	t       *testing.T
	benches []*bench
	stop    context.CancelFunc
	ended   chan error

	mu      sync.Mutex
	running int
	most    int
	started []started
}

type started struct {
	shard int
	at    time.Time
}

// inShards runs test with n stores.
func inShards(t *testing.T, n int, test func(t *testing.T, s *shards)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &shards{t: t}
		for range n {
			store, err := outbox.Open(context.Background(), "libsql", ":memory:", &outbox.Options{Logger: quiet()})
			require.NoError(t, err)
			s.benches = append(s.benches, &bench{t: t, store: store})
		}
		test(t, s)
		if s.stop != nil {
			s.end()
		}
		for _, b := range s.benches {
			if _, err := b.store.UnsettledWorkflows(t.Context()); err == nil {
				outboxtest.Check(t, b.store)
			}
			require.NoError(t, b.store.Close())
		}
	})
}

// run starts a dispatcher a store, whose handlers take a second.
func (s *shards) run(handlers int, change func(shard int, opts *dispatch.Options)) {
	pool := dispatch.NewPool(handlers)
	dispatchers := make([]*dispatch.Dispatcher, len(s.benches))
	for i, b := range s.benches {
		opts := dispatch.Options{Pool: pool, Logger: quiet()}
		if change != nil {
			change(i, &opts)
		}
		dispatchers[i] = dispatch.New(b.store, func(ctx context.Context, row outbox.Row) error {
			s.mu.Lock()
			s.running++
			s.most = max(s.most, s.running)
			s.started = append(s.started, started{i, time.Now()})
			s.mu.Unlock()
			defer func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.running--
			}()
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}, &opts)
	}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(s.t.Context())
	s.ended = make(chan error, 1)
	go func() { s.ended <- dispatch.RunAll(ctx, dispatchers...) }()
}

func (s *shards) end() {
	s.t.Helper()
	s.stop()
	require.NoError(s.t, <-s.ended)
	s.stop = nil
}

// count returns how many handlers were started of each shard within an interval.
func (s *shards) count(from, to time.Time) map[int]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[int]int{}
	for _, one := range s.started {
		if !one.at.Before(from) && one.at.Before(to) {
			counts[one.shard]++
		}
	}
	return counts
}

func TestDispatchersOfAPoolRunNoMoreHandlersThanItHas(t *testing.T) {
	inShards(t, 5, func(t *testing.T, s *shards) {
		var keys [][]string
		for _, b := range s.benches {
			keys = append(keys, b.append(30, nil))
		}
		s.run(8, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 8, s.most, "and all of them")
		for i, b := range s.benches {
			b.requireStatus(outbox.Done, keys[i]...)
		}
	})
}

func TestOneStoreWithWorkUsesTheWholePoolButForItsConcurrency(t *testing.T) {
	inShards(t, 4, func(t *testing.T, s *shards) {
		s.benches[2].append(100, nil)
		s.benches[3].append(100, nil)
		start := time.Now()
		s.run(8, func(shard int, opts *dispatch.Options) {
			if shard == 3 {
				opts.Concurrency = 3
			}
		})
		time.Sleep(10 * time.Second)
		counts := s.count(start.Add(time.Second), start.Add(9*time.Second))
		require.Equal(t, 8*8, counts[2]+counts[3], "all that the pool has")
		require.InDelta(t, 3*8, counts[3], 4)
		require.LessOrEqual(t, counts[3], 3*8)
	})
}

func TestBacklogOfOneStoreDelaysAnothersFirstRowByOneHandler(t *testing.T) {
	inShards(t, 6, func(t *testing.T, s *shards) {
		s.benches[0].append(1000, nil)
		s.run(4, nil)
		time.Sleep(10*time.Second + 500*time.Millisecond)
		staged := time.Now()
		for _, b := range s.benches[1:4] {
			b.append(1, nil)
		}
		time.Sleep(3 * time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		first := map[int]time.Duration{}
		for _, one := range s.started {
			if wait := one.at.Sub(staged); wait >= 0 && one.shard > 0 {
				first[one.shard] = wait
			}
		}
		require.Equal(t, map[int]time.Duration{1: time.Second / 2, 2: time.Second / 2, 3: time.Second / 2}, first)
	})
}

func TestStoresWithBacklogsHaveEqualPartsOfThePool(t *testing.T) {
	inShards(t, 3, func(t *testing.T, s *shards) {
		s.benches[0].append(1000, nil)
		start := time.Now()
		s.run(12, nil)
		time.Sleep(5500 * time.Millisecond)
		s.benches[1].append(1000, nil)
		s.benches[2].append(1000, nil)
		time.Sleep(20 * time.Second)
		counts := s.count(start.Add(10*time.Second), start.Add(20*time.Second))
		for shard, n := range counts {
			require.InDelta(t, 40, n, 4, fmt.Sprint(counts, " of shard ", shard))
		}
		require.Len(t, counts, 3)
	})
}

func TestMoreStoresThanHandlersTakeTurns(t *testing.T) {
	inShards(t, 9, func(t *testing.T, s *shards) {
		for _, b := range s.benches {
			b.append(50, nil)
		}
		start := time.Now()
		s.run(2, nil)
		time.Sleep(46 * time.Second)
		counts := s.count(start, start.Add(45*time.Second))
		require.Len(t, counts, 9)
		for shard, n := range counts {
			require.InDelta(t, 10, n, 3, fmt.Sprint(counts, " of shard ", shard))
		}
	})
}

func TestStoreThatFailsOrIsClosedDoesNotStopTheOthers(t *testing.T) {
	inShards(t, 4, func(t *testing.T, s *shards) {
		require.NoError(t, s.benches[0].store.Update(t.Context(), func(ctx context.Context, tx outbox.Tx) error {
			_, err := tx.ExecContext(ctx, `CREATE TRIGGER broken BEFORE UPDATE ON outbox BEGIN SELECT RAISE(ABORT, 'broken'); END`)
			return err
		}))
		for _, b := range s.benches {
			b.append(30, nil)
		}
		var seen recorder
		s.run(3, func(shard int, opts *dispatch.Options) {
			if shard == 0 {
				opts.Observer = seen.observer()
			}
		})
		synctest.Wait()
		require.NoError(t, s.benches[1].store.Close())
		time.Sleep(40 * time.Second)
		for _, b := range s.benches[2:] {
			workflows, err := b.store.UnsettledWorkflows(t.Context())
			require.NoError(t, err)
			require.Empty(t, workflows)
		}
		seen.mu.Lock()
		require.Less(t, seen.errors["claim"], 20)
		seen.mu.Unlock()
		require.NoError(t, s.benches[0].store.Update(t.Context(), func(ctx context.Context, tx outbox.Tx) error {
			_, err := tx.ExecContext(ctx, `DROP TRIGGER broken`)
			return err
		}))
		time.Sleep(30 * time.Second)
		workflows, err := s.benches[0].store.UnsettledWorkflows(t.Context())
		require.NoError(t, err)
		require.Empty(t, workflows)
		s.stop()
		require.ErrorIs(t, <-s.ended, outbox.ErrClosed)
		s.stop = nil
	})
}

func TestStoreThatDoesNotAnswerKeepsNoHandlersFromTheOthers(t *testing.T) {
	inShards(t, 3, func(t *testing.T, s *shards) {
		s.benches[0].append(200, nil)
		s.benches[1].append(200, nil)
		var hang sync.WaitGroup
		hang.Add(1)
		s.run(8, func(shard int, opts *dispatch.Options) {
			if shard == 0 { // its claim does not end
				opts.HeldContext = func(context.Context) ([]uuid.UUID, error) {
					hang.Wait()
					return nil, nil
				}
			}
		})
		start := time.Now()
		time.Sleep(9500 * time.Millisecond)
		require.GreaterOrEqual(t, s.count(start.Add(time.Second), start.Add(9*time.Second))[1], 4*8-4)
		hang.Done()
	})
}

func TestShutdownOfAPoolStoresTheOutcomesOfAll(t *testing.T) {
	inShards(t, 3, func(t *testing.T, s *shards) {
		for _, b := range s.benches {
			b.append(10, nil)
		}
		s.run(6, nil)
		time.Sleep(1500 * time.Millisecond)
		begun := time.Now()
		s.end()
		require.Equal(t, 500*time.Millisecond, time.Since(begun))
		counts := map[outbox.Status]int{}
		for _, b := range s.benches {
			rows, err := b.store.List(t.Context(), outbox.Filter{})
			require.NoError(t, err)
			for _, row := range rows {
				counts[row.Status]++
			}
		}
		require.Equal(t, map[outbox.Status]int{outbox.Done: 12, outbox.Pending: 18}, counts)
	})
}

func TestPoolServesADispatcherThatComesLaterAndOneThatWent(t *testing.T) {
	inShards(t, 2, func(t *testing.T, s *shards) {
		pool := dispatch.NewPool(2)
		for range 3 {
			for _, b := range s.benches {
				keys := b.append(5, nil)
				b.run(nothing, dispatch.Options{Pool: pool})
				synctest.Wait()
				b.requireStatus(outbox.Done, keys...)
				b.end()
			}
		}
	})
}
