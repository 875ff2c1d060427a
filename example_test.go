package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// What the README shows: an engine's history and its dispatch in one
// transaction, and a loop that hands out what is due.
func Example_engine() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "outbox-example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "engine.db")
	setup, err := sql.Open("libsql", "file:"+path)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := setup.Exec(`CREATE TABLE history (event TEXT)`); err != nil {
		log.Fatal(err)
	}
	if err := setup.Close(); err != nil {
		log.Fatal(err)
	}
	ship := func(_ context.Context, row outbox.Row) error {
		fmt.Println("shipping", string(row.Input.Data))
		return nil
	}
	workflow, payload := uuid.New(), outbox.Payload{ContentType: "text/plain", Data: []byte("a bicycle")}
	if err := engine(ctx, path, workflow, payload, ship); err != nil {
		log.Fatal(err)
	}
	// Output:
	// shipping a bicycle
}

func engine(ctx context.Context, path string, workflow uuid.UUID, payload outbox.Payload, ship func(context.Context, outbox.Row) error) error {
	store, err := outbox.Open(ctx, "libsql", "file:"+path, nil)
	if err != nil {
		return err
	}
	defer store.Close()

	// Your history and the dispatch commit together, or neither does.
	err = store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO history (event) VALUES (?)`, "scheduled"); err != nil {
			return err
		}
		_, err := store.AppendTx(ctx, tx, outbox.Row{WorkflowID: workflow, Ordinal: 1, ActivityType: "ship", Input: payload})
		return err
	})
	if err != nil {
		return err
	}

	// Elsewhere, in a loop:
	rows, err := store.Claim(ctx, 100)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if cause := ship(ctx, row); cause != nil {
			err = store.Retry(ctx, row.Ref(), row.Attempt+1, time.Now().Add(time.Minute), cause)
		} else {
			err = store.Complete(ctx, row.Ref())
		}
		if err != nil && !errors.Is(err, outbox.ErrClaimLost) { // lost: another has claimed the row since
			return err
		}
	}
	return nil
}

func TestREADMEShowsCodeThatRuns(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(readme), "```go\n")
	require.True(t, found)
	code, _, found := strings.Cut(rest, "```\n")
	require.True(t, found)
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" {
			require.Contains(t, string(source), "\t"+line+"\n")
		}
	}
}

// A whole life: staged, claimed, settled.
func Example() {
	ctx := context.Background()
	store, err := outbox.Open(ctx, "libsql", ":memory:", nil) // or "file:outbox.db", or "http://…"
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	payload, err := outbox.JSON(map[string]string{"to": "ada@example.com"})
	if err != nil {
		log.Fatal(err)
	}
	workflow := uuid.New()
	_, err = store.Append(ctx, outbox.Row{WorkflowID: workflow, Ordinal: 1, ActivityType: "send mail", Input: payload})
	if err != nil {
		log.Fatal(err)
	}

	rows, err := store.Claim(ctx, 10)
	if err != nil {
		log.Fatal(err)
	}
	for _, row := range rows {
		fmt.Println(row.ActivityType, string(row.Input.Data))
		if err := store.Complete(ctx, row.Ref()); err != nil {
			log.Fatal(err)
		}
	}
	state, err := store.State(ctx, outbox.DispatchKey(workflow, 1))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(state.Status)
	// Output:
	// send mail {"to":"ada@example.com"}
	// done
}

// Staging a key again changes nothing and says so.
func ExampleStore_Append() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()

	row := outbox.Row{DispatchKey: "invoice-17", WorkflowID: uuid.New(), ActivityType: "bill"}
	duplicates, err := store.Append(ctx, row)
	fmt.Println(duplicates, err)
	duplicates, err = store.Append(ctx, row)
	fmt.Println(duplicates, err)
	// Output:
	// [] <nil>
	// [invoice-17] <nil>
}

