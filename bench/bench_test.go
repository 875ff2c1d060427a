package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.com/outbox/bench/workload"
)

// TestQuickRunMeasuresEverySystem runs all there is at small sizes. The programs
// check their own work; here every cell that the table has must be filled.
func TestQuickRunMeasuresEverySystem(t *testing.T) {
	o := options{
		rounds:   1,
		only:     regexp.MustCompile(""),
		quick:    true,
		json:     filepath.Join(t.TempDir(), "figures.json"),
		chart:    filepath.Join(t.TempDir(), "claims.svg"),
		progress: t.Output(),
	}
	var table strings.Builder
	measured, err := run(t.Context(), o, &table)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range plan(true, "") {
		for _, s := range m.systems {
			if len(measured[m.name][s]) != 1 {
				t.Errorf("%s: %s was measured in %d rounds", m.name, s, len(measured[m.name][s]))
			}
		}
		for _, figure := range m.shown {
			if _, ok := measured.of(m.name, ours, figure.name); !ok {
				t.Errorf("%s: outbox has no %s", m.name, figure.name)
			}
			if !strings.Contains(table.String(), "| "+m.name+" | "+figure.text+" |") {
				t.Errorf("%s: the table has no %s", m.name, figure.text)
			}
		}
	}
	for _, target := range targets() {
		if !strings.Contains(table.String(), target.String()) {
			t.Errorf("nothing is said about the target %q", target)
		}
	}
	var written results
	raw, err := os.ReadFile(o.json)
	if err == nil {
		err = json.Unmarshal(raw, &written)
	}
	if err != nil || len(written) != len(measured) {
		t.Errorf("%d measurements were written of %d: %v", len(written), len(measured), err)
	}
	requireXML(t, o.chart)
}

func requireXML(t testing.TB, name string) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	decoder := xml.NewDecoder(file)
	lines := 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "polyline" {
			lines++
		}
	}
	if want := 1 + len(others); lines != want {
		t.Errorf("the chart has %d lines and should have %d", lines, want)
	}
}

func TestFiguresAreMediansAndTheWorstIsTheWorst(t *testing.T) {
	r := results{"m": {
		ours:   {{"rows/s": 10, "worst ms": 1}, {"rows/s": 30, "worst ms": 9}, {"rows/s": 20, "worst ms": 2}},
		goqite: {{"rows/s": 4, "worst ms": 3}, {"rows/s": 6, "worst ms": 3}},
	}}
	for _, want := range []struct {
		system system
		figure string
		value  float64
	}{{ours, "rows/s", 20}, {goqite, "rows/s", 5}, {ours, "worst ms", 9}} {
		if got, ok := r.of("m", want.system, want.figure); !ok || got != want.value {
			t.Errorf("%s of %s is %v, %t and should be %v", want.figure, want.system, got, ok, want.value)
		}
	}
	if _, ok := r.of("m", river, "rows/s"); ok {
		t.Error("there is a figure of what was not measured")
	}
}

func TestLeadIsAboveOneWhereWeAreBetter(t *testing.T) {
	r := results{"m": {
		ours:   {{"rows/s": 20, "claim ms": 2}},
		goqite: {{"rows/s": 5, "claim ms": 8}},
	}}
	for _, figure := range []string{"rows/s", "claim ms"} {
		if lead, ok := r.lead("m", goqite, figure); !ok || lead != 4 {
			t.Errorf("the lead in %s is %v, %t and should be 4", figure, lead, ok)
		}
	}
}

func TestATargetOverSeveralIsMeasuredAgainstTheBestOfThem(t *testing.T) {
	r := results{"m": {ours: {{"rows/s": 20}}, goqite: {{"rows/s": 5}}, goqiteOne: {{"rows/s": 10}}}}
	target := ahead(3, "what", "m", "rows/s", goqite, goqiteOne)
	value, ok := target.measure(r)
	if !ok || value != 2 || target.meets(value) {
		t.Errorf("the target measured %v, %t; met: %t", value, ok, target.meets(value))
	}
}

func TestASpecSurvivesTheJourneyToAProgram(t *testing.T) {
	for _, m := range plan(false, "deliveries") {
		got, err := workload.Parse(m.spec.Args())
		if err != nil || got != m.spec {
			t.Errorf("%s: %+v came as %+v: %v", m.name, m.spec, got, err)
		}
	}
}
