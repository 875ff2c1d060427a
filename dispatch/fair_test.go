package dispatch_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func inNamespace(name string) func(row *outbox.Row) {
	return func(row *outbox.Row) { row.Namespace = name }
}

func TestTenantWithManyRowsDelaysAnothersFirstByOneRound(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.append(2000, inNamespace("large"))
		for i := range 5 {
			b.append(3, inNamespace(fmt.Sprint("small-", i)))
		}
		var mu sync.Mutex
		var order []string
		b.run(func(_ context.Context, row outbox.Row) error {
			mu.Lock()
			order = append(order, row.Namespace)
			mu.Unlock()
			time.Sleep(time.Second)
			return nil
		}, dispatch.Options{Concurrency: 2, AllRoutes: true})
		time.Sleep(20 * time.Second)
		first := map[string]int{}
		mu.Lock()
		defer mu.Unlock()
		for i, namespace := range order {
			if _, seen := first[namespace]; !seen {
				first[namespace] = i
			}
		}
		require.Len(t, first, 6)
		for namespace, i := range first {
			require.LessOrEqual(t, i, 7, namespace)
		}
	})
}

func TestNoMoreRowsOfANamespaceAreClaimedThanItsLimit(t *testing.T) {
	for name, scopes := range map[string][]outbox.Scope{
		"all routes": nil,
		"scopes":     {{Namespace: "a", TaskQueue: "default"}, {Namespace: "b", TaskQueue: "default"}, {Namespace: "none", TaskQueue: "default"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				keys := slices.Concat(b.append(20, inNamespace("a")), b.append(20, inNamespace("b")))
				never := b.append(1, inNamespace("none"))
				limits := map[string]int{"a": 2, "b": 5}
				most := map[string]int{}
				var mu sync.Mutex
				running := map[string]int{}
				b.run(func(_ context.Context, row outbox.Row) error {
					mu.Lock()
					running[row.Namespace]++
					most[row.Namespace] = max(most[row.Namespace], running[row.Namespace])
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					running[row.Namespace]--
					mu.Unlock()
					return nil
				}, dispatch.Options{Scopes: scopes, PollInterval: time.Hour, MaxPerNamespace: func(namespace string) int { return limits[namespace] }})
				time.Sleep(11 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, limits, most, "as many as allowed, and no more")
				b.requireStatus(outbox.Done, keys...)
				b.requireStatus(outbox.Pending, never...)
			})
		})
	}
}

func TestRowsClaimedElsewhereCountForTheLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(10, nil)
		elsewhere, err := b.store.Claim(t.Context(), 3)
		require.NoError(t, err)
		var mu sync.Mutex
		begun := 0
		b.run(func(context.Context, outbox.Row) error {
			mu.Lock()
			begun++
			mu.Unlock()
			time.Sleep(time.Hour)
			return nil
		}, dispatch.Options{MaxPerNamespace: dispatch.Limit(4), Lease: 48 * time.Hour, PollInterval: 30 * time.Second})
		time.Sleep(time.Minute)
		mu.Lock()
		require.Equal(t, 1, begun)
		mu.Unlock()
		for _, row := range elsewhere {
			require.NoError(t, b.store.Complete(t.Context(), row.Ref()))
		}
		time.Sleep(time.Minute)
		mu.Lock()
		require.Equal(t, 4, begun, "the poll interval finds the room")
		mu.Unlock()
		time.Sleep(4 * time.Hour)
		b.requireStatus(outbox.Done, keys...)
	})
}

func TestOnlyTheRoutesOfAScopeAreClaimed(t *testing.T) {
	route := func(namespace, queue, node string) func(row *outbox.Row) {
		return func(row *outbox.Row) { row.Namespace, row.TaskQueue, row.Node = namespace, queue, node }
	}
	inBubble(t, func(t *testing.T, b *bench) {
		mine := slices.Concat(b.append(3, route("a", "q", "")), b.append(3, route("a", "q", "n")), b.append(40, route("b", "q", "")))
		others := slices.Concat(b.append(3, route("a", "other", "")), b.append(3, route("a", "q", "m")), b.append(3, route("b", "q", "n")))
		b.run(nothing, dispatch.Options{Concurrency: 2, Scopes: []outbox.Scope{{Namespace: "a", TaskQueue: "q", Node: "n"}, {Namespace: "b", TaskQueue: "q"}}})
		synctest.Wait()
		b.requireStatus(outbox.Done, mine...)
		b.requireStatus(outbox.Pending, others...)
	})
}

func TestAllRoutesTakesWhatIsUnpinnedOrOfItsNode(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		node := func(name string) func(row *outbox.Row) { return func(row *outbox.Row) { row.Node = name } }
		mine := slices.Concat(b.append(3, node("")), b.append(3, node("n")))
		others := b.append(3, node("m"))
		held := uuid.New()
		b.append(1, func(row *outbox.Row) { row.WorkflowID = held; row.DispatchKey = outbox.DispatchKey(held, 0) })
		b.run(nothing, dispatch.Options{AllRoutes: true, Node: "n", Held: func() []uuid.UUID { return []uuid.UUID{held} }})
		synctest.Wait()
		b.requireStatus(outbox.Done, mine...)
		b.requireStatus(outbox.Pending, others...)
		b.requireStatus(outbox.Pending, outbox.DispatchKey(held, 0))
	})
}

func TestLimitsOfAnySizeAreLimits(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := slices.Concat(b.append(3, inNamespace("a")), b.append(3, inNamespace("b")))
		never := b.append(3, inNamespace("none"))
		b.append(1, func(row *outbox.Row) {
			row.Namespace, row.Status, row.ClaimedAt = "none", outbox.Claimed, time.Now()
		})
		b.run(nothing, dispatch.Options{Concurrency: math.MaxInt, MaxPerNamespace: func(namespace string) int {
			if namespace == "none" {
				return math.MinInt
			}
			return math.MaxInt
		}})
		synctest.Wait()
		b.requireStatus(outbox.Done, keys...)
		b.requireStatus(outbox.Pending, never...)
	})
}