// The engine's history and the dispatch commit together, or neither does.
func ExampleStore_Update() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	workflow := uuid.New()

	schedule := func(ordinal uint64, outcome error) error {
		return store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
			if _, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS history (event TEXT)`); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO history VALUES (?)`, "activity scheduled"); err != nil {
				return err
			}
			if _, err := store.AppendTx(ctx, tx, outbox.Row{WorkflowID: workflow, Ordinal: ordinal, ActivityType: "ship"}); err != nil {
				return err
			}
			return outcome
		})
	}
	fmt.Println(schedule(1, nil))
	fmt.Println(schedule(2, errors.New("out of stock")))

	rows, err := store.List(ctx, outbox.Filter{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(rows), "row")
	// Output:
	// <nil>
	// out of stock
	// 1 row
}

// A loop that serves one route claims what its scope admits, and passes over
// the rows of workflows that are on hold.
func ExampleStore_ClaimScopedExcluding() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	paused, running := uuid.New(), uuid.New()
	_, err := store.Append(ctx,
		outbox.Row{WorkflowID: paused, ActivityType: "paused", Namespace: "shop"},
		outbox.Row{WorkflowID: running, ActivityType: "any node", Namespace: "shop"},
		outbox.Row{WorkflowID: running, Ordinal: 1, ActivityType: "this node", Namespace: "shop", Node: "n1"},
		outbox.Row{WorkflowID: running, Ordinal: 2, ActivityType: "other node", Namespace: "shop", Node: "n2"},
	)
	if err != nil {
		log.Fatal(err)
	}
	scope := outbox.Scope{Namespace: "shop", TaskQueue: outbox.DefaultRoute, Node: "n1"}
	rows, err := store.ClaimScopedExcluding(ctx, scope, 10, paused)
	if err != nil {
		log.Fatal(err)
	}
	for _, row := range rows {
		fmt.Println(row.ActivityType)
	}
	// Output:
	// any node
	// this node
}

// A failed attempt is tried again later, a hopeless one is a dead letter that an
// operator can send on its way again.
func ExampleStore_Retry() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	if _, err := store.Append(ctx, outbox.Row{DispatchKey: "mail-1", WorkflowID: uuid.New(), ActivityType: "send"}); err != nil {
		log.Fatal(err)
	}
	const attempts = 2
	for range attempts {
		rows, err := store.Claim(ctx, 1)
		if err != nil {
			log.Fatal(err)
		}
		row, cause := rows[0], errors.New("mailbox full")
		if next := row.Attempt + 1; next < attempts {
			err = store.Retry(ctx, row.Ref(), next, time.Time{}, cause) // or later: time.Now().Add(backoff)
		} else {
			err = store.Fail(ctx, row.Ref(), cause)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	dead, err := store.List(ctx, outbox.Filter{Status: outbox.Failed})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(dead[0].DispatchKey, dead[0].Attempt, dead[0].LastError)
	n, err := store.Requeue(ctx, "mail-1")
	fmt.Println(n, err)
	// Output:
	// mail-1 1 mailbox full
	// 1 <nil>
}

// Claims of a process that died come back, and what the dead one may still send
// is refused once another holds the row.
func ExampleStore_RearmStale() {
	ctx := context.Background()
	store := openExample()
	defer store.Close()
	if _, err := store.Append(ctx, outbox.Row{WorkflowID: uuid.New(), ActivityType: "send"}); err != nil {
		log.Fatal(err)
	}
	dead, err := store.Claim(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	lease := time.Duration(0) // minutes, in earnest
	rearmed, err := store.RearmStale(ctx, time.Now().Add(-lease).Add(time.Second), time.Time{}, 100)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(rearmed), "rearmed")
	again, err := store.Claim(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("late:", errors.Is(store.Complete(ctx, dead[0].Ref()), outbox.ErrClaimLost))
	fmt.Println("held:", store.Complete(ctx, again[0].Ref()))
	// Output:
	// 1 rearmed
	// late: true
	// held: <nil>
}

func openExample() *outbox.Store {
	store, err := outbox.Open(context.Background(), "libsql", ":memory:", nil)
	if err != nil {
		log.Fatal(err)
	}
	return store
}
