package dispatch_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"sync/atomic"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/google/uuid"
)

// openWith opens a store in memory and appends rows to it, each of a workflow of
// its own that is one of the given if there are as many.
func openWith(rows []outbox.Row, workflows ...uuid.UUID) *outbox.Store {
	store, err := outbox.Open(context.Background(), "libsql", ":memory:", nil)
	if err != nil {
		log.Fatal(err)
	}
	for i := range rows {
		rows[i].WorkflowID = uuid.New()
		if i < len(workflows) {
			rows[i].WorkflowID = workflows[i]
		}
	}
	if _, err := store.Append(context.Background(), rows...); err != nil {
		log.Fatal(err)
	}
	return store
}

// Rows go to a handler, whose result decides what becomes of each.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
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

// Work that somebody else finishes: the handler hands it over and returns
// Accepted, and the row is completed later by its key, in any process.
func ExampleAccepted() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := openWith([]outbox.Row{{ActivityType: "ship"}})
	defer store.Close()

	parcels := make(chan string, 1)
	go func() { // the carrier
		key := <-parcels
		// Fence 0: the carrier knows only the key.
		if err := store.Complete(context.Background(), outbox.Ref{DispatchKey: key}); err != nil {
			log.Print(err)
		}
		state, err := store.State(context.Background(), key)
		fmt.Println(state.Status, err)
		stop()
	}()
	dispatcher := dispatch.New(store, func(_ context.Context, row outbox.Row) error {
		return dispatch.Accepted
	}, &dispatch.Options{Observer: dispatch.Observer{
		Settled: func(_ context.Context, row outbox.Row, outcome dispatch.Outcome, _ time.Duration, _ error) {
			fmt.Println(outcome)
			parcels <- row.DispatchKey
		},
	}})
	if err := dispatcher.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// accepted
	// done <nil>
}

// A workflow that is paused keeps its rows, which are passed over.
func ExampleOptions_heldContext() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	paused, running := uuid.New(), uuid.New()
	store := openWith([]outbox.Row{{ActivityType: "of the paused one"}, {ActivityType: "of the other"}}, paused, running)
	defer store.Close()

	dispatcher := dispatch.New(store, func(_ context.Context, row outbox.Row) error {
		fmt.Println(row.ActivityType)
		stop()
		return nil
	}, &dispatch.Options{
		// A program would query its own table of workflows.
		HeldContext: func(context.Context) ([]uuid.UUID, error) { return []uuid.UUID{paused}, nil },
	})
	if err := dispatcher.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: of the other
}

// A Dispatcher cannot see that a workflow is no longer paused: Wake makes it look.
func ExampleDispatcher_Wake() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	workflow := uuid.New()
	store := openWith([]outbox.Row{{ActivityType: "ship"}}, workflow)
	defer store.Close()

	var paused atomic.Bool
	paused.Store(true)
	asked := make(chan struct{}, 1)
	dispatcher := dispatch.New(store, func(_ context.Context, row outbox.Row) error {
		fmt.Println(row.ActivityType)
		stop()
		return nil
	}, &dispatch.Options{
		PollInterval: time.Hour,
		Held: func() []uuid.UUID {
			select {
			case asked <- struct{}{}:
			default:
			}
			if paused.Load() {
				return []uuid.UUID{workflow}
			}
			return nil
		},
	})
	go func() {
		<-asked
		fmt.Println("resumed")
		paused.Store(false)
		dispatcher.Wake()
	}()
	if err := dispatcher.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// resumed
	// ship
}

// Rows of a workflow that has ended are settled when the Dispatcher starts, and not
// dispatched.
func ExampleOptions_terminal() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended, running := uuid.New(), uuid.New()
	store := openWith([]outbox.Row{{ActivityType: "of the ended one"}, {ActivityType: "of the other"}}, ended, running)
	defer store.Close()

	dispatcher := dispatch.New(store, func(_ context.Context, row outbox.Row) error {
		fmt.Println(row.ActivityType)
		stop()
		return nil
	}, &dispatch.Options{
		Terminal: func(_ context.Context, workflow uuid.UUID) (bool, error) { return workflow == ended, nil },
		Logger:   slog.New(slog.DiscardHandler),
	})
	if err := dispatcher.Run(ctx); err != nil {
		log.Fatal(err)
	}
	state, err := store.State(context.Background(), outbox.DispatchKey(ended, 0))
	fmt.Println(state.Status, err)
	// Output:
	// of the other
	// cancelled <nil>
}

// An Observer counts, and adds to the context of a handler.
func ExampleObserver() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := openWith([]outbox.Row{{ActivityType: "ship"}})
	defer store.Close()

	type tracing struct{}
	observer := dispatch.Observer{
		Claimed: func(rows []outbox.Row) { fmt.Println("claimed:", len(rows)) },
		Started: func(ctx context.Context, row outbox.Row) context.Context {
			return context.WithValue(ctx, tracing{}, "trace of "+row.ActivityType)
		},
		Settled: func(_ context.Context, row outbox.Row, outcome dispatch.Outcome, took time.Duration, err error) {
			fmt.Println("settled:", outcome, took < time.Minute, err)
			stop()
		},
	}
	dispatcher := dispatch.New(store, func(ctx context.Context, _ outbox.Row) error {
		fmt.Println(ctx.Value(tracing{}))
		return nil
	}, &dispatch.Options{Observer: observer})
	if err := dispatcher.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// claimed: 1
	// trace of ship
	// settled: completed true <nil>
}
