package main

import (
	"fmt"
	"slices"
)

// target is what the library is meant to reach.
type target struct {
	what    string
	atLeast float64 // or, if that is zero,
	below   float64
	measure func(r results) (float64, bool)
}

func (t target) String() string {
	if t.atLeast > 0 {
		return fmt.Sprintf("%s: at least %g", t.what, t.atLeast)
	}
	return fmt.Sprintf("%s: below %g", t.what, t.below)
}

func (t target) meets(value float64) bool {
	if t.atLeast > 0 {
		return value >= t.atLeast
	}
	return value < t.below
}

// ahead asks that we are so many times better than others: than the best of
// them.
func ahead(times float64, what, measurement, figure string, others ...system) target {
	return target{what: what, atLeast: times, measure: func(r results) (float64, bool) {
		least, ok := r.lead(measurement, others[0], figure)
		for _, other := range others[1:] {
			lead, also := r.lead(measurement, other, figure)
			least, ok = min(least, lead), ok && also
		}
		return least, ok
	}}
}

// under asks for a figure of ours to stay below a bound.
func under(bound float64, what, measurement, figure string) target {
	return target{what: what, below: bound, measure: func(r results) (float64, bool) {
		return r.of(measurement, ours, figure)
	}}
}

func targets(settled int) []target {
	const speed = "rows/s"
	var all []target
	for _, full := range []bool{false, true} {
		one := atLevel(appendOne, full)
		all = append(all,
			ahead(1.3, one+", times goqite", one, speed, goqite),
			ahead(4, one+", times River", one, speed, river))
	}
	fanOut := atLevel(appendFanOut, false)
	random := atLevel(appendRandom, false)
	eight := atLevel(fmt.Sprintf(crowdOf, 8), true)
	many := atLevel(fmt.Sprintf(crowdOf, 32), true)
	claim := fmt.Sprintf(claimOf, "100,000")
	all = append(all,
		ahead(3.5, fanOut+", times goqite batched", fanOut, speed, batched),
		ahead(2.2, fanOut+", times River", fanOut, speed, river),
		ahead(0.7, fanOut+", times backlite", fanOut, speed, backlite),
		ahead(1, random+", times written by hand", random, speed, handrolled),
		ahead(3.5, eight+", times goqite", eight, speed, goqite, goqiteOne),
		target{what: eight + ", times one goroutine of ours", atLeast: 3, measure: func(r results) (float64, bool) {
			crowd, ok := r.of(eight, ours, speed)
			alone, also := r.of(atLevel(appendOne, true), ours, speed)
			return crowd / alone, ok && also
		}},
		ahead(5, many+", times goqite", many, speed, goqite, goqiteOne),
		under(20, many+", p99 in ms", many, "p99 ms"),
		under(50, many+", worst in ms", many, "worst ms"),
		target{what: many + ", slowest goroutine / fastest", atLeast: 0.8, measure: func(r results) (float64, bool) {
			return r.of(many, ours, "fairness")
		}},
		ahead(1/2.5, claim+", times C", claim, "claim ms", limit),
		ahead(2, claim+", times River", claim, "claim ms", river),
		ahead(2.5, "complete 100, times goqite batched", claim, "complete ms", batched),
		ahead(30, "complete 100, times River", claim, "complete ms", river),
		ahead(6, drainAll+", times goqite batched", drainAll, speed, batched),
		ahead(20, drainAll+", times River", drainAll, speed, river),
		ahead(0.75, drainAll+", times written by hand", drainAll, speed, handrolled),
		ahead(2, steadyState+", times goqite batched", steadyState, speed, batched),
		ahead(0.9, steadyState+", times written by hand", steadyState, speed, handrolled),
		ahead(1, drainWebhooks+", times C and written by hand", drainWebhooks, speed, limit, handrolled))
	for _, backlog := range backlogs {
		name := fmt.Sprintf(claimOf, backlog.text)
		all = append(all, target{what: name + ", time in terms of C's", below: 3, measure: func(r results) (float64, bool) {
			lead, ok := r.lead(name, limit, "claim ms")
			return 1 / lead, ok && lead > 0
		}})
	}
	for _, payload := range payloads[1:] {
		life := fmt.Sprintf(lifeOf, payload.text)
		all = append(all, under(1536, life+", WAL of claim and complete, bytes a row", life, "WAL bytes"))
	}
	return slices.Concat(all, targetsOlder(), targetsPools(), targetsSettled(settled))
}

// targetsOlder are those against the way of the store whose files ours reads. The
// typical call is compared: a disk that stalls for once would weigh more in a
// rate than all that either does.
func targetsOlder() []target {
	const p50 = "p50 ms"
	var all []target
	for _, driver := range []struct {
		older system
		name  string
	}{{older, "go-libsql"}, {olderMattn, "mattn"}} {
		for _, full := range []bool{false, true} {
			for _, goal := range []struct {
				times        float64
				name, figure string
			}{
				{1, appendRow, p50}, {1, completeRow, p50}, {1, retryRow, p50}, {1, failRow, p50},
				{1, appendWorkflows, p50}, {0.8, appendInstant, p50}, {0.8, appendSpread, p50},
				{2, claimBatch, "claim ms"}, {5, listWorkflows, "list ms"},
			} {
				if goal.name == listWorkflows && full {
					continue
				}
				name := atLevel(goal.name, full)
				all = append(all, ahead(goal.times, name+", "+driver.name+", times the older way", name, goal.figure, driver.older))
			}
		}
	}
	return all
}

// targetsPools are those of New on a host's pool.
func targetsPools() []target {
	var all []target
	for _, driver := range []struct {
		onPool system
		name   string
	}{{newLibsql, "go-libsql"}, {newMattn, "mattn"}, {newModernc, "modernc"}} {
		for _, goroutines := range []int{8, 32} {
			name := fmt.Sprintf(poolOf, goroutines)
			all = append(all, target{what: name + ", " + driver.name + ", New's rate times Open's", atLeast: 0.9,
				measure: func(r results) (float64, bool) {
					lead, ok := r.lead(name, driver.onPool, "rows/s")
					return 1 / lead, ok && lead > 0
				}})
		}
	}
	return all
}

// targetsSettled ask that settled rows slow nothing down, if any were measured.
func targetsSettled(settled int) []target {
	if settled == 0 {
		return nil
	}
	var all []target
	among, alone := amongSettled(settled), amongSettled(0)
	for _, call := range []string{"claim", "complete", "append"} {
		all = append(all, target{what: among + ", " + call + ", times without", below: 1.25,
			measure: func(r results) (float64, bool) {
				many, ok := r.of(among, ours, call+" ms")
				none, both := r.of(alone, ours, call+" ms")
				return many / none, ok && both && none > 0
			}})
	}
	return all
}
