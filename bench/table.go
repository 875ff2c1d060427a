package main

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
)

const legend = `Medians of the rounds, of "worst" the worst. In brackets: how many times better outbox is than that system.
WAL mode, payloads of 256 bytes if nothing else is said, synchronous=NORMAL if not FULL. On %d processors, %s/%s.
`

// tables returns the figures and the targets as Markdown.
func (r results) tables(quick bool, settled int) string {
	var text strings.Builder
	if quick {
		text.WriteString("**A quick run: small sizes, one round. These are no figures to go by.**\n\n")
	}
	fmt.Fprintf(&text, legend, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	for _, part := range parts {
		r.writePart(&text, part, plan(quick, "", settled))
	}
	writeTargets(&text, r, targets(settled))
	return text.String()
}

// writeTargets writes those that were measured.
func writeTargets(text *strings.Builder, r results, targets []target) {
	heading := "\n| target | measured | |\n|---|---:|---|\n"
	for _, target := range targets {
		value, ok := target.measure(r)
		if !ok {
			continue
		}
		verdict := "missed"
		if target.meets(value) {
			verdict = "met"
		}
		fmt.Fprintf(text, "%s| %s | %s | %s |\n", heading, target, strconv.FormatFloat(value, 'f', 2, 64), verdict)
		heading = ""
	}
}

// writePart writes the table of a part, with a column for each system that was
// measured for it.
func (r results) writePart(text *strings.Builder, p part, planned []measurement) {
	var measured []measurement
	present := make(map[system]bool)
	for _, m := range planned {
		if m.part == p && r[m.name] != nil {
			measured = append(measured, m)
			for _, s := range m.systems {
				present[s] = true
			}
		}
	}
	if len(measured) == 0 {
		return
	}
	fmt.Fprintf(text, "\n### %s\n\n%s\n| measured | figure |", p.name, p.legend)
	for _, known := range systems {
		if present[known.system] {
			text.WriteString(" " + known.heading + " |")
		}
	}
	text.WriteString("\n|---|---|" + strings.Repeat("---:|", len(present)) + "\n")
	for _, m := range measured {
		for _, figure := range m.shown {
			fmt.Fprintf(text, "| %s | %s |", m.name, figure.text)
			for _, known := range systems {
				if present[known.system] {
					text.WriteString(" " + r.cell(m.name, known.system, figure.name) + " |")
				}
			}
			text.WriteByte('\n')
		}
	}
}

func (r results) cell(measurement string, s system, figure string) string {
	value, ok := r.of(measurement, s, figure)
	if !ok {
		return ""
	}
	if s.beside() == s {
		return "**" + number(value) + "**"
	}
	lead, ok := r.lead(measurement, s, figure)
	if !ok {
		return number(value)
	}
	return fmt.Sprintf("%s (%.2f×)", number(value), lead)
}

// number has three digits or more, in groups.
func number(value float64) string {
	switch {
	case value < 1:
		return strconv.FormatFloat(value, 'f', 3, 64)
	case value < 100:
		return strconv.FormatFloat(value, 'f', 2, 64)
	}
	digits := strconv.FormatFloat(value, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
