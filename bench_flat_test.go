package outbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// crowded is a database with many live rows and as many settled ones: a tenth
// of the live ones belong to one workflow and sort first, the others are
// fan-outs of ten rows, spread over a thousand namespaces.
type crowded struct {
	*outbox.Store
	held      uuid.UUID
	workflows []uuid.UUID
	now       time.Time
}

const crowdedNamespaces = 1000

func openCrowded(b *testing.B, live int) *crowded {
	b.Helper()
	c := &crowded{Store: openBenchmark(b, outbox.Normal), held: uuid.New(), now: time.Now()}
	fill := func(n int, fanOut func(i int) []outbox.Row) {
		var batch []outbox.Row
		for i := range n / 10 {
			batch = append(batch, fanOut(i)...)
			if len(batch) >= 1000 || i == n/10-1 {
				_, err := c.Append(context.Background(), batch...)
				require.NoError(b, err)
				batch = batch[:0]
			}
		}
	}
	fill(live, func(int) []outbox.Row {
		rows := fanOut(10, 256)
		for i := range rows {
			rows[i].Status = outbox.Done
		}
		return rows
	})
	fill(live/10, func(i int) []outbox.Row {
		rows := fanOut(10, 256)
		for j := range rows {
			rows[j].WorkflowID, rows[j].Ordinal = c.held, uint64(10*i+j)
			rows[j].VisibleAfter = c.now.Add(-2 * time.Hour)
		}
		return rows
	})
	fill(live-live/10, func(i int) []outbox.Row {
		rows := fanOut(10, 256)
		for j := range rows {
			rows[j].Namespace = c.namespace(i)
			rows[j].VisibleAfter = c.now.Add(-time.Hour + time.Duration(i)*time.Microsecond)
		}
		c.workflows = append(c.workflows, rows[0].WorkflowID)
		return rows
	})
	return c
}

func (c *crowded) namespace(i int) string { return fmt.Sprintf("tenant-%03d", i%crowdedNamespaces) }

// BenchmarkCrowded shows what each call costs among few and among many rows.
// The largest takes minutes to fill; -short leaves it out.
func BenchmarkCrowded(b *testing.B) {
	ctx := context.Background()
	for _, live := range []int{10_000, 100_000, 1_000_000} {
		if testing.Short() && live > 10_000 {
			continue
		}
		b.Run(fmt.Sprintf("live=%d", live), func(b *testing.B) {
			c := openCrowded(b, live)
			refsOf := func(rows []outbox.Row, err error) []outbox.Ref {
				require.NoError(b, err)
				refs := make([]outbox.Ref, len(rows))
				for i, row := range rows {
					refs[i] = row.Ref()
				}
				return refs
			}
			// putBack makes claimed rows what they were before.
			putBack := func(b *testing.B, refs []outbox.Ref, visibleAfter time.Time) {
				b.StopTimer()
				for _, ref := range refs {
					require.NoError(b, c.Retry(ctx, ref, 0, visibleAfter, nil))
				}
				b.StartTimer()
			}
			heldBefore, othersBefore := c.now.Add(-2*time.Hour), c.now.Add(-time.Hour)
			b.Run("claim=100", func(b *testing.B) {
				for b.Loop() {
					putBack(b, refsOf(c.Claim(ctx, 100)), heldBefore)
				}
			})
			b.Run("claim=100/scoped", func(b *testing.B) {
				scope := outbox.Scope{Namespace: c.namespace(7), TaskQueue: outbox.DefaultRoute}
				for b.Loop() {
					putBack(b, refsOf(c.ClaimScoped(ctx, scope, 100)), othersBefore)
				}
			})
			b.Run(fmt.Sprintf("claim=100/excluding=1/held=%d", live/10), func(b *testing.B) {
				for b.Loop() {
					putBack(b, refsOf(c.ClaimExcluding(ctx, 100, c.held)), othersBefore)
				}
			})
			b.Run(fmt.Sprintf("claim=100/excluding=1000/held=%d", live/10), func(b *testing.B) {
				held := append([]uuid.UUID{c.held}, c.workflows[len(c.workflows)-min(999, len(c.workflows)/2):]...)
				for b.Loop() {
					putBack(b, refsOf(c.ClaimExcluding(ctx, 100, held...)), othersBefore)
				}
			})
			b.Run("complete=100", func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					refs := refsOf(c.ClaimExcluding(ctx, 100, c.held))
					b.StartTimer()
					require.NoError(b, c.Complete(ctx, refs...))
				}
			})
			b.Run("settle=10", func(b *testing.B) {
				at := len(c.workflows) // from the end: the others were claimed
				for b.Loop() {
					at--
					keys, err := c.SettleWorkflow(ctx, c.workflows[at])
					require.NoError(b, err)
					require.Len(b, keys, 10)
				}
			})
			refs := refsOf(c.ClaimScoped(ctx, outbox.Scope{Namespace: c.namespace(7), TaskQueue: outbox.DefaultRoute}, 50))
			b.Run(fmt.Sprintf("count claimed=%d", len(refs)), func(b *testing.B) {
				for b.Loop() {
					n, err := c.CountClaimed(ctx, c.namespace(7))
					require.NoError(b, err)
					require.EqualValues(b, len(refs), n)
				}
			})
			inFlight, err := c.CountInFlight(ctx, outbox.DefaultRoute)
			require.NoError(b, err)
			b.Run(fmt.Sprintf("count in flight=%d", inFlight), func(b *testing.B) {
				for b.Loop() {
					_, err := c.CountInFlight(ctx, outbox.DefaultRoute)
					require.NoError(b, err)
				}
			})
			routes, err := c.PendingRoutes(ctx)
			require.NoError(b, err)
			b.Run(fmt.Sprintf("routes=%d", len(routes)), func(b *testing.B) {
				for b.Loop() {
					_, err := c.PendingRoutes(ctx)
					require.NoError(b, err)
				}
			})
			b.Run("append=100", func(b *testing.B) {
				for b.Loop() {
					_, err := c.Append(ctx, fanOut(100, 256)...)
					require.NoError(b, err)
				}
			})
		})
	}
}
