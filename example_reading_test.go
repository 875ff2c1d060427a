package outbox_test

import (
	"context"
	"errors"
	"fmt"

	"example.com/outbox"
	"github.com/google/uuid"
)

// A key that no row has is an error of its own.
func ExampleStore_Get() {
	store := openExample()
	defer store.Close()
	_, err := store.Get(context.Background(), "nobody")
	fmt.Println(errors.Is(err, outbox.ErrNotFound))
	// Output:
	// true
}

// A page starts after the last row of the one before.
func ExampleStore_List() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	stageExample(store, "a", "b", "c")
	filter := outbox.Filter{Status: outbox.Pending, Limit: 2}
	for {
		page, err := store.List(ctx, filter)
		must(err)
		fmt.Println("page:")
		for _, row := range page {
			fmt.Println(row.DispatchKey)
		}
		if len(page) < filter.Limit {
			break
		}
		filter.After = page[len(page)-1].ID
	}
	// Output:
	// page:
	// a
	// b
	// page:
	// c
}

// However many rows there are, a few of them are in memory at a time.
func ExampleStore_Rows() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	workflow := stageExample(store, "a", "b", "c")
	stageExample(store, "another's")
	for row, err := range store.Rows(ctx, outbox.Filter{WorkflowID: uuid.NullUUID{UUID: workflow, Valid: true}}) {
		must(err)
		fmt.Println(row.DispatchKey, row.Status)
		if row.DispatchKey == "b" {
			break
		}
	}
	// Output:
	// a pending
	// b pending
}

// An engine that starts finds the workflows that have something left to do.
func ExampleStore_UnsettledWorkflows() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	ended, running := stageExample(store, "a"), stageExample(store, "b")
	must(store.Complete(ctx, outbox.Ref{DispatchKey: "a"}))
	workflows, err := store.UnsettledWorkflows(ctx)
	must(err)
	for _, workflow := range workflows {
		fmt.Println(workflow == ended, workflow == running)
	}
	// Output:
	// false true
}

// A producer that is far ahead of its workers waits.
func ExampleStore_CountInFlight() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	stageExample(store, "a", "b", "c")
	n, err := store.CountInFlight(ctx, outbox.DefaultRoute)
	must(err)
	if n > 2 {
		fmt.Println("wait,", n, "in flight")
	}
	// Output:
	// wait, 3 in flight
}

// What each tenant has running, in one query, to keep one from taking all.
func ExampleStore_CountClaimedByNamespace() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	for i, namespace := range []string{"big", "big", "small"} {
		_, err := store.Append(ctx, outbox.Row{WorkflowID: uuid.New(), Ordinal: uint64(i), ActivityType: "send", Namespace: namespace})
		must(err)
	}
	_, err := store.ClaimScoped(ctx, outbox.Scope{Namespace: "big", TaskQueue: outbox.DefaultRoute}, 10)
	must(err)
	counts, err := store.CountClaimedByNamespace(ctx, "big", "small", "unknown")
	fmt.Println(counts, err)
	// Output:
	// map[big:2 small:0 unknown:0] <nil>
}
