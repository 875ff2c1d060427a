// Program modernc has the systems that run over modernc.org/sqlite: River, and
// this module's store.
package main

import (
	"example.com/outbox/bench/split"
	"example.com/outbox/bench/store"
	"example.com/outbox/bench/workload"
	_ "modernc.org/sqlite"
)

func main() {
	workload.Main(map[string]workload.Opener{
		"river":          openRiver,
		"outbox-modernc": store.With("sqlite"),
		"new-modernc":    store.On("sqlite", "?_pragma=busy_timeout(5000)"),
		"split-modernc":  split.With("sqlite"),
	})
}
