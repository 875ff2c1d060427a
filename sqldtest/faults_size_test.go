//go:build sqld

package sqldtest

import (
	"context"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestPayloadsNearTheServersLimit(t *testing.T) { eachDriver(t, testPayloadsNearTheServersLimit) }

func testPayloadsNearTheServersLimit(t *testing.T, driver string) {
	t.Parallel()
	largest := 4_999_994 // bytes of a blob that the server stores
	if driver == "hrana" {
		largest = 4_990_000 // it travels with its key in one record
	}
	store := openOver(t, driver, startServer(t).url(), nil)
	ctx := patiently(t)
	rows := []outbox.Row{row(uuid.New(), 0), row(uuid.New(), 1), row(uuid.New(), 2)}
	rows[1].Input.Data = make([]byte, largest)
	for i := range rows[1].Input.Data {
		rows[1].Input.Data[i] = byte(i % 251)
	}
	for _, size := range []int{4_999_995, 5_000_001, 20_000_000} {
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
