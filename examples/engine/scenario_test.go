package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"example.com/outbox"
	"github.com/stretchr/testify/require"
)

func TestScenarioChecksOut(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	var out bytes.Buffer
	require.NoError(t, command(t.Context(), "", nil, &out))
	require.Contains(t, out.String(), "check passed")
	for _, role := range cast() {
		require.Contains(t, out.String(), role.want)
	}
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestKilledProcessLeavesClaimsAndAHistory(t *testing.T) {
	path := "file:" + filepath.Join(t.TempDir(), "engine.db")
	require.NoError(t, crash(t.Context(), path))
	workers := newWorkers()
	require.NoError(t, withEngine(t.Context(), path, workers, func(e *engine) error {
		claimed, err := e.store.CountClaimed(t.Context(), outbox.DefaultRoute)
		require.NoError(t, err)
		require.Positive(t, claimed)
		order, err := e.await(t.Context(), idOf("order"), anyhow)
		require.NoError(t, err)
		require.Contains(t, order.open, "charge")

		require.NoError(t, finish(t.Context(), e, workers, io.Discard))
		packed, err := e.store.List(t.Context(), outbox.Filter{})
		require.NoError(t, err)
		for _, row := range packed {
			if row.ActivityType == "pack" {
				require.Equal(t, uint32(1), row.Attempt, "it failed once")
			}
		}
		return nil
	}))
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct{ statement, problem string }{
		"nothing":                  {`SELECT 1`, ""},
		"a workflow that goes on":  {`DELETE FROM history WHERE what = 'ended'`, "is not ended after"},
		"a completion too many":    {`DELETE FROM outbox WHERE activity_type = 'ship'`, "do not agree"},
		"a row that is not done":   {`UPDATE outbox SET status = 'cancelled' WHERE activity_type = 'charge'`, "do not agree"},
		"an activity that was not": {`DELETE FROM history WHERE detail = 'send'`, "is not ended after collect, collect"},
	} {
		t.Run(name, func(t *testing.T) {
			path := "file:" + filepath.Join(t.TempDir(), "engine.db")
			require.NoError(t, crash(t.Context(), path))
			workers := newWorkers()
			require.NoError(t, withEngine(t.Context(), path, workers, func(e *engine) error {
				require.NoError(t, finish(t.Context(), e, workers, io.Discard))
				require.NoError(t, e.store.Update(t.Context(), func(ctx context.Context, tx outbox.Tx) error {
					rows, err := tx.QueryContext(ctx, test.statement)
					if err != nil {
						return err
					}
					for rows.Next() {
						continue
					}
					return rows.Close()
				}))
				err := check(t.Context(), e, io.Discard)
				if test.problem == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, test.problem)
				}
				return nil
			}))
		})
	}
}

func TestInterruptedScenarioEnds(t *testing.T) {
	path := "file:" + filepath.Join(t.TempDir(), "engine.db")
	require.NoError(t, crash(t.Context(), path))
	ctx, interrupt := context.WithCancel(t.Context())
	workers := newWorkers()
	err := withEngine(ctx, path, workers, func(e *engine) error {
		return finish(ctx, e, workers, writerFunc(func(text []byte) (int, error) {
			interrupt() // with the first line
			return len(text), nil
		}))
	})
	require.ErrorIs(t, err, context.Canceled)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(text []byte) (int, error) { return f(text) }
