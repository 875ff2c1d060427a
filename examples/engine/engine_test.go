package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestHistoryAndFanOutCommitTogether(t *testing.T) {
	b := newBench(t)
	b.refuse("second")
	b.start(two)
	require.Equal(t, []string{"started two", "scheduled first"}, b.history())
	require.Equal(t, outbox.Pending, b.status(2))

	row := b.claim()
	require.ErrorContains(t, b.engine.complete(t.Context(), row, row.Ref()), "refused")
	require.Equal(t, []string{"started two", "scheduled first"}, b.history(), "the next step could not be staged")
	require.Equal(t, outbox.Claimed, b.status(2))

	b.refuse("first")
	b.workflow = uuid.New()
	require.ErrorContains(t, b.engine.start(t.Context(), b.workflow, two), "refused")
	require.Empty(t, b.history(), "nor could the first one")
}

func TestWorkflowStartsOnce(t *testing.T) {
	b := newBench(t)
	b.start(two)
	b.start(two)
	require.Equal(t, []string{"started two", "scheduled first"}, b.history())
	require.ErrorContains(t, b.engine.start(t.Context(), uuid.New(), "three"), `no workflow is called "three"`)
}

func TestActivitiesOfAStepRunAtTheSameTime(t *testing.T) {
	b := newBench(t)
	met := make(chan struct{})
	meet := func(context.Context, outbox.Row) error {
		select {
		case met <- struct{}{}:
		case <-met:
		}
		return nil
	}
	b.engine.definitions["fork"] = definition{steps: [][]string{{"left", "right"}, {"first"}}}
	b.engine.activities["left"], b.engine.activities["right"] = meet, meet
	b.start("fork")
	b.run()
	b.await(over)
	history := b.history()
	require.Equal(t, []string{"started fork", "scheduled left", "scheduled right"}, history[:3])
	require.ElementsMatch(t, []string{"completed left", "completed right"}, history[3:5])
	require.Equal(t, []string{"scheduled first", "completed first", "ended "}, history[5:])
}

func TestPausedWorkflowWaitsUntilItIsResumed(t *testing.T) {
	b := newBench(t)
	b.start(two)
	require.NoError(t, b.engine.pause(t.Context(), b.workflow))
	paused := b.workflow
	b.run()

	b.workflow = uuid.New()
	b.start(two) // later, and yet it is dispatched
	b.await(over)

	b.workflow = paused
	require.Equal(t, []string{"started two", "scheduled first", "paused "}, b.history())
	require.NoError(t, b.engine.resume(t.Context(), paused))
	b.await(over)
	require.Equal(t, "ended ", b.history()[len(b.history())-1])
}

func TestWorkflowThatIsPausedWhileItWorksStagesWhatFollows(t *testing.T) {
	b := newBench(t)
	b.start(two)
	row := b.claim()
	require.NoError(t, b.engine.pause(t.Context(), b.workflow))
	require.NoError(t, b.engine.complete(t.Context(), row, row.Ref()))
	require.Equal(t, []string{"started two", "scheduled first", "paused ", "completed first", "scheduled second"}, b.history())
	require.Equal(t, outbox.Pending, b.status(5))
	rows, err := b.store.ClaimExcluding(t.Context(), 1, b.engine.heldNow()...)
	require.NoError(t, err)
	require.Empty(t, rows)
}

func TestCancelSettlesTheRowsWithTheHistory(t *testing.T) {
	b := newBench(t)
	b.start(two)
	row := b.claim()
	keys, err := b.engine.cancel(t.Context(), b.workflow)
	require.NoError(t, err)
	require.Equal(t, []string{row.DispatchKey}, keys)
	require.Equal(t, outbox.Cancelled, b.status(2))

	// Who was at work on it comes too late, by claim or by key.
	require.ErrorIs(t, b.engine.complete(t.Context(), row, row.Ref()), outbox.ErrClaimLost)
	require.NoError(t, b.engine.completeByKey(t.Context(), row.DispatchKey))
	require.NoError(t, b.engine.pause(t.Context(), b.workflow))
	keys, err = b.engine.cancel(t.Context(), b.workflow)
	require.NoError(t, err)
	require.Empty(t, keys)
	require.Equal(t, []string{"started two", "scheduled first", "cancelled "}, b.history())
	require.Equal(t, outbox.Cancelled, b.status(2))
}

