package outboxtest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
)

// A test of a program that retries: the store is in memory, and the test says
// what time it is.
func ExampleNew() {
	testRetry := func(t *testing.T) {
		store := outboxtest.New(t) // with the driver that the test binary imports
		ctx := t.Context()
		_, err := store.Append(ctx, outbox.Row{WorkflowID: uuid.New(), ActivityType: "send"})
		if err != nil {
			t.Fatal(err)
		}
		rows, _ := store.Claim(ctx, 1)
		later := store.Clock.Now().Add(time.Hour)
		if err := store.Retry(ctx, rows[0].Ref(), 1, later, nil); err != nil {
			t.Fatal(err)
		}
		outboxtest.RequireCounts(t, store.Store, map[outbox.Status]int{outbox.Pending: 1})
		store.Clock.Advance(time.Hour)
		if rows, _ = store.Claim(ctx, 1); len(rows) != 1 {
			t.Fatal("an hour later it is due")
		}
	}
	_ = testRetry
}

// The specification, over a setup of one's own.
func ExampleRun() {
	testConformance := func(t *testing.T) {
		outboxtest.Run(t, func(t *testing.T, opts *outbox.Options) *outbox.Store {
			store, err := outbox.Open(context.Background(), "my driver", "file:"+t.TempDir()+"/outbox.db", opts)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { store.Close() })
			return store
		})
	}
	_ = testConformance
}

// A clock stands still until it is set.
func ExampleClock() {
	clock := outboxtest.NewClock()
	before := clock.Now()
	clock.Advance(time.Minute)
	fmt.Println(clock.Now().Sub(before))
	clock.Set(before)
	fmt.Println(clock.Now().Sub(before))
	// Output:
	// 1m0s
	// 0s
}
