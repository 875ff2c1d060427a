// Package mattn is a module of its own that runs the conformance suite of
// package outbox over the driver github.com/mattn/go-sqlite3.
package mattn

import (
	"testing"

	"example.com/outbox/internal/drivertest"
	_ "github.com/mattn/go-sqlite3"
)

func TestConformance(t *testing.T) { drivertest.Run(t, "sqlite3") }
