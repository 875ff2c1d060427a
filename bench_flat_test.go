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
			scope := outbox.Scope{Namespace: c.namespace(7), TaskQueue: outbox.DefaultRoute}
			// claim measures a kind of claim, after each of which the rows are
			// made what they were before.
			claim := func(name string, rows int, claim func() ([]outbox.Row, error)) {
				b.Run(name, func(b *testing.B) {
					for b.Loop() {
						claimed, err := claim()
						b.StopTimer()
						require.NoError(b, err)
						require.Len(b, claimed, rows)
						require.NoError(b, c.Rearm(ctx, claimed...))
						b.StartTimer()
					}
				})
			}
			claim("claim=100", 100, func() ([]outbox.Row, error) { return c.Claim(ctx, 100) })
			claim("claim=5/scoped", 5, func() ([]outbox.Row, error) { return c.ClaimScoped(ctx, scope, 5) })
			claim(fmt.Sprintf("claim=100/excluding=1/held=%d", live/10), 100, func() ([]outbox.Row, error) {
				return c.ClaimExcluding(ctx, 100, c.held)
			})
			held := append([]uuid.UUID{c.held}, c.workflows[len(c.workflows)-min(999, len(c.workflows)/2):]...)
			claim(fmt.Sprintf("claim=100/excluding=%d/held=%d", len(held), live/10+10*(len(held)-1)), 100, func() ([]outbox.Row, error) {
				return c.ClaimExcluding(ctx, 100, held...)
			})
			b.Run("complete=100", func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					rows, err := c.ClaimExcluding(ctx, 100, c.held)
					require.NoError(b, err)
					refs := make([]outbox.Ref, len(rows))
					for i, row := range rows {
						refs[i] = row.Ref()
					}
					b.StartTimer()
					require.NoError(b, c.Complete(ctx, refs...))
					b.StopTimer()
					require.NoError(b, c.Rearm(ctx, rows...))
					b.StartTimer()
				}
			})
			b.Run("settle=10", func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					rows := fanOut(10, 256)
					_, err := c.Append(ctx, rows...)
					require.NoError(b, err)
					b.StartTimer()
					keys, err := c.SettleWorkflow(ctx, rows[0].WorkflowID)
					require.NoError(b, err)
					require.Len(b, keys, 10)
				}
			})
			_, err := c.ClaimScoped(ctx, scope, 5)
			require.NoError(b, err)
			b.Run("count claimed=5", func(b *testing.B) {
				for b.Loop() {
					n, err := c.CountClaimed(ctx, scope.Namespace)
					require.NoError(b, err)
					require.EqualValues(b, 5, n)
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

// BenchmarkAppendIndexes shows what the indexes cost that a smaller store would
// not have: those by route and by workflow, without which an append writes two.
func BenchmarkAppendIndexes(b *testing.B) {
	ctx := context.Background()
	for _, rows := range []int{1, 100} {
		for name, dropped := range map[string][]string{"all": nil, "two": {"outbox_route", "outbox_unsettled"}} {
			b.Run(fmt.Sprintf("rows=%d/indexes=%s", rows, name), func(b *testing.B) {
				store := openBenchmark(b, outbox.Normal)
				require.NoError(b, store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
					for _, index := range dropped {
						if _, err := tx.ExecContext(ctx, "DROP INDEX "+index); err != nil {
							return err
						}
					}
					return nil
				}))
				fill(b, store, 10_000)
				for b.Loop() {
					_, err := store.Append(ctx, fanOut(rows, 256)...)
					require.NoError(b, err)
				}
				reportRows(b, rows*b.N)
			})
		}
	}
}
