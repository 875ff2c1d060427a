package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// openFuzzed opens one store for all inputs: opening takes longer than most of
// what they do.
func openFuzzed(f *testing.F) (*outbox.Store, *outboxtest.Clock) {
	clock := outboxtest.NewClock()
	store, err := outbox.Open(context.Background(), "libsql", ":memory:", &outbox.Options{
		Now: clock.Now, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, store.Close()) })
	return store, clock
}

func clearStore(t *testing.T, store *outbox.Store) {
	t.Helper()
	require.NoError(t, store.Update(t.Context(), func(ctx context.Context, tx outbox.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM outbox")
		return err
	}))
}

// storedColumns are the columns of table outbox that a program can damage.
var storedColumns = []string{
	"dispatch_key", "workflow_id", "ordinal", "activity_type", "input", "status", "attempt", "visible_after", "claimed_at",
	"run_id", "namespace", "task_queue", "node", "content_type", "fence", "last_error", "created_at", "finished_at",
}

// literal is a value of one of SQLite's types.
func literal(kind uint8, n int64, data []byte) string {
	switch kind % 5 {
	case 0:
		return "NULL"
	case 1:
		return strconv.FormatInt(n, 10)
	case 2:
		return fmt.Sprintf("%d.5e%d", n%1000, len(data)%20)
	case 3:
		return fmt.Sprintf("CAST(x'%x' AS TEXT)", data)
	}
	return fmt.Sprintf("x'%x'", data)
}

// field returns what a row has of a stored column, as SQL casts it to text.
func field(row outbox.Row, column string) (value string, ok bool) {
	value, ok = map[string]string{
		"dispatch_key": row.DispatchKey, "workflow_id": row.WorkflowID.String(), "ordinal": strconv.FormatUint(row.Ordinal, 10),
		"activity_type": row.ActivityType, "attempt": strconv.FormatUint(uint64(row.Attempt), 10), "namespace": row.Namespace,
		"task_queue": row.TaskQueue, "node": row.Node, "fence": strconv.FormatInt(row.Fence, 10), "last_error": row.LastError,
	}[column]
	return value, ok
}