func TestWorkflowContinuesAsNewInRunsOfTheirOwn(t *testing.T) {
	b := newBench(t)
	b.start(twice)
	first := b.claim()
	require.NoError(t, b.engine.completeByKey(t.Context(), first.DispatchKey))
	second := b.claim()
	require.NotEqual(t, first.RunID, second.RunID)
	require.NotEqual(t, first.DispatchKey, second.DispatchKey)
	history := []string{"started twice", "scheduled far", "completed far", "started twice", "scheduled far"}
	require.Equal(t, history, b.history())

	// Word of the first run is not taken for word of the second.
	require.NoError(t, b.engine.completeByKey(t.Context(), first.DispatchKey))
	require.Equal(t, history, b.history())

	require.NoError(t, b.engine.completeByKey(t.Context(), second.DispatchKey))
	require.Equal(t, append(history, "completed far", "ended "), b.history())
	w := b.await(over)
	require.Equal(t, []uuid.UUID{first.RunID.UUID, second.RunID.UUID}, []uuid.UUID{w.history[1].run, w.history[6].run})
}

func TestRemoteWorkerCompletesByKey(t *testing.T) {
	b := newBench(t)
	b.engine.definitions["remote"] = definition{steps: [][]string{{"far"}, {"first"}}}
	b.start("remote")
	b.run()
	key := <-b.far
	require.Equal(t, []string{"started remote", "scheduled far"}, b.history(), "accepted is not completed")
	require.NoError(t, b.engine.completeByKey(t.Context(), key))
	b.await(over)
	require.NoError(t, b.engine.completeByKey(t.Context(), key), "it may say so twice")
	require.Equal(t, []string{"started remote", "scheduled far", "completed far", "scheduled first", "completed first", "ended "}, b.history())
	require.ErrorIs(t, b.engine.completeByKey(t.Context(), "unknown"), outbox.ErrNotFound)
}

func TestEngineGoesOnWhereADeadOneEnded(t *testing.T) {
	b := newBench(t)
	b.start(two)
	working := b.workflow
	claim := b.claim()
	b.workflow = uuid.New()
	b.start(two)
	held := b.workflow
	require.NoError(t, b.engine.pause(t.Context(), held))

	b.newEngine() // the other is no more
	require.Empty(t, b.engine.heldNow())
	rearmed, err := b.engine.recover(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, rearmed)
	require.Equal(t, []uuid.UUID{held}, b.engine.heldNow())
	b.workflow = working
	require.Equal(t, outbox.Pending, b.status(2))
	require.ErrorIs(t, b.engine.complete(t.Context(), claim, claim.Ref()), outbox.ErrClaimLost, "should it not be dead after all")

	b.run()
	b.await(over)
	b.workflow = held
	require.Equal(t, []string{"started two", "scheduled first", "paused "}, b.history())
	require.NoError(t, b.engine.resume(t.Context(), held))
	b.await(over)

	rearmed, err = b.engine.recover(t.Context())
	require.NoError(t, err)
	require.Zero(t, rearmed, "what is done stays so")
}

func TestUnknownActivityIsADeadLetter(t *testing.T) {
	b := newBench(t)
	delete(b.engine.activities, "first")
	settled := make(chan dispatch.Outcome, 1)
	b.engine.dispatcher = dispatch.New(b.store, b.engine.handle, &dispatch.Options{
		Logger: slog.New(slog.DiscardHandler),
		Observer: dispatch.Observer{Settled: func(_ context.Context, _ outbox.Row, outcome dispatch.Outcome, _ time.Duration, _ error) {
			settled <- outcome
		}},
	})
	b.start(two)
	b.run()
	require.Equal(t, dispatch.Failed, <-settled)
	require.Equal(t, outbox.Failed, b.status(2))
	require.Equal(t, []string{"started two", "scheduled first"}, b.history())
}
