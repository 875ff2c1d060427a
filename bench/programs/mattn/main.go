// Program mattn has the systems that run over mattn/go-sqlite3, which cannot be
// linked into one program with go-libsql.
package main

import (
	"context"
	"database/sql"
	"fmt"

	"example.com/outbox/bench/older"
	"example.com/outbox/bench/split"
	"example.com/outbox/bench/store"
	"example.com/outbox/bench/workload"
	_ "github.com/mattn/go-sqlite3"
)

func main() {
	workload.Main(map[string]workload.Opener{
		"goqite": func(ctx context.Context, path string, full bool) (workload.Queue, error) {
			return openGoqite(ctx, path, full, manyConnections)
		},
		"goqite-one": func(ctx context.Context, path string, full bool) (workload.Queue, error) {
			return openGoqite(ctx, path, full, 1)
		},
		"goqite-batched": openBatched,
		"goqite-runner":  openRunner,
		"backlite":       openBacklite,
		"handrolled":     openHandrolled,
		"outbox-mattn":   store.With("sqlite3"),
		"new-mattn":      store.On("sqlite3", "?_timeout=5000"),
		"older-mattn":    older.With("sqlite3"),
		"split-mattn":    split.With("sqlite3"),
	})
}

// manyConnections is as many as the library under test opens.
const manyConnections = 8

// open opens a pool with what the README files of the peers advise: a WAL and a
// busy timeout.
func open(path string, full bool, parameters string, connections int) (*sql.DB, error) {
	synchronous := "NORMAL"
	if full {
		synchronous = "FULL"
	}
	db, err := sql.Open("sqlite3", fmt.Sprintf("file:%s?_journal=WAL&_timeout=5000&_sync=%s%s", path, synchronous, parameters))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

func count(ctx context.Context, db *sql.DB, query string) (n int, err error) {
	err = db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}
