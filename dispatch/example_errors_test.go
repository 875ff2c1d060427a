package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
)

// A handler says by its error whether its row is retried, and when.
func ExampleRetryAfter() {
	answer := func(status int) error {
		err := errors.New(strings.ToLower(http.StatusText(status)))
		switch {
		case status < 300:
			return nil
		case status == http.StatusTooManyRequests:
			return dispatch.RetryAfter(time.Minute, err)
		case status < 500:
			return dispatch.Permanent(err)
		}
		return err // after Options.Backoff
	}
	for _, status := range []int{200, 429, 404, 503} {
		fmt.Println(status, answer(status))
	}
	// Output:
	// 200 <nil>
	// 429 too many requests
	// 404 not found
	// 503 service unavailable
}

// An Observer, or a wrapper around a handler, sees what an error asks for.
func ExampleRetryError() {
	err := fmt.Errorf("charging: %w", dispatch.RetryAfter(time.Minute, errors.New("too many requests")))
	var retry *dispatch.RetryError
	if errors.As(err, &retry) {
		fmt.Println("again in", retry.After)
	}
	// Output: again in 1m0s
}

// A row whose address does not exist becomes a dead letter at its first attempt.
func ExamplePermanent() {
	store := openWith([]outbox.Row{{ActivityType: "notify"}})
	defer store.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dispatcher := dispatch.New(store, func(context.Context, outbox.Row) error {
		return dispatch.Permanent(errors.New("no such address"))
	}, &dispatch.Options{
		Logger:   slog.New(slog.DiscardHandler),
		Observer: dispatch.Observer{Settled: func(context.Context, outbox.Row, dispatch.Outcome, time.Duration, error) { stop() }},
	})
	if err := dispatcher.Run(ctx); err != nil {
		log.Fatal(err)
	}
	rows, err := store.List(context.Background(), outbox.Filter{Status: outbox.Failed})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(rows), rows[0].LastError)
	// Output: 1 no such address
}
