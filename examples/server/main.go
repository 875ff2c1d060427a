// Server is the smallest program on a libSQL server. It stages a row, claims it and
// completes it. With package hrana alone it needs no C compiler:
//
//	CGO_ENABLED=0 go run ./examples/server -db http://127.0.0.1:8080
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"example.com/outbox"
	_ "example.com/outbox/hrana"
	"github.com/google/uuid"
)

func main() {
	db := flag.String("db", "http://127.0.0.1:8080", "the server, as a data source name of package hrana")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := run(ctx, *db); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dataSourceName string) error {
	store, err := outbox.Open(ctx, "hrana", dataSourceName, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	greeting, err := outbox.JSON("hello")
	if err != nil {
		return err
	}
	if _, err := store.Append(ctx, outbox.Row{WorkflowID: uuid.New(), ActivityType: "greet", Input: greeting}); err != nil {
		return err
	}
	rows, err := store.Claim(ctx, 10)
	if err != nil {
		return err
	}
	for _, row := range rows {
		fmt.Printf("%s: %s\n", row.ActivityType, row.Input.Data)
		if err := store.Complete(ctx, row.Ref()); err != nil {
			return err
		}
	}
	return nil
}
