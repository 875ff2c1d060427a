package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strings"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
)

// must ends an example that fails.
func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// stageExample stages a row a key, all of one workflow.
func stageExample(store *outbox.Store, keys ...string) uuid.UUID {
	workflow := uuid.New()
	for i, key := range keys {
		_, err := store.Append(context.Background(), outbox.Row{DispatchKey: key, WorkflowID: workflow, Ordinal: uint64(i), ActivityType: "send"})
		must(err)
	}
	return workflow
}

// A program that has a database of its own gives it to New, and migrates it with
// its other tables.
func ExampleNew() {
	ctx := context.Background()
	db, err := sql.Open("libsql", ":memory:")
	must(err)
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection would be a database in memory of its own

	store := outbox.New(db, nil)
	must(store.Migrate(ctx))
	_, err = store.Append(ctx, outbox.Row{WorkflowID: uuid.New(), ActivityType: "bill"})
	fmt.Println(err)
	must(store.Close()) // leaves db open
	fmt.Println(db.Ping())
	// Output:
	// <nil>
	// <nil>
}

// Open tells what is wrong with a database by errors that errors.Is finds.
func ExampleOpen() {
	_, err := outbox.Open(context.Background(), "libsql", "file:no/such/folder/outbox.db", nil)
	fmt.Println(errors.Is(err, outbox.ErrUnavailable))
	// Output:
	// true
}

// A clock of the program's own, for tests or for nodes that agree on the time.
func ExampleOptions() {
	ctx := context.Background()
	now := time.Date(2026, 5, 1, 8, 0, 0, 0, time.UTC)
	store, err := outbox.Open(ctx, "libsql", ":memory:", &outbox.Options{Now: func() time.Time { return now }})
	must(err)
	defer store.Close()
	_, err = store.Append(ctx, outbox.Row{DispatchKey: "a", WorkflowID: uuid.New(), ActivityType: "send"})
	must(err)
	row, err := store.Get(ctx, "a")
	fmt.Println(row.CreatedAt, err)
	// Output:
	// 2026-05-01 08:00:00 +0000 UTC <nil>
}

// A transaction that the program has begun takes the dispatch along.
func ExampleStore_AppendTx() {
	ctx := context.Background()
	db, err := sql.Open("libsql", ":memory:")
	must(err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	store := outbox.New(db, nil)
	must(store.Migrate(ctx))
	_, err = db.Exec(`CREATE TABLE orders (item TEXT)`)
	must(err)

	order := func(item string, commit bool) {
		tx, err := db.BeginTx(ctx, nil)
		must(err)
		defer tx.Rollback()
		_, err = tx.ExecContext(ctx, `INSERT INTO orders VALUES (?)`, item)
		must(err)
		_, err = store.AppendTx(ctx, tx, outbox.Row{DispatchKey: "ship " + item, WorkflowID: uuid.New(), ActivityType: "ship"})
		must(err)
		if commit {
			must(tx.Commit())
		}
	}
	order("bicycle", true)
	order("tandem", false)
	for _, key := range []string{"ship bicycle", "ship tandem"} {
		_, err := store.State(ctx, key)
		fmt.Println(key, err)
	}
	// Output:
	// ship bicycle <nil>
	// ship tandem outbox: no such row
}

// After a crash an engine replays its history and rearms what it finds there:
// known rows become pending again, others are staged.
func ExampleStore_Rearm() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	workflow := stageExample(store, "ship")
	before, err := store.Claim(ctx, 1)
	must(err)

	must(store.Rearm(ctx,
		outbox.Row{DispatchKey: "ship", WorkflowID: workflow, ActivityType: "send"},
		outbox.Row{DispatchKey: "bill", WorkflowID: workflow, Ordinal: 1, ActivityType: "send"},
	))
	rows, err := store.Claim(ctx, 10)
	must(err)
	fmt.Println(len(rows), "rows")
	fmt.Println("from before the crash:", store.Complete(ctx, before[0].Ref()))
	// Output:
	// 2 rows
	// from before the crash: outbox: claim lost: "ship"
}

// What is wrong with a row is told by its place in the call and the field.
func ExampleInvalidError() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	_, err := store.Append(ctx,
		outbox.Row{DispatchKey: "a", WorkflowID: uuid.New(), ActivityType: "send"},
		outbox.Row{DispatchKey: "b", WorkflowID: uuid.New()},
	)
	var invalid *outbox.InvalidError
	if errors.As(err, &invalid) {
		fmt.Println(invalid.Index, invalid.DispatchKey, invalid.Field, invalid.Reason)
	}
	_, err = store.Get(ctx, "a")
	fmt.Println(err)
	// Output:
	// 1 b ActivityType is empty
	// outbox: no such row
}

// The key of a row is its idempotency key. Unless another is given it is made of
// workflow and ordinal.
func ExampleDispatchKey() {
	workflow := uuid.MustParse("0198c5a0-7b1c-7000-8000-000000000001")
	fmt.Println(outbox.DispatchKey(workflow, 7))
	// Output:
	// 0198c5a0-7b1c-7000-8000-000000000001:7
}

// A payload is bytes with a content type. JSON makes one of a value.
func ExampleJSON() {
	payload, err := outbox.JSON(map[string]int{"answer": 42})
	fmt.Println(payload.ContentType, string(payload.Data), err)
	// Output:
	// application/json {"answer":42} <nil>
}

// A worker decodes what JSON has encoded, and is told if it is something else.
func ExamplePayload_Unmarshal() {
	var mail struct{ To string }
	payload := outbox.Payload{ContentType: "application/json", Data: json.RawMessage(`{"to":"ada@example.com"}`)}
	fmt.Println(payload.Unmarshal(&mail), mail.To)
	fmt.Println(outbox.Payload{ContentType: "text/plain", Data: []byte("hello")}.Unmarshal(&mail))
	// Output:
	// <nil> ada@example.com
	// outbox: decode payload: content type "text/plain" is not JSON
}

// A row may be logged as it is: its payload is left out.
func ExampleRow_LogValue() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(groups []string, attr slog.Attr) slog.Attr {
			if attr.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return attr
		},
	}))
	row := outbox.Row{
		ID: 1, DispatchKey: "mail-1", ActivityType: "send", Namespace: "shop", TaskQueue: "mail", Status: outbox.Pending,
		Input: outbox.Payload{ContentType: "text/plain", Data: []byte("a secret")},
	}
	logger.Info("late", "row", row)
	// Output:
	// level=INFO msg=late row.id=1 row.dispatch_key=mail-1 row.activity_type=send row.namespace=shop row.task_queue=mail row.status=pending row.attempt=0 row.fence=0 row.payload_bytes=8
}

// A program that migrates by itself runs these statements with its own.
func ExampleSchema() {
	for statement := range strings.SplitSeq(outbox.Schema(), ";\n\n") {
		if strings.Contains(statement, "CREATE UNIQUE INDEX") {
			fmt.Println(statement[strings.Index(statement, "CREATE"):])
		}
	}
	// Output:
	// CREATE UNIQUE INDEX IF NOT EXISTS outbox_key ON outbox (dispatch_key)
}
