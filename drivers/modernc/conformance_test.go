// Package modernc is a module of its own that runs the conformance suite of
// package outbox over the driver modernc.org/sqlite.
package modernc

import (
	"testing"

	"example.com/outbox/internal/drivertest"
	_ "modernc.org/sqlite"
)

func TestConformance(t *testing.T) { drivertest.Run(t, "sqlite") }
