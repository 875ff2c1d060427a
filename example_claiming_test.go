package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
)

// The earliest due rows come first, up to the limit.
func ExampleStore_Claim() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	stageExample(store, "first", "second", "third")
	for {
		rows, err := store.Claim(ctx, 2)
		must(err)
		if len(rows) == 0 {
			break
		}
		for _, row := range rows {
			fmt.Println(row.DispatchKey)
			must(store.Complete(ctx, row.Ref()))
		}
	}
	// Output:
	// first
	// second
	// third
}

// Rows of workflows on hold stay where they are, and cost the others nothing.
func ExampleStore_ClaimExcluding() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	paused := stageExample(store, "paused 1", "paused 2")
	stageExample(store, "running")

	rows, err := store.ClaimExcluding(ctx, 1, paused)
	must(err)
	fmt.Println(rows[0].DispatchKey)
	rows, err = store.Claim(ctx, 10) // resumed
	must(err)
	fmt.Println(len(rows))
	// Output:
	// running
	// 2
}

// A fair loop gives each route that has due rows a turn, so that a tenant with a
// large backlog does not make the others wait.
func ExampleStore_PendingRoutes() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	for i, namespace := range []string{"big", "big", "big", "small"} {
		_, err := store.Append(ctx, outbox.Row{WorkflowID: uuid.New(), Ordinal: uint64(i), ActivityType: "send", Namespace: namespace})
		must(err)
	}
	for {
		routes, err := store.PendingRoutes(ctx)
		must(err)
		if len(routes) == 0 {
			break
		}
		for _, route := range routes {
			rows, err := store.ClaimScoped(ctx, route, 1)
			must(err)
			fmt.Println(route.Namespace, len(rows))
		}
	}
	// Output:
	// big 1
	// small 1
	// big 1
	// big 1
}

// A scope is what a worker serves. Rows that are pinned to a node are for that
// node alone.
func ExampleScope_Admits() {
	scope := outbox.Scope{Namespace: "shop", TaskQueue: "mail", Node: "n1"}
	for _, row := range []outbox.Row{
		{Namespace: "shop", TaskQueue: "mail"},
		{Namespace: "shop", TaskQueue: "mail", Node: "n1"},
		{Namespace: "shop", TaskQueue: "mail", Node: "n2"},
		{Namespace: "shop", TaskQueue: "bills"},
	} {
		fmt.Println(scope.Admits(row))
	}
	// Output:
	// true
	// true
	// false
	// false
}

// A job that takes longer than the lease says now and then that it is alive.
func ExampleStore_Extend() {
	ctx := context.Background()
	now := time.Date(2026, 5, 1, 8, 0, 0, 0, time.UTC)
	store, err := outbox.Open(ctx, "libsql", ":memory:", &outbox.Options{Now: func() time.Time { return now }})
	must(err)
	defer store.Close()
	stageExample(store, "encode a film")
	const lease = time.Minute
	rows, err := store.Claim(ctx, 1)
	must(err)
	for range 3 {
		now = now.Add(lease / 2)
		must(store.Extend(ctx, rows[0].Ref()))
		stale, err := store.ListStale(ctx, now.Add(-lease), 10) // as a reconciler would
		must(err)
		fmt.Println(len(stale), "stale")
	}
	fmt.Println(store.Complete(ctx, rows[0].Ref()))
	// Output:
	// 0 stale
	// 0 stale
	// 0 stale
	// <nil>
}

// A worker whose claim went stale and was taken by another learns so when it
// settles the row. The other refs of the call are settled.
func ExampleClaimLostError() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	stageExample(store, "a", "b")
	slow, err := store.Claim(ctx, 2)
	must(err)
	_, err = store.RearmStale(ctx, time.Now().Add(time.Hour), time.Time{}, 1)
	must(err)
	_, err = store.Claim(ctx, 1) // another worker
	must(err)

	err = store.Complete(ctx, slow[0].Ref(), slow[1].Ref())
	var lost *outbox.ClaimLostError
	if errors.As(err, &lost) {
		fmt.Println("lost:", lost.DispatchKeys)
	}
	state, err := store.State(ctx, "b")
	fmt.Println(state.Status, err)
	// Output:
	// lost: [a]
	// done <nil>
}

// A loop claims what there is, and then sleeps until a row falls due, this
// program commits something that may let one be claimed, or another process has
// written to the file.
func ExampleStore_Subscribe() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := openExample()
	defer store.Close()
	wake, cancel := store.Subscribe()
	defer cancel()
	watch, err := store.Watch(ctx)
	if err == nil {
		defer watch.Close()
	} // else errors.ErrUnsupported: nobody else writes to a database in memory

	sleep := func() {
		due, ok, err := store.NextVisibleAfter(ctx, store.Now())
		for err == nil && !(ok && !store.Now().Before(due)) {
			select {
			case <-wake:
				return
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
			if watch != nil {
				if changed, err := watch.Changed(ctx); changed || err != nil {
					return
				}
			}
		}
	}
	go stageExample(store, "work")
	for ctx.Err() == nil {
		rows, err := store.Claim(ctx, 10)
		must(err)
		for _, row := range rows {
			fmt.Println(row.DispatchKey)
			must(store.Complete(ctx, row.Ref()))
			stop() // enough for an example
		}
		sleep()
	}
	// Output:
	// work
}

// A file is watched for what other processes commit. In memory there are none.
func ExampleStore_Watch() {
	store := openExample()
	defer store.Close()
	_, err := store.Watch(context.Background())
	fmt.Println(errors.Is(err, errors.ErrUnsupported))
	// Output:
	// true
}

// How long a loop may sleep that has claimed all it could, although a row of a
// paused workflow is due.
func ExampleStore_NextVisibleAfter() {
	ctx := context.Background()
	now := time.Date(2026, 5, 1, 8, 0, 0, 0, time.UTC)
	store, err := outbox.Open(ctx, "libsql", ":memory:", &outbox.Options{Now: func() time.Time { return now }})
	must(err)
	defer store.Close()
	stageExample(store, "paused")
	_, err = store.Append(ctx, outbox.Row{WorkflowID: uuid.New(), ActivityType: "remind", VisibleAfter: now.Add(5 * time.Minute)})
	must(err)
	at, ok, err := store.NextVisibleAfter(ctx, now)
	fmt.Println(at.Sub(now), ok, err)
	// Output:
	// 5m0s true <nil>
}
