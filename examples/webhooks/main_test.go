package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRunSettlesEveryRow(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	var out bytes.Buffer
	require.NoError(t, command(t.Context(), "", "", &out))

	table := readTable(t, out.String())
	want := expected(t)
	require.Equal(t, want.staged, table["staged"].run)
	require.Equal(t, want.delivered, table["delivered"].run)
	require.Equal(t, want.dead, table["dead"].run)
	require.Equal(t, want.cancelled, table["cancelled"].run)
	require.Positive(t, table["retried"].run)
	require.Positive(t, table["re-armed"].run, "the claim of one who is away goes stale")
	require.Positive(t, table["fenced off"].run, "who comes back too late")
	for _, name := range []string{"staged", "delivered", "retried", "dead", "cancelled"} {
		require.Equal(t, table[name].run, table[name].total, name)
	}
	require.Equal(t, table["staged"].total, table["delivered"].total+table["dead"].total+table["cancelled"].total)
	require.Contains(t, out.String(), "check passed")

	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	require.Empty(t, left, "a run without -db leaves nothing behind")
}

// Each part of the scenario leaves its mark on a row.
func TestRunShowsWhatItSays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "webhooks.db")
	var out bytes.Buffer
	require.NoError(t, command(t.Context(), "", path, &out))
	store, roles := openStore(t, path), cast(t)

	hung, err := store.Get(t.Context(), roles.hangs)
	require.NoError(t, err)
	require.Contains(t, hung.LastError, dispatch.ErrHandlerTimeout.Error())
	require.Equal(t, outbox.Done, hung.Status)

	away, err := store.Get(t.Context(), roles.away)
	require.NoError(t, err)
	require.Greater(t, away.Fence, int64(1), "another has claimed it")
	require.Contains(t, out.String(), "came back too late: claim 1 no longer holds it")

	causes := make(map[string]bool)
	for row, err := range everyRow(t.Context(), store) {
		require.NoError(t, err)
		if status, _, found := strings.Cut(row.LastError, ":"); found {
			causes[status] = true
		}
		switch {
		case row.WorkflowID == roles.stops && row.Ordinal == 0:
			require.Equal(t, outbox.Done, row.Status)
		case row.WorkflowID == roles.stops:
			require.Equal(t, outbox.Cancelled, row.Status)
		}
	}
	for _, cause := range []string{"answered 410 Gone", "answered 429 Too Many Requests", "answered 503 Service Unavailable"} {
		require.Contains(t, causes, cause)
	}
	require.Contains(t, out.String(), "is no longer on hold")
}

// A process that is killed, at whatever moment, leaves a database that the next
// run finishes: nothing is staged twice, lost, or delivered after it was settled.
func TestKilledRunIsFinishedByTheNext(t *testing.T) {
	program := buildProgram(t)
	for name, moment := range map[string]string{
		"while it stages":                     "staged 18 of",
		"when all is staged":                  "staged 60 of",
		"when it has settled the first":       "settled 24 of",
		"while a claim is stale":              "gone stale",
		"when it has settled half":            "settled 120 of",
		"when it has settled more than half":  "settled 168 of",
		"when a workflow is settled half-way": "is stopped",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "webhooks.db")
			killed, _ := runProgram(t, program, path, func(line string, _ int) bool { return strings.Contains(line, moment) })
			require.True(t, killed)
			claimed := countClaimed(t, path)
			t.Logf("%d claims were left behind", claimed)

			killed, out := runProgram(t, program, path, never)
			require.False(t, killed)
			require.GreaterOrEqual(t, readTable(t, out)["re-armed"].run, claimed)
			requireFinished(t, path, out)
		})
	}
	t.Run("again and again", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "webhooks.db")
		kills := 0
		for {
			// Each run gets a little further, or is the last.
			killed, out := runProgram(t, program, path, func(_ string, n int) bool { return n == 4+3*kills })
			if !killed {
				t.Logf("killed %d times", kills)
				require.Greater(t, kills, 2)
				requireFinished(t, path, out)
				return
			}
			kills++
		}
	})
}

