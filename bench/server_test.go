package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestQuickRunMeasuresEveryDistance needs a server: where OUTBOX_SQLD names none,
// it is left out, but not in CI.
func TestQuickRunMeasuresEveryDistance(t *testing.T) {
	if os.Getenv(sqldVariable) == "" {
		if os.Getenv("CI") != "" {
			t.Fatal(sqldVariable + " does not name a libSQL server")
		}
		t.Skip(sqldVariable + " does not name a libSQL server")
	}
	o := options{rounds: 1, only: regexp.MustCompile(""), drivers: regexp.MustCompile(""), quick: true, server: true, progress: t.Output()}
	var table strings.Builder
	measured, err := run(t.Context(), o, &table)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range planServer(true) {
		figure := "calls/s"
		if d.drained > 0 {
			figure = "rows/s"
		}
		for _, driver := range serverDrivers {
			if _, ok := measured.of(d.name(), driver, figure); !ok {
				t.Errorf("%s: %s has no %s", d.name(), driver, figure)
			}
			if failed, ok := measured.of(d.name(), driver, "errors"); ok {
				t.Errorf("%s: %s: %v calls failed", d.name(), driver, failed)
			}
		}
	}
	for _, heading := range []string{"### On a server", "### Over several databases", "### Drained by dispatchers", "| target |"} {
		if !strings.Contains(table.String(), heading) {
			t.Errorf("the report has no %q", heading)
		}
	}
}

func TestATargetOfTheServerComparesDriversAndNodes(t *testing.T) {
	name := func(nodes int) string { return distance{roundTrip: between, nodes: nodes, rows: 1}.name() }
	r := results{
		name(4): {
			onHrana:  {{"calls/s": 240, "append ms": 12, "claim ms": 14}},
			onLibsql: {{"calls/s": 20}},
		},
		name(16): {onHrana: {{"calls/s": 120}}},
	}
	want := map[string]float64{
		name(4) + ", calls times go-libsql's: at least 12":                              12,
		name(4) + ", slowest median of append, claim and complete in ms: below 15":      14,
		"10 ms, calls of 16 nodes times those of 4, the least of all sizes: at least 1": 0.5,
	}
	for _, target := range serverTargets() {
		value, ok := target.measure(r)
		expected, wanted := want[target.String()]
		if ok != wanted || ok && value != expected {
			t.Errorf("%q is %v, %t and should be %v, %t", target, value, ok, expected, wanted)
		}
		delete(want, target.String())
	}
	for name := range want {
		t.Errorf("there is no target %q", name)
	}
}
