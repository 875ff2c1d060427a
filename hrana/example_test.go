package hrana_test

import (
	"context"
	"database/sql"
	"errors"
	"log"

	"example.com/outbox/hrana"
	"example.com/outbox/sqlbatch"
)

// A transaction in one request, on a connection of the pool.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("hrana", "http://127.0.0.1:8080")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	err = conn.Raw(func(c any) error {
		results, err := c.(sqlbatch.Conn).Batch(ctx, []sqlbatch.Step{
			{Query: "BEGIN IMMEDIATE"},
			{Query: "UPDATE account SET cents = cents - ? WHERE id = ?", Args: []any{100, 1}, If: sqlbatch.OK(0)},
			{Query: "UPDATE account SET cents = cents + ? WHERE id = ?", Args: []any{100, 2}, If: sqlbatch.OK(1)},
			{Query: "COMMIT", If: sqlbatch.OK(2)},
			{Query: "ROLLBACK", If: sqlbatch.And(sqlbatch.OK(0), sqlbatch.Not(sqlbatch.Autocommit()))},
		})
		for _, result := range results {
			err = errors.Join(err, result.Err)
		}
		return err
	})
	switch {
	case err == nil:
		log.Print("transferred")
	case sqlbatch.Lost(err):
		log.Print("transferred, or not: ", err)
	default:
		log.Print("not transferred: ", err)
	}
}

// A token that is not in the data source name.
func ExampleNewConnector() {
	connector, err := hrana.NewConnector("libsql://db.example.com", &hrana.Options{
		Token:     "eyJhbGciOi…",
		Immediate: true, // transactions take the write lock when they begin
	})
	if err != nil {
		log.Fatal(err)
	}
	db := sql.OpenDB(connector)
	defer db.Close()
}