func TestInterruptedRunLeavesNoClaims(t *testing.T) {
	path := filepath.Join(t.TempDir(), "webhooks.db")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	reader, writer := io.Pipe()
	go func() {
		lines := bufio.NewScanner(reader)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "settled 48 of") {
				interrupt()
			}
		}
	}()
	err := command(ctx, "", path, writer)
	writer.Close()
	require.ErrorIs(t, err, context.Canceled)
	claimed, err := openStore(t, path).List(t.Context(), outbox.Filter{Status: outbox.Claimed})
	require.NoError(t, err)
	for _, row := range claimed {
		require.Equal(t, cast(t).away, row.DispatchKey, "only who is away keeps a claim")
	}

	var out bytes.Buffer
	require.NoError(t, command(t.Context(), "", path, &out))
	requireFinished(t, path, out.String())

	again := out.String()
	out.Reset()
	require.NoError(t, command(t.Context(), "", path, &out))
	require.Zero(t, readTable(t, out.String())["staged"].run, "everything is staged already")
	require.Equal(t, readTable(t, again)["delivered"].total, readTable(t, out.String())["delivered"].total)
}

func TestRunFailsIfTheReceiverSawNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "webhooks.db")
	require.NoError(t, command(t.Context(), "", path, io.Discard))
	require.NoError(t, os.Remove(path+".receipts"))

	err := command(t.Context(), "", path, io.Discard)
	var failed *checkError
	require.ErrorAs(t, err, &failed)
	require.Len(t, failed.problems, expected(t).delivered)
	require.ErrorContains(t, err, "the receiver never accepted it")
}

func TestRunOfAFewDeliveries(t *testing.T) {
	for n := 1; n <= 4; n++ {
		lines := bytes.SplitAfterN(sample, []byte("\n"), n+1)
		input := filepath.Join(t.TempDir(), "few.jsonl")
		require.NoError(t, os.WriteFile(input, bytes.Join(lines[:n], nil), 0o600))
		var out bytes.Buffer
		require.NoError(t, command(t.Context(), input, "", &out))
		require.Equal(t, n*len(subscribers), readTable(t, out.String())["staged"].total)
	}
}

// cast are the roles in a run over the sample.
func cast(t testing.TB) roles {
	t.Helper()
	deliveries, err := readDeliveries("")
	require.NoError(t, err)
	return castRoles(deliveries)
}

// expected are the figures of a run over the sample that do not depend on chance.
func expected(t testing.TB) figures {
	t.Helper()
	deliveries, err := readDeliveries("")
	require.NoError(t, err)
	want := figures{staged: len(subscribers) * len(deliveries), cancelled: len(subscribers) - 1}
	for _, delivery := range deliveries {
		if troubleWith("legacy", delivery.Event, "", 0) == http.StatusGone {
			want.dead++
		}
	}
	want.delivered = want.staged - want.dead - want.cancelled
	return want
}

// requireFinished looks at a database through the outbox, after a run that
// printed out.
func requireFinished(t testing.TB, path, out string) {
	t.Helper()
	require.Contains(t, out, "check passed")
	store := openStore(t, path)
	deliveries, err := readDeliveries("")
	require.NoError(t, err)

	live, err := store.UnsettledWorkflows(t.Context())
	require.NoError(t, err)
	require.Empty(t, live)
	var got figures
	for row, err := range everyRow(t.Context(), store) {
		require.NoError(t, err)
		got.count(row, nil)
	}
	require.Equal(t, got.staged, got.settled())
	want := expected(t)
	got.retried = 0 // varies
	require.Equal(t, want, got)

	received, delivered, err := readHistory(t.Context(), store)
	require.NoError(t, err)
	require.Len(t, received, len(deliveries))
	require.Equal(t, want.delivered, delivered)
	for _, delivery := range deliveries {
		require.True(t, received[delivery.workflow])
		rows, err := store.Get(t.Context(), outbox.DispatchKey(delivery.workflow, toSearch))
		require.NoError(t, err)
		require.Equal(t, []byte(delivery.Payload), rows.Input.Data)
	}
	require.Equal(t, want.delivered, readTable(t, out)["delivered"].total)
}

func countClaimed(t testing.TB, path string) (n int) {
	t.Helper()
	claimed, err := openStore(t, path).CountClaimedByNamespace(t.Context(), "internal", "partners")
	require.NoError(t, err)
	for _, count := range claimed {
		n += int(count)
	}
	return n
}

func openStore(t testing.TB, path string) *outbox.Store {
	t.Helper()
	store, err := outbox.Open(t.Context(), "libsql", fileName(path), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}
