// Package ncruces is a module of its own that runs the conformance suite of
// package outbox over the driver github.com/ncruces/go-sqlite3.
package ncruces

import (
	"testing"

	"example.com/outbox/internal/drivertest"
	_ "github.com/ncruces/go-sqlite3/driver"
	_ "github.com/ncruces/go-sqlite3/vfs/memdb" // for databases in memory
)

func TestConformance(t *testing.T) { drivertest.Run(t, "sqlite3") }
