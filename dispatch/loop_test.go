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
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

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