func FuzzStoredRow(f *testing.F) {
	for i := range storedColumns {
		f.Add(uint8(i), uint8(1), int64(-1), []byte("x"), uint8(0), uint8(3), int64(0), []byte("a\x00b"))
		f.Add(uint8(i), uint8(3), int64(0), []byte("\xff"), uint8(i+1), uint8(4), int64(0), []byte("send"))
		f.Add(uint8(i), uint8(2), int64(1), []byte(nil), uint8(i+3), uint8(0), int64(1)<<62, []byte(nil))
		f.Add(uint8(i), uint8(3), int64(0), []byte("2023-02-30T00:00:00.000000000Z"), uint8(13), uint8(0), int64(0), []byte(nil))
		f.Add(uint8(i), uint8(3), int64(0), []byte(`{"content_type":"Json","bytes":[1,2]}`), uint8(13), uint8(0), int64(0), []byte(nil))
	}
	store, clock := openFuzzed(f)
	f.Fuzz(func(t *testing.T, column, kind uint8, n int64, data []byte, otherColumn, otherKind uint8, otherN int64, otherData []byte) {
		ctx := t.Context()
		clearStore(t, store)
		damaged, sound := row(faultyWorkflow, 1), row(otherWorkflow, 2)
		damaged.VisibleAfter = clock.Now().Add(-time.Hour) // in front
		_, err := store.Append(ctx, damaged, sound)
		require.NoError(t, err)

		first, second := storedColumns[int(column)%len(storedColumns)], storedColumns[int(otherColumn)%len(storedColumns)]
		set := fmt.Sprintf("UPDATE outbox SET %s = %s", first, literal(kind, n, data))
		if first != second {
			set += fmt.Sprintf(", %s = %s", second, literal(otherKind, otherN, otherData))
		}
		err = store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
			_, err := tx.ExecContext(ctx, set+" WHERE id = 1")
			return err
		})
		if err != nil {
			return // the schema forbids it
		}

		// It stands in nobody's way.
		rows, err := store.List(ctx, outbox.Filter{})
		require.NoError(t, err, set)
		require.Len(t, rows, 2, set)
		require.EqualValues(t, 1, rows[0].ID, set)
		_, err = store.Get(ctx, rows[0].DispatchKey)
		require.True(t, err == nil || errors.Is(err, outbox.ErrNotFound), "%s: %v", set, err)
		_, err = store.State(ctx, damaged.DispatchKey)
		require.True(t, err == nil || errors.Is(err, outbox.ErrNotFound), "%s: %v", set, err)
		_, err = store.PendingRoutes(ctx)
		require.NoError(t, err, set)
		_, err = store.UnsettledWorkflows(ctx)
		require.NoError(t, err, set)
		_, _, err = store.NextVisible(ctx)
		require.NoError(t, err, set)
		_, err = store.ListStale(ctx, clock.Now().Add(time.Hour), 9)
		require.NoError(t, err, set)

		before := storedTexts(t, store)
		require.Contains(t, []string{before["dispatch_key"], ""}, rows[0].DispatchKey, "%s: another row's key", set)
		claimed, err := store.Claim(ctx, 9)
		require.NoError(t, err, set)
		after := storedTexts(t, store)
		require.Equal(t, outbox.DispatchKey(otherWorkflow, 2), claimed[len(claimed)-1].DispatchKey, set)
		switch {
		case len(claimed) == 2: // then it is exactly as it is stored
			before["fence"] = strconv.FormatInt(claimed[0].Fence, 10)
			for _, column := range storedColumns {
				if value, ok := field(claimed[0], column); ok {
					require.Equal(t, before[column], value, "%s: %s", set, column)
				}
			}
			require.NoError(t, store.Complete(ctx, claimed[0].Ref()), set)
		case before["status"] == string(outbox.Pending) && before["visible_after"] <= instant(clock.Now()):
			require.Equal(t, string(outbox.Failed), after["status"], set)
			require.Contains(t, after["last_error"], "undecodable", set)
		default:
			require.Equal(t, before, after, set)
		}
		require.NoError(t, store.Complete(ctx, claimed[len(claimed)-1].Ref()), set)
	})
}

// storedTexts returns the columns of the first row as texts.
func storedTexts(t *testing.T, store *outbox.Store) map[string]string {
	t.Helper()
	texts := map[string]string{}
	require.NoError(t, store.Update(t.Context(), func(ctx context.Context, tx outbox.Tx) error {
		for _, column := range storedColumns {
			var text []byte
			err := tx.QueryRowContext(ctx, "SELECT CAST(CAST("+column+" AS TEXT) AS BLOB) FROM outbox WHERE id = 1").Scan(&text)
			if err != nil {
				return err
			}
			texts[column] = string(text)
		}
		return nil
	}))
	return texts
}

