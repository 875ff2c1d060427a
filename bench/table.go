package main

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
)

const legend = `Medians of the rounds, of "worst" the worst. In brackets: how many times better outbox is than that system.
WAL mode, payloads of 256 bytes if nothing else is said, synchronous=NORMAL if not FULL. On %d processors, %s/%s.
goqite and backlite keep no key and no settled row, so they have less to do. River runs on one connection, as it advises;
of goqite there are both, eight with a busy timeout and one. backlite and River drain with their own dispatchers; a claim of
backlite is the time from its start until 100 workers have a row each. C is one thread. Drains end after 5 seconds.
`

// tables returns the figures and the targets as Markdown.
func (r results) tables(quick bool) string {
	var text strings.Builder
	if quick {
		text.WriteString("**A quick run: small sizes, one round. These are no figures to go by.**\n\n")
	}
	fmt.Fprintf(&text, legend, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	text.WriteString("\n| measured | figure |")
	for _, system := range systems {
		text.WriteString(" " + system.heading + " |")
	}
	text.WriteString("\n|---|---|" + strings.Repeat("---:|", len(systems)) + "\n")
	for _, m := range plan(quick, "") {
		if r[m.name] == nil {
			continue
		}
		for _, figure := range m.shown {
			fmt.Fprintf(&text, "| %s | %s |", m.name, figure.text)
			for _, system := range systems {
				text.WriteString(" " + r.cell(m.name, system.system, figure.name) + " |")
			}
			text.WriteByte('\n')
		}
	}
	text.WriteString("\n| target | measured | |\n|---|---:|---|\n")
	for _, target := range targets() {
		value, ok := target.measure(r)
		if !ok {
			continue
		}
		verdict := "missed"
		if target.meets(value) {
			verdict = "met"
		}
		fmt.Fprintf(&text, "| %s | %s | %s |\n", target, strconv.FormatFloat(value, 'f', 2, 64), verdict)
	}
	return text.String()
}

func (r results) cell(measurement string, s system, figure string) string {
	value, ok := r.of(measurement, s, figure)
	if !ok {
		return ""
	}
	if s == ours || s == oursLoop {
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
