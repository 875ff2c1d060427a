// Program node is one of several processes that share a database on a libSQL
// server, over either of its drivers.
package main

import (
	"log"

	"example.com/outbox/bench/node"
	_ "example.com/outbox/hrana"
	_ "github.com/tursodatabase/go-libsql"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("node: ")
	if err := node.Main(); err != nil {
		log.Fatal(err)
	}
}
