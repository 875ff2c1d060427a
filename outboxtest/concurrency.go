package outboxtest

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

var concurrencyRules = []rule{
	{"goroutines append, claim, read and complete without a lock error, and every row exactly once", func(s *suite) {
		const writers, each = 16, 25
		var (
			all      sync.WaitGroup
			settled  atomic.Int64
			mu       sync.Mutex
			handed   = map[outbox.Ref]bool{}
			problems = make(chan error, 1000)
		)
		check := func(err error) {
			if err != nil {
				problems <- err
			}
		}
		for range writers {
			all.Go(func() {
				workflow := uuid.New()
				for i := range each {
					_, err := s.Append(s.ctx, outbox.Row{WorkflowID: workflow, Ordinal: uint64(i), ActivityType: "send"})
					check(err)
				}
			})
			all.Go(func() {
				for settled.Load() < writers*each && len(problems) == 0 {
					rows, err := s.Claim(s.ctx, 10)
					check(err)
					for _, row := range rows {
						mu.Lock()
						if handed[row.Ref()] {
							s.t.Errorf("%v was handed out twice", row.Ref())
						}
						handed[row.Ref()] = true
						mu.Unlock()
						check(s.Complete(s.ctx, row.Ref()))
						settled.Add(1)
					}
					if len(rows) == 0 {
						_, err = s.CountInFlight(s.ctx, "default")
						check(err)
						time.Sleep(time.Millisecond)
					}
				}
			})
		}
		all.Wait()
		select {
		case err := <-problems:
			require.NoError(s.t, err)
		default:
		}
		require.Len(s.t, handed, writers*each)
		RequireCounts(s.t, s.Store, map[outbox.Status]int{outbox.Done: writers * each})
	}},
	{"contexts cancelled at every point leave calls whole and the store working", func(s *suite) {
		for i := range 150 {
			ctx, cancel := context.WithTimeout(s.ctx, time.Duration(i)*20*time.Microsecond)
			large := s.row(2*i + 1) // is stored by a statement of its own
			large.Input.Data = make([]byte, 10_000)
			_, appendErr := s.Append(ctx, s.row(2*i), large)
			updateErr := s.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
				_, err := s.AppendTx(ctx, tx, s.row(10_000+i))
				return err
			})
			_, _ = s.Claim(ctx, 1)
			_, _ = s.Get(ctx, s.key(i))
			cancel()
			keys := s.keys(2*i, 2*i+1)
			stored := s.count(`SELECT count(*) FROM outbox WHERE dispatch_key IN (?, ?)`, keys[0], keys[1])
			switch {
			case appendErr == nil:
				require.Equal(s.t, 2, stored)
			case errors.Is(appendErr, outbox.ErrCommitUnknown): // a COMMIT may be slow on a busy machine
				require.NotEqual(s.t, 1, stored)
			default:
				require.Zero(s.t, stored)
			}
			_, err := s.State(s.ctx, s.key(10_000+i))
			if !errors.Is(updateErr, outbox.ErrCommitUnknown) {
				require.Equal(s.t, updateErr == nil, err == nil)
			}
		}
		for range 200 {
			_, err := s.Claim(s.ctx, 1)
			require.NoError(s.t, err)
		}
	}},
	{"parallel reads see the same data", func(s *suite) {
		s.stageN(50)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				rows, err := s.List(s.ctx, outbox.Filter{})
				if err != nil || len(rows) != 50 {
					s.t.Errorf("%d rows, %v", len(rows), err)
				}
			})
		}
		all.Wait()
	}},
	{"of calls made at once each has its own outcome", func(s *suite) {
		s.exec(`CREATE TRIGGER picky BEFORE INSERT ON outbox WHEN NEW.activity_type = 'abort' BEGIN SELECT RAISE(ABORT, 'picky'); END`)
		s.exec(`CREATE TRIGGER ruinous BEFORE INSERT ON outbox WHEN NEW.activity_type = 'rollback' BEGIN SELECT RAISE(ROLLBACK, 'ruinous'); END`)
		s.stage(s.row(1000), s.row(1001))
		claimed := s.claim(2)
		const calls = 24
		var (
			all      sync.WaitGroup
			outcomes [calls]error
		)
		cancelled, cancel := context.WithCancel(s.ctx)
		kinds := []string{"send", "abort", "rollback", "cancelled", "lost", "complete"}
		// While this Update holds the lock, the others gather behind it.
		require.NoError(s.t, s.Update(s.ctx, func(context.Context, outbox.Tx) error {
			for i := range calls {
				all.Go(func() {
					row := s.row(i)
					row.ActivityType = kinds[i%len(kinds)]
					switch row.ActivityType {
					case "cancelled":
						_, outcomes[i] = s.Append(cancelled, row)
					case "lost":
						outcomes[i] = s.Complete(s.ctx, outbox.Ref{DispatchKey: claimed[0].DispatchKey, Fence: 99})
					case "complete":
						outcomes[i] = s.Complete(s.ctx, claimed[1].Ref())
					default:
						_, outcomes[i] = s.Append(s.ctx, row)
					}
				})
			}
			waitForWriters(s.t, calls)
			cancel()
			return nil
		}))
		all.Wait()
		for i, outcome := range outcomes {
			_, err := s.State(s.ctx, s.key(i))
			switch kinds[i%len(kinds)] {
			case "send":
				require.NoError(s.t, outcome)
				require.NoError(s.t, err)
				continue
			case "abort":
				require.ErrorContains(s.t, outcome, "picky")
			case "rollback":
				require.ErrorContains(s.t, outcome, "ruinous")
			case "cancelled":
				require.ErrorIs(s.t, outcome, context.Canceled)
			case "lost":
				require.ErrorIs(s.t, outcome, outbox.ErrClaimLost)
			case "complete":
				require.NoError(s.t, outcome)
			}
			require.ErrorIs(s.t, err, outbox.ErrNotFound)
		}
		require.Equal(s.t, outbox.Claimed, s.status(claimed[0].DispatchKey))
		require.Equal(s.t, outbox.Done, s.status(claimed[1].DispatchKey))
	}},
	{"writers are served in the order they came", func(s *suite) {
		const waiting = 20
		var (
			all   sync.WaitGroup
			mu    sync.Mutex
			order []int
		)
		require.NoError(s.t, s.Update(s.ctx, func(context.Context, outbox.Tx) error {
			for i := range waiting {
				all.Go(func() {
					err := s.Update(s.ctx, func(context.Context, outbox.Tx) error {
						mu.Lock()
						defer mu.Unlock()
						order = append(order, i)
						return nil
					})
					if err != nil {
						s.t.Error(err)
					}
				})
				waitForWriters(s.t, i+1)
			}
			return nil
		}))
		all.Wait()
		for i := range waiting {
			require.Equal(s.t, i, order[i])
		}
	}},
}

// waitForWriters waits until as many goroutines as that stand in line to write.
// No method tells, so it looks at their stacks.
func waitForWriters(t *testing.T, want int) {
	t.Helper()
	stacks := make([]byte, 8<<20)
	for range 10_000 {
		standing := 0
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			state, calls, _ := strings.Cut(stack, "\n")
			if strings.Contains(state, "[select") && strings.Contains(calls, "engine.(*line).take(") {
				standing++
			}
		}
		if standing >= want {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("never: %d writers in line", want)
}
