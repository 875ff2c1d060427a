package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"math"
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
		settled:  1000,
		json:     filepath.Join(t.TempDir(), "figures.json"),
		chart:    filepath.Join(t.TempDir(), "claims.svg"),
		progress: t.Output(),
	}
	var table strings.Builder
	measured, err := run(t.Context(), o, &table)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range plan(true, "", o.settled) {
		for _, s := range m.systems {
			if len(measured[m.name][s]) != 1 {
				t.Errorf("%s: %s was measured in %d rounds", m.name, s, len(measured[m.name][s]))
			}
		}
		for _, figure := range m.shown {
			if _, ok := measured.of(m.name, m.systems[0], figure.name); !ok {
				t.Errorf("%s: %s has no %s", m.name, m.systems[0], figure.name)
			}
			if !strings.Contains(table.String(), "| "+m.name+" | "+figure.text+" |") {
				t.Errorf("%s: the table has no %s", m.name, figure.text)
			}
		}
	}
	for _, target := range targets(o.settled) {
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
	requireChart(t, o.chart)
}

// requireChart wants a line for each system, and numbers where they belong.
func requireChart(t testing.TB, name string) {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var svg struct {
		Lines []struct{} `xml:"polyline"`
	}
	if err := xml.Unmarshal(content, &svg); err != nil {
		t.Fatal(err)
	}
	if want := 1 + len(others); len(svg.Lines) != want {
		t.Errorf("the chart has %d lines and should have %d", len(svg.Lines), want)
	}
	for _, wrong := range []string{"%!", "NaN", "Inf"} {
		if bytes.Contains(content, []byte(wrong)) {
			t.Errorf("the chart has a %s in it", wrong)
		}
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

func TestLabelsOfTheChartDoNotCoverEachOther(t *testing.T) {
	labels := []float64{100.1, 100.1, 90.3, 300, 107.7}
	spread(labels)
	want := []float64{106.3, 122.3, 90.3, 300, 138.3}
	for i := range labels {
		if math.Abs(labels[i]-want[i]) > 0.01 {
			t.Fatalf("the labels are at %v and should be at %v", labels, want)
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
	for _, m := range plan(false, "deliveries", 1000) {
		got, err := workload.Parse(m.spec.Args())
		if err != nil || got != m.spec {
			t.Errorf("%s: %+v came as %+v: %v", m.name, m.spec, got, err)
		}
	}
}
