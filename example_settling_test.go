package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"example.com/outbox"
)

// Rows that are done together are settled in one call.
func ExampleStore_Complete() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	stageExample(store, "a", "b")
	rows, err := store.Claim(ctx, 2)
	must(err)
	fmt.Println(store.Complete(ctx, rows[0].Ref(), rows[1].Ref()))
	fmt.Println(store.Complete(ctx, rows[0].Ref()), "after a lost answer, say")
	// Output:
	// <nil>
	// <nil> after a lost answer, say
}

// The result of the work and the end of its row commit together.
func ExampleStore_CompleteTx() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	stageExample(store, "count the bicycles")
	rows, err := store.Claim(ctx, 1)
	must(err)
	must(store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
		if _, err := tx.ExecContext(ctx, `CREATE TABLE results AS SELECT 12 AS bicycles`); err != nil {
			return err
		}
		return store.CompleteTx(ctx, tx, rows[0].Ref())
	}))
	state, err := store.State(ctx, "count the bicycles")
	fmt.Println(state.Status, err)
	// Output:
	// done <nil>
}

// A workflow that gives up records so with its dead letter.
func ExampleStore_FailTx() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	stageExample(store, "charge")
	rows, err := store.Claim(ctx, 1)
	must(err)
	must(store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
		if _, err := tx.ExecContext(ctx, `CREATE TABLE history AS SELECT 'payment refused' AS event`); err != nil {
			return err
		}
		return store.FailTx(ctx, tx, rows[0].Ref(), errors.New("card expired"))
	}))
	row, err := store.Get(ctx, "charge")
	fmt.Println(row.Status, row.LastError, err)
	// Output:
	// failed card expired <nil>
}

// Who knows only the key cancels whatever live row has it.
func ExampleStore_Cancel() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	stageExample(store, "reminder")
	fmt.Println(store.Cancel(ctx, outbox.Ref{DispatchKey: "reminder"}, outbox.Ref{DispatchKey: "no such row"}))
	state, err := store.State(ctx, "reminder")
	fmt.Println(state.Status, err)
	// Output:
	// <nil>
	// cancelled <nil>
}

// A workflow that ends takes its live rows along. A worker that holds one learns
// that it is lost.
func ExampleStore_SettleWorkflow() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	workflow := stageExample(store, "a", "b", "c")
	rows, err := store.Claim(ctx, 2)
	must(err)
	must(store.Complete(ctx, rows[0].Ref()))
	keys, err := store.SettleWorkflow(ctx, workflow)
	fmt.Println(keys, err)
	fmt.Println(store.Complete(ctx, rows[1].Ref()))
	// Output:
	// [b c] <nil>
	// outbox: claim lost: "b"
}

// An operator looks at the dead letters and sends on their way those that are
// worth another try.
func ExampleStore_Requeue() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	stageExample(store, "a", "b")
	rows, err := store.Claim(ctx, 2)
	must(err)
	must(store.Fail(ctx, rows[0].Ref(), errors.New("timeout")))
	must(store.Fail(ctx, rows[1].Ref(), errors.New("no such mailbox")))

	var again []string
	for row, err := range store.Rows(ctx, outbox.Filter{Status: outbox.Failed}) {
		must(err)
		if row.LastError == "timeout" {
			again = append(again, row.DispatchKey)
		}
	}
	n, err := store.Requeue(ctx, again...)
	fmt.Println(n, err)
	// Output:
	// 1 <nil>
}

// Settled rows are kept for a while, for they tell duplicates and late claims,
// and are deleted a portion at a time.
func ExampleStore_Purge() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	stageExample(store, "a", "b", "c")
	rows, err := store.Claim(ctx, 2)
	must(err)
	must(store.Complete(ctx, rows[0].Ref(), rows[1].Ref()))

	const portion = 1000
	horizon := time.Now().Add(time.Hour) // a week ago, in earnest
	for {
		n, err := store.Purge(ctx, horizon, portion)
		must(err)
		fmt.Println(n, "purged")
		if n < portion {
			break
		}
	}
	// Output:
	// 2 purged
}

// Rows that a foreign key of the program's refers to are kept, and named.
func ExampleReferencedError() {
	ctx := context.Background()
	db, err := sql.Open("libsql", ":memory:")
	must(err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	store := outbox.New(db, nil)
	must(store.Migrate(ctx))
	stageExample(store, "a", "b")
	must(store.Complete(ctx, outbox.Ref{DispatchKey: "a"}, outbox.Ref{DispatchKey: "b"}))
	for _, statement := range []string{
		`PRAGMA foreign_keys = ON`,
		`CREATE TABLE receipts (dispatch TEXT REFERENCES outbox (dispatch_key))`,
		`INSERT INTO receipts VALUES ('b')`,
	} {
		_, err := db.Exec(statement)
		must(err)
	}
	n, err := store.Purge(ctx, time.Now().Add(time.Hour), 1000)
	var referenced *outbox.ReferencedError
	if errors.As(err, &referenced) {
		fmt.Println(n, "purged, kept:", referenced.DispatchKeys)
	}
	// Output:
	// 1 purged, kept: [b]
}
