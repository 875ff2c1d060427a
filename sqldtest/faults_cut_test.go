//go:build sqld

package sqldtest

import (
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestConnectionCutInTheMiddleOfACallStoresAllOrNothing(t *testing.T) {
	t.Parallel()
	for _, request := range []struct{ name, text string }{
		{"begin", `"BEGIN IMMEDIATE`},
		{"insert is described", `describe","sql":"INSERT INTO main.outbox (`},
		{"insert", `"stmt":{"sql":"INSERT INTO main.outbox (`},
		{"payload is described", `describe","sql":"INSERT INTO main.outbox_payload`},
		{"payload", `"stmt":{"sql":"INSERT INTO main.outbox_payload`},
	} {
		t.Run("append/"+request.name, func(t *testing.T) {
			t.Parallel()
			proxy := newProxy(t, startServer(t))
			store := open(t, proxy.url(), nil)
			for _, fault := range faults() {
				rows := []outbox.Row{row(uuid.New(), 0), row(uuid.New(), 1)}
				rows[1].Input.Data = make([]byte, 10_000)
				hit := proxy.strike(fault.kind, request.text, fault.after)
				duplicates, err := store.Append(patiently(t), rows...)
				requireHit(t, hit)
				require.Empty(t, duplicates)
				if err != nil {
					require.ErrorIs(t, err, outbox.ErrUnavailable)
				}
				requireStored(t, store, err == nil, rows...)
				requireWorks(t, store)
			}
		})
	}
	for _, request := range []struct{ name, text string }{
		{"begin", `"BEGIN IMMEDIATE`},
		{"update is described", `describe","sql":"UPDATE main.outbox`},
		{"update", `"stmt":{"sql":"UPDATE main.outbox`},
		{"payloads are described", `describe","sql":"WITH`},
		{"payloads", `"stmt":{"sql":"WITH`},
	} {
		t.Run("claim/"+request.name, func(t *testing.T) {
			t.Parallel()
			proxy := newProxy(t, startServer(t))
			store := open(t, proxy.url(), nil)
			for _, fault := range faults() {
				rows := []outbox.Row{row(uuid.New(), 0), row(uuid.New(), 1), row(uuid.New(), 2)}
				rows[1].Input.Data = make([]byte, 10_000)
				_, err := store.Append(patiently(t), rows...)
				require.NoError(t, err)
				hit := proxy.strike(fault.kind, request.text, fault.after)
				claimed, err := store.Claim(patiently(t), 10)
				requireHit(t, hit)
				if err != nil {
					require.ErrorIs(t, err, outbox.ErrUnavailable)
					require.Empty(t, claimed)
					outboxtest.RequireCounts(t, store, map[outbox.Status]int{outbox.Pending: 3})
					claimed, err = store.Claim(patiently(t), 10)
					require.NoError(t, err)
				}
				require.Len(t, claimed, 3, "no row is claimed without being handed out")
				for _, row := range claimed {
					require.Equal(t, int64(1), row.Fence)
					require.NoError(t, store.Complete(patiently(t), row.Ref()))
				}
				_, err = store.Purge(patiently(t), time.Now().Add(time.Hour), 10)
				require.NoError(t, err)
			}
			requireWorks(t, store)
		})
	}
	for _, request := range []struct{ name, text string }{
		{"described", `describe","sql":"SELECT`},
		{"select", `"stmt":{"sql":"SELECT`},
	} {
		t.Run("read/"+request.name, func(t *testing.T) {
			t.Parallel()
			proxy := newProxy(t, startServer(t))
			store := open(t, proxy.url(), nil)
			for i := range 4 {
				_, err := store.Append(patiently(t), row(uuid.New(), i))
				require.NoError(t, err)
			}
			for _, fault := range faults() {
				hit := proxy.strike(fault.kind, request.text, fault.after)
				rows, err := store.List(patiently(t), outbox.Filter{})
				requireHit(t, hit)
				if err != nil {
					require.ErrorIs(t, err, outbox.ErrUnavailable)
				} else {
					require.Len(t, rows, 4, "a list that was cut off is not taken for a whole one")
				}
				rows, err = store.List(patiently(t), outbox.Filter{})
				require.NoError(t, err)
				require.Len(t, rows, 4)
			}
			requireWorks(t, store)
		})
	}
}
