package dispatch_test

import (
	"context"
	"fmt"
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
