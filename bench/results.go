package main

import (
	"slices"

	"example.com/outbox/bench/workload"
)

// results are the figures of every round, by measurement and system.
type results map[string]map[system][]workload.Figures

// of returns the median of the rounds, and reports whether there is one. Of what
// is called worst it is the worst.
func (r results) of(measurement string, s system, figure string) (float64, bool) {
	var all []float64
	for _, round := range r[measurement][s] {
		if value, ok := round[figure]; ok {
			all = append(all, value)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	if figure == "worst ms" {
		return all[len(all)-1], true
	}
	middle := len(all) / 2
	if len(all)%2 == 0 {
		return (all[middle-1] + all[middle]) / 2, true
	}
	return all[middle], true
}

// lead is how many times better the one of ours beside a system is than that:
// more rows a second, or fewer milliseconds, microseconds and bytes. It reports
// whether that can be said.
func (r results) lead(measurement string, over system, figure string) (float64, bool) {
	us, ok := r.of(measurement, over.beside(), figure)
	if !ok && over.beside() == ours {
		us, ok = r.of(measurement, oursLoop, figure)
	}
	them, both := r.of(measurement, over, figure)
	if !ok || !both {
		return 0, false
	}
	if moreIsBetter(figure) {
		return us / them, them > 0
	}
	return them / us, us > 0
}

func moreIsBetter(figure string) bool { return figure == "rows/s" || figure == "fairness" }