func FuzzAppend(f *testing.F) {
	f.Add("", []byte(faultyWorkflow[:]), uint64(0), []byte(nil), "", "", "", "send", "text/plain", []byte("x"), "pending", uint32(0), int64(0), int64(0), "")
	f.Add("2024-01-01", []byte(faultyWorkflow[:]), uint64(1)<<63-1, []byte(otherWorkflow[:]), "2024-01-01 10:00", "é", "n1", "'\"", "a/b", make([]byte, 1025), "claimed", uint32(1)<<31, int64(1), int64(2), "2024-01-01T00:00:00.120Z")
	f.Add("a\x00b", []byte(nil), uint64(1)<<63, []byte(nil), "\xff", "", "", "", "", []byte(nil), "paused", uint32(0), int64(1)<<62, int64(-1)<<62, "\x00")
	store, clock := openFuzzed(f)
	f.Fuzz(func(t *testing.T, key string, workflow []byte, ordinal uint64, run []byte, namespace, queue, node, activity, contentType string,
		data []byte, status string, attempt uint32, visible, claimedAt int64, lastError string) {
		clearStore(t, store)
		clock.Set(outboxtest.NewClock().Now())
		ctx := t.Context()
		given := outbox.Row{
			DispatchKey: key, WorkflowID: toUUID(workflow), Ordinal: ordinal, Namespace: namespace, TaskQueue: queue, Node: node,
			ActivityType: activity, Input: outbox.Payload{ContentType: contentType, Data: data}, Status: outbox.Status(status), Attempt: attempt,
			VisibleAfter: toTime(visible), ClaimedAt: toTime(claimedAt), LastError: lastError,
		}
		if len(run) > 0 {
			given.RunID = uuid.NullUUID{UUID: toUUID(run), Valid: true}
		}
		sound := row(uuid.New(), 1)
		duplicates, err := store.Append(ctx, sound, given)
		if err != nil {
			require.True(t, errors.Is(err, outbox.ErrInvalid) || errors.Is(err, outbox.ErrTooLarge), "%v", err)
			outboxtest.RequireCounts(t, store, nil)
			require.Error(t, store.Rearm(ctx, given))
			return
		}
		require.Empty(t, duplicates)
		want := withDefaults(given, clock.Now())
		got, err := store.Get(ctx, want.DispatchKey)
		require.NoError(t, err)
		require.Equal(t, want, got)
		duplicates, err = store.Append(ctx, given)
		require.NoError(t, err)
		require.Equal(t, []string{want.DispatchKey}, duplicates)

		for want.Status == outbox.Pending {
			clock.Set(latest(clock.Now(), want.VisibleAfter))
			claimed, err := store.ClaimScoped(ctx, outbox.Scope{Namespace: want.Namespace, TaskQueue: want.TaskQueue, Node: want.Node}, 9)
			require.NoError(t, err)
			want.Status, want.Fence, want.ClaimedAt = outbox.Claimed, 1, clock.Now()
			require.Contains(t, claimed, want)
		}
		ref := outbox.Ref{DispatchKey: want.DispatchKey, Fence: want.Fence}
		if want.Status == outbox.Claimed {
			require.NoError(t, store.Complete(ctx, ref))
			require.NoError(t, store.Complete(ctx, ref), "again")
			state, err := store.State(ctx, want.DispatchKey)
			require.NoError(t, err)
			require.Equal(t, outbox.RowState{Status: outbox.Done, Attempt: attempt, VisibleAfter: want.VisibleAfter}, state)
		}
		other, err := store.State(ctx, outbox.DispatchKey(sound.WorkflowID, 1))
		require.NoError(t, err)
		require.Contains(t, []outbox.Status{outbox.Pending, outbox.Claimed}, other.Status, "it is nobody else's key")
	})
}

// instant is at as it is stored.
func instant(at time.Time) string { return at.Format("2006-01-02T15:04:05.000000000Z") }

func toUUID(data []byte) (id uuid.UUID) {
	copy(id[:], data)
	return id
}

// toTime spreads integers over the years 0 to 9999 and some beyond; 0 is no
// instant.
func toTime(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(n>>20, n&(1<<20-1)*953).UTC()
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// withDefaults is what is stored of a row.
func withDefaults(row outbox.Row, now time.Time) outbox.Row {
	row.ID = 2
	if row.DispatchKey == "" {
		row.DispatchKey = outbox.DispatchKey(row.WorkflowID, row.Ordinal)
	}
	if row.Namespace == "" {
		row.Namespace = outbox.DefaultRoute
	}
	if row.TaskQueue == "" {
		row.TaskQueue = outbox.DefaultRoute
	}
	if row.Status == "" {
		row.Status = outbox.Pending
	}
	if row.VisibleAfter.IsZero() {
		row.VisibleAfter = now
	}
	if row.Status == outbox.Claimed {
		row.Fence = 1
	}
	if row.Status == outbox.Done || row.Status == outbox.Failed || row.Status == outbox.Cancelled {
		row.FinishedAt = now
	}
	if len(row.Input.Data) == 0 {
		row.Input.Data = nil
	}
	row.CreatedAt = now
	return row
}
