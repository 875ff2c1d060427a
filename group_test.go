package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestCallsThatShareACommitTellTheTruthWhateverStatementFails(t *testing.T) {
	const calls = 5
	for _, fault := range []fault{refused, answerless, panicking, panickingLate} {
		recorded := new(recorder)
		quiet := &outbox.Options{Logger: slog.New(slog.DiscardHandler)}
		store, err := outbox.Open(context.Background(), registerRecorded(recorded), "file:"+filepath.Join(t.TempDir(), "outbox.db"), quiet)
		require.NoError(t, err)
		for n := 1; ; n++ {
			ctx := context.Background()
			workflow := uuid.New()
			appends := make([]func() error, calls)
			for i := range appends {
				appends[i] = func() error { _, err := store.Append(ctx, row(workflow, 2*i), row(workflow, 2*i+1)); return err }
			}
			outcomes := atOnce(t, store, appends, func() { recorded.arm(1+n, fault, nil) }) // the first is the COMMIT of atOnce
			failed := recorded.disarm()
			for i, outcome := range outcomes {
				stored := 0
				for _, ordinal := range []uint64{uint64(2 * i), uint64(2*i + 1)} {
					if _, err := store.State(ctx, outbox.DispatchKey(workflow, ordinal)); err == nil {
						stored++
					}
				}
				switch {
				case outcome == nil:
					require.Equal(t, 2, stored, "statement %d, call %d", n, i)
				case errors.Is(outcome, outbox.ErrCommitUnknown):
					require.Contains(t, []int{0, 2}, stored)
				default:
					require.Zero(t, stored, "statement %d, call %d: %v", n, i, outcome)
				}
			}
			_, err = store.Append(ctx, row(workflow, 100))
			require.NoError(t, err, "the store works on")
			outboxtest.Check(t, store)
			if !failed {
				require.Greater(t, n, 5)
				break
			}
		}
		require.NoError(t, store.Close())
	}
}
