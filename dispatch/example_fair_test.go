package dispatch_test

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
)

// Tenants share the handlers: at most two rows of each are claimed at once, and
// their routes take turns.
func ExampleLimit() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	rows := []outbox.Row{{Namespace: "small", ActivityType: "ship"}}
	for range 100 {
		rows = append(rows, outbox.Row{Namespace: "large", ActivityType: "ship"})
	}
	store := openWith(rows)
	defer store.Close()

	dispatcher := dispatch.New(store, func(context.Context, outbox.Row) error { return nil }, &dispatch.Options{
		MaxPerNamespace: dispatch.Limit(2),
		Observer: dispatch.Observer{
			Claimed: func(rows []outbox.Row) {
				if len(rows) > 4 {
					fmt.Println(len(rows), "rows at once")
				}
			},
			Settled: func(_ context.Context, row outbox.Row, _ dispatch.Outcome, _ time.Duration, _ error) {
				if row.Namespace == "small" {
					fmt.Println("the small tenant has had its turn")
					stop()
				}
			},
		},
	})
	if err := dispatcher.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: the small tenant has had its turn
}

// Routes take turns, so that a tenant with many rows does not keep another waiting.
func ExampleOptions_allRoutes() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	rows := make([]outbox.Row, 100)
	for i := range rows {
		rows[i] = outbox.Row{Namespace: "large", ActivityType: "ship"}
	}
	rows = append(rows, outbox.Row{Namespace: "small", ActivityType: "ship"})
	store := openWith(rows)
	defer store.Close()

	before := 0
	dispatcher := dispatch.New(store, func(_ context.Context, row outbox.Row) error {
		if row.Namespace == "small" {
			fmt.Println("at most two before it:", before <= 2)
			stop()
		}
		before++
		return nil
	}, &dispatch.Options{Concurrency: 1, AllRoutes: true})
	if err := dispatcher.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: at most two before it: true
}

// One database for each tenant: their Dispatchers share a Pool, so that all of
// them together run 16 handlers at once.
func ExamplePool() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	pool := dispatch.NewPool(16)
	var handled atomic.Int32
	var dispatchers []*dispatch.Dispatcher
	for _, tenant := range []string{"acme", "globex", "initech"} {
		store := openWith([]outbox.Row{{ActivityType: "ship"}})
		defer store.Close()
		dispatchers = append(dispatchers, dispatch.New(store, func(_ context.Context, row outbox.Row) error {
			fmt.Println(row.ActivityType, "for", tenant)
			if handled.Add(1) == 3 {
				stop()
			}
			return nil
		}, &dispatch.Options{Pool: pool}))
	}
	if err := dispatch.RunAll(ctx, dispatchers...); err != nil {
		log.Fatal(err)
	}
	// Unordered output:
	// ship for acme
	// ship for globex
	// ship for initech
}
