// Program libsql has the systems that run over go-libsql: this module's store,
// and beside it ports of others' ways to the same driver.
package main

import (
	"example.com/outbox/bench/older"
	"example.com/outbox/bench/split"
	"example.com/outbox/bench/store"
	"example.com/outbox/bench/workload"
	_ "github.com/tursodatabase/go-libsql"
)

func main() {
	workload.Main(map[string]workload.Opener{
		"outbox":          store.With("libsql"),
		"outbox-dispatch": store.Dispatched("libsql"),
		"new-libsql":      store.On("libsql", ""), // it takes no busy timeout with its name
		"older":           older.With("libsql"),
		"port":            openPort,
		"split-libsql":    split.With("libsql"),
	})
}
