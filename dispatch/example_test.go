package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/google/uuid"
	_ "github.com/tursodatabase/go-libsql"
)

// Rows go to a handler, whose result decides what becomes of each.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	store, err := outbox.Open(ctx, "libsql", ":memory:", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	workflow := uuid.New()
	for i, activity := range []string{"reserve", "charge", "ship"} {
		row := outbox.Row{WorkflowID: workflow, Ordinal: uint64(i), ActivityType: activity}
		if _, err := store.Append(ctx, row); err != nil {
			log.Fatal(err)
		}
	}

	handler := func(_ context.Context, row outbox.Row) error {
		fmt.Println(row.ActivityType)
		if row.ActivityType == "ship" {
			stop() // where a program would wait for a signal
		}
		return nil
	}
	if err := dispatch.New(store, handler, &dispatch.Options{Concurrency: 1}).Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// reserve
	// charge
	// ship
}

// A handler says by its error whether, and when, its row is to be tried again.
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

// Tenants share the handlers: at most five rows of each are claimed at once, and
// their routes take turns.
func ExampleLimit() {
	options := dispatch.Options{MaxPerNamespace: dispatch.Limit(5)}
	fmt.Println(options.MaxPerNamespace("any tenant"))
	// Output: 5
}
