package dispatch_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/url"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/stretchr/testify/require"
)

// hostile is an error whose methods do what its fields do.
type hostile struct {
	text   func() string
	is     func() bool
	as     func() bool
	unwrap func() error
}

func (e *hostile) Error() string {
	if e.text == nil {
		return "hostile"
	}
	return e.text()
}
func (e *hostile) Is(error) bool { return e.is != nil && e.is() }
func (e *hostile) As(any) bool   { return e.as != nil && e.as() }
func (e *hostile) Unwrap() error {
	if e.unwrap == nil {
		return nil
	}
	return e.unwrap()
}

// list is an error that cannot be compared.
type list []error

func (l list) Error() string   { return "a list" }
func (l list) Unwrap() []error { return l }

// bad are errors that break who reads them, and what of them is in the last error.
func bad() map[string]struct {
	err  error
	text string
} {
	endless := &hostile{}
	endless.unwrap = func() error { return endless }
	itself := &hostile{}
	itself.text = func() string { panic(itself) }
	return map[string]struct {
		err  error
		text string
	}{
		"Error panics with itself":           {itself, "*dispatch_test.hostile"},
		"nil *fs.PathError":                  {(*fs.PathError)(nil), "*fs.PathError"},
		"nil *url.Error":                     {(*url.Error)(nil), "*url.Error"},
		"nil *PanicError":                    {(*dispatch.PanicError)(nil), "*dispatch.PanicError"},
		"nil *PermanentError":                {(*dispatch.PermanentError)(nil), "*dispatch.PermanentError"},
		"nil *RetryError":                    {(*dispatch.RetryError)(nil), "*dispatch.RetryError"},
		"Error panics":                       {&hostile{text: func() string { panic("ouch") }}, "ouch"},
		"Error ends its goroutine":           {&hostile{text: func() string { runtime.Goexit(); return "" }}, "ended the goroutine"},
		"Is panics":                          {&hostile{is: func() bool { panic("ouch") }}, "hostile"},
		"As panics":                          {&hostile{as: func() bool { panic("ouch") }}, "hostile"},
		"As without a value":                 {&hostile{as: func() bool { return true }}, "hostile"},
		"Unwrap panics":                      {&hostile{unwrap: func() error { panic("ouch") }}, "hostile"},
		"Unwrap without end":                 {endless, "hostile"},
		"incomparable":                       {list{list{}, nil, errTest}, "a list"},
		"within a list":                      {errors.Join(errTest, (*fs.PathError)(nil)), "*errors.joinError"},
		"a panic with an error of this kind": {&dispatch.PanicError{Value: &hostile{text: func() string { panic("ouch") }}}, "dispatch: the handler panicked"},
	}
}

func TestErrorWhoseMethodsPanicIsAFailureLikeAnyOther(t *testing.T) {
	for name, c := range bad() {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				keys := b.append(4, nil)
				var seen recorder
				observer := seen.observer()
				settled := observer.Settled
				observer.Settled = func(ctx context.Context, row outbox.Row, outcome dispatch.Outcome, took time.Duration, err error) {
					_ = err.Error() // is safe now, and so are the following
					_ = errors.Is(err, errTest)
					var permanent *dispatch.PermanentError
					_ = errors.As(err, &permanent)
					settled(ctx, row, outcome, took, err)
				}
				b.run(func(_ context.Context, row outbox.Row) error {
					switch row.Ordinal {
					case 1:
						return dispatch.Permanent(c.err)
					case 2:
						return dispatch.RetryAfter(time.Hour, c.err)
					case 3:
						panic(c.err)
					}
					return c.err
				}, dispatch.Options{MaxAttempts: 2, PollInterval: time.Hour, Observer: observer, Logger: slog.New(slog.NewTextHandler(readAll{}, nil)), Backoff: func(uint32) time.Duration { return time.Minute }})
				synctest.Wait()
				for i, key := range keys {
					require.Contains(t, b.get(key).LastError, map[bool]string{true: c.text, false: ""}[i == 0])
					require.NotEmpty(t, b.get(key).LastError)
				}
				b.requireStatus(outbox.Pending, keys[0], keys[2], keys[3])
				if name != "Error ends its goroutine" { // which hides what it wraps
					b.requireStatus(outbox.Failed, keys[1])
					require.Equal(t, time.Now().Add(time.Hour).UTC(), b.get(keys[2]).VisibleAfter)
				}
				time.Sleep(3 * time.Hour)
				synctest.Wait()
				b.requireStatus(outbox.Failed, keys...)
			})
		})
	}
}

type readAll struct{}

func (readAll) Write(p []byte) (int, error) { return len(p), nil }

func TestErrorWhoseMethodDoesNotReturnIsLeftBehindByTheShutdown(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		keys := b.append(2, nil)
		release := make(chan struct{})
		b.run(func(_ context.Context, row outbox.Row) error {
			if row.Ordinal == 0 {
				return &hostile{text: func() string { <-release; return "late" }}
			}
			return nil
		}, dispatch.Options{})
		time.Sleep(time.Hour)
		b.requireStatus(outbox.Claimed, keys[0])
		b.requireStatus(outbox.Done, keys[1])
		b.stop()
		require.ErrorContains(t, <-b.ended, "1 handlers")
		b.stop = nil
		b.requireStatus(outbox.Pending, keys[0])
		close(release)
	})
}
