package main

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"time"

	"example.com/outbox/bench/node"
)

const serverLegend = `Nodes are processes with a store of their own. Each appends rows, claims as many and completes them, again and again. calls/s are
the calls of all nodes together; p50 those of append / claim / complete, in ms. The round trip is added by a proxy that runs on
the same %d processors as the server and the nodes (%s/%s). Every cell has a server of its own. Payloads have %d bytes.
`

// serverTables returns the figures and the targets of the server part.
func (r results) serverTables(quick bool) string {
	var text strings.Builder
	if quick {
		text.WriteString("**A quick run: small sizes, one round. These are no figures to go by.**\n\n")
	}
	fmt.Fprintf(&text, serverLegend, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, node.Size)
	var calls, spread, drains []distance
	for _, d := range planServer(quick) {
		switch {
		case r[d.name()] == nil:
		case d.drained > 0:
			drains = append(drains, d)
		case d.namespaces > 0:
			spread = append(spread, d)
		default:
			calls = append(calls, d)
		}
	}
	if len(calls) > 0 {
		text.WriteString("\n### On a server\n\n| round trip | nodes | rows a call |" + serverHeadings)
		for _, d := range calls {
			fmt.Fprintf(&text, "| %d ms | %d | %d |%s\n", d.roundTrip.Milliseconds(), d.nodes, d.rows, r.serverCells(d))
		}
	}
	if len(spread) > 0 {
		text.WriteString("\n### Over several databases of one server\n\n| databases | nodes | rows a call |" + serverHeadings)
		for _, d := range spread {
			fmt.Fprintf(&text, "| %d | %d | %d |%s\n", d.namespaces, d.nodes, d.rows, r.serverCells(d))
		}
	}
	if len(drains) > 0 {
		text.WriteString("\n### Drained by dispatchers\n\n| round trip | nodes | rows | go-libsql, rows/s | hrana, rows/s | |\n|---:|---:|---:|---:|---:|---:|\n")
		for _, d := range drains {
			fmt.Fprintf(&text, "| %d ms | %d | %s |%s\n", d.roundTrip.Milliseconds(), d.nodes, number(float64(d.drained)), r.serverPair(d.name(), "rows/s"))
		}
	}
	writeTargets(&text, r, serverTargets())
	return text.String()
}

const serverHeadings = ` go-libsql, calls/s | hrana, calls/s | | go-libsql, p50 | hrana, p50 |
|---:|---:|---:|---:|---:|---:|---:|---:|
`

// serverPair is the figure of either driver and what hrana's is in terms of the
// other.
func (r results) serverPair(name, figure string) string {
	var text strings.Builder
	values := make(map[system]float64)
	for _, driver := range serverDrivers {
		value, ok := r.of(name, driver, figure)
		if !ok {
			text.WriteString(" |")
			continue
		}
		values[driver] = value
		text.WriteString(" " + number(value))
		if failed, ok := r.of(name, driver, "errors"); ok {
			fmt.Fprintf(&text, " (%.0f failed)", failed)
		}
		text.WriteString(" |")
	}
	if hrana, ok := values[onHrana]; ok && values[onLibsql] > 0 {
		fmt.Fprintf(&text, " %.1f× |", hrana/values[onLibsql])
	} else {
		text.WriteString(" |")
	}
	return text.String()
}

func (r results) serverCells(d distance) string {
	text := r.serverPair(d.name(), "calls/s")
	for _, driver := range serverDrivers {
		var medians []string
		for _, call := range serverCalls {
			if ms, ok := r.of(d.name(), driver, call+" ms"); ok {
				medians = append(medians, number(ms))
			}
		}
		text += " " + strings.Join(medians, " / ") + " |"
	}
	return text
}

var serverCalls = []string{"append", "claim", "complete"}

// serverTargets are for hrana.
func serverTargets() []target {
	var all []target
	at := func(roundTrip time.Duration, nodes, rows int) string {
		return distance{roundTrip: roundTrip, nodes: nodes, rows: rows}.name()
	}
	rate := func(r results, s system, name string) (float64, bool) { return r.of(name, s, "calls/s") }
	for _, roundTrip := range roundTrips {
		for _, nodes := range []int{1, 4} {
			for _, rows := range rowCounts {
				name := at(roundTrip, nodes, rows)
				bound := 1.2*float64(roundTrip.Milliseconds()) + 3
				all = append(all, target{what: name + ", slowest median of append, claim and complete in ms", below: bound,
					measure: func(r results) (slowest float64, ok bool) {
						for _, call := range serverCalls {
							if ms, measured := r.of(name, onHrana, call+" ms"); measured {
								slowest, ok = max(slowest, ms), true
							}
						}
						return slowest, ok
					}})
			}
		}
	}
	for _, roundTrip := range roundTrips[1:] {
		for _, rows := range rowCounts {
			name := at(roundTrip, 4, rows)
			all = append(all, target{what: name + ", calls times go-libsql's", atLeast: 12,
				measure: func(r results) (float64, bool) {
					ours, ok := rate(r, onHrana, name)
					theirs, both := rate(r, onLibsql, name)
					return ours / theirs, ok && both && theirs > 0
				}})
		}
	}
	for _, roundTrip := range roundTrips {
		all = append(all, target{what: fmt.Sprintf("%d ms, calls of 16 nodes times those of 4, the least of all sizes", roundTrip.Milliseconds()),
			atLeast: 1,
			measure: func(r results) (float64, bool) {
				least := math.Inf(1)
				for _, rows := range rowCounts {
					many, ok := rate(r, onHrana, at(roundTrip, 16, rows))
					few, both := rate(r, onHrana, at(roundTrip, 4, rows))
					if ok && both && few > 0 {
						least = min(least, many/few)
					}
				}
				return least, !math.IsInf(least, 1)
			}})
	}
	drain := distance{roundTrip: between, nodes: 4, drained: 1}.name()
	all = append(all, target{what: drain + ", rows/s", atLeast: 3000, measure: func(r results) (float64, bool) {
		return r.of(drain, onHrana, "rows/s")
	}})
	return all
}
