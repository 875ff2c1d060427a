package dispatch_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/stretchr/testify/require"
)

func TestOutcomeErrorsAreFoundFromOutside(t *testing.T) {
	var permanent *dispatch.PermanentError
	require.ErrorAs(t, fmt.Errorf("wrapped: %w", dispatch.Permanent(errTest)), &permanent)
	require.Equal(t, errTest, permanent.Err)
	var retry *dispatch.RetryError
	require.ErrorAs(t, fmt.Errorf("wrapped: %w", dispatch.RetryAfter(time.Hour, errTest)), &retry)
	require.Equal(t, &dispatch.RetryError{After: time.Hour, Err: errTest}, retry)
	require.ErrorIs(t, retry, errTest)
	require.ErrorAs(t, dispatch.RetryNow(errTest), &retry)
	require.Zero(t, retry.After)
	require.NotEmpty(t, (&dispatch.PermanentError{}).Error())
	require.NotEmpty(t, (&dispatch.RetryError{}).Error())
	require.NoError(t, dispatch.Permanent(nil))
	require.NoError(t, dispatch.RetryNow(nil))
}

func TestOutcomeErrorsMayBeMadeByHand(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(2, nil)
		b.run(func(_ context.Context, row outbox.Row) error {
			if row.Ordinal == 0 {
				return &dispatch.PermanentError{Err: errTest}
			}
			return &dispatch.RetryError{After: time.Hour, Err: errTest}
		}, dispatch.Options{})
		synctest.Wait()
		b.requireStatus(outbox.Failed, keys[0])
		require.Equal(t, time.Now().Add(time.Hour).UTC(), b.get(keys[1]).VisibleAfter)
	})
}

func TestNegativeOptionsMeanTheirDefaults(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(1, nil)
		b.run(func(_ context.Context, row outbox.Row) error {
			return dispatch.RetryNow(errTest)
		}, dispatch.Options{
			Concurrency: -1, MaxAttempts: -1, MaxClaims: -1, HandlerTimeout: -1, PollInterval: -1,
			Lease: -1, ReconcileInterval: -1, ShutdownTimeout: -1,
		})
		synctest.Wait()
		row := b.get(keys[0])
		require.Equal(t, outbox.Failed, row.Status)
		require.Equal(t, uint32(19), row.Attempt)
	})
}

func TestResultOfAHandlerDecidesWhatBecomesOfItsRow(t *testing.T) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of a bubble
	for name, c := range map[string]struct {
		handler   dispatch.Handler
		attempt   uint32
		want      outbox.Status
		attempts  uint32
		delay     time.Duration
		lastError string
		outcome   dispatch.Outcome
	}{
		"nil completes":              {handler: nothing, want: outbox.Done, outcome: dispatch.Completed},
		"an error retries later":     {handler: failing(errTest), want: outbox.Pending, attempts: 1, delay: 7 * time.Second, lastError: "did not work", outcome: dispatch.Retried},
		"the last attempt fails":     {handler: failing(errTest), attempt: 2, want: outbox.Failed, attempts: 2, lastError: "did not work", outcome: dispatch.Failed},
		"permanent fails":            {handler: failing(fmt.Errorf("wrapped: %w", dispatch.Permanent(errTest))), want: outbox.Failed, lastError: "wrapped: did not work", outcome: dispatch.Failed},
		"retry after retries then":   {handler: failing(dispatch.RetryAfter(time.Hour, errTest)), want: outbox.Pending, attempts: 1, delay: time.Hour, lastError: "did not work", outcome: dispatch.Retried},
		"retry after has a last too": {handler: failing(dispatch.RetryAfter(time.Hour, errTest)), attempt: 2, want: outbox.Failed, attempts: 2, lastError: "did not work", outcome: dispatch.Failed},
		"accepted stays claimed":     {handler: failing(dispatch.Accepted), want: outbox.Claimed, outcome: dispatch.OutcomeAccepted},
		"a panic is an error":        {handler: func(context.Context, outbox.Row) error { panic("ouch") }, want: outbox.Pending, attempts: 1, delay: 7 * time.Second, lastError: "ouch", outcome: dispatch.Retried},
		"an ended goroutine as well": {handler: func(context.Context, outbox.Row) error { runtime.Goexit(); return nil }, want: outbox.Pending, attempts: 1, delay: 7 * time.Second, lastError: "ended its goroutine", outcome: dispatch.Retried},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				keys := b.append(1, func(row *outbox.Row) { row.Attempt = c.attempt })
				var seen recorder
				b.run(c.handler, dispatch.Options{
					MaxAttempts: 3,
					Backoff:     func(attempt uint32) time.Duration { return time.Duration(7+attempt) * time.Second },
					Observer:    seen.observer(),
				})
				synctest.Wait()
				row := b.get(keys[0])
				require.Equal(t, c.want, row.Status)
				require.Equal(t, c.attempts, row.Attempt)
				require.Contains(t, row.LastError, c.lastError)
				if row.Status == outbox.Pending {
					require.Equal(t, start.Add(c.delay), row.VisibleAfter)
				}
				require.Equal(t, 1, seen.count(c.outcome))
			})
		})
	}
}

func failing(err error) dispatch.Handler {
	return func(context.Context, outbox.Row) error { return err }
}

func TestPanicLeavesItsStackInTheLastError(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(1, nil)
		b.run(func(context.Context, outbox.Row) error { panic(errTest) }, dispatch.Options{})
		synctest.Wait()
		require.Contains(t, b.get(keys[0]).LastError, "TestPanicLeavesItsStackInTheLastError")
	})
}

func TestRetryNowRunsAgainWithoutDelayAndSpendsAnAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(1, nil)
		start := time.Now()
		b.run(func(_ context.Context, row outbox.Row) error {
			if row.Attempt < 3 {
				return dispatch.RetryNow(errTest)
			}
			return nil
		}, dispatch.Options{})
		synctest.Wait()
		require.Equal(t, uint32(3), b.get(keys[0]).Attempt)
		b.requireStatus(outbox.Done, keys...)
		require.Equal(t, start, time.Now(), "no time has passed")
	})
}

func TestExponentialDoublesVariesAndNeverOverflows(t *testing.T) {
	backoff := dispatch.Exponential(time.Second, time.Hour)
	for attempt, longest := range map[uint32]time.Duration{
		0: time.Second, 1: 2 * time.Second, 11: 2048 * time.Second, 12: time.Hour, 62: time.Hour, 63: time.Hour, 64: time.Hour, 1<<32 - 1: time.Hour,
	} {
		for range 1000 {
			pause := backoff(attempt)
			require.LessOrEqual(t, pause, longest)
			require.GreaterOrEqual(t, pause, longest/2)
		}
	}
	require.Positive(t, dispatch.Exponential(0, -1)(7))
	require.Positive(t, dispatch.Exponential(1<<62, 1<<63-1)(1<<31))
}
