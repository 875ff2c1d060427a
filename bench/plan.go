package main

import (
	"fmt"
	"time"

	"example.com/outbox/bench/workload"
)

// system is one of what is compared.
type system string

const (
	ours       system = "outbox"
	oursLoop   system = "outbox-dispatch" // package dispatch
	goqite     system = "goqite"          // as its API goes, a message a transaction
	goqiteOne  system = "goqite-one"      // on a pool of one connection
	batched    system = "goqite-batched"  // many messages in a transaction of the caller's
	runner     system = "goqite-runner"   // its package jobs
	river      system = "river"
	backlite   system = "backlite"
	handrolled system = "handrolled"
	limit      system = "limit"
	port       system = "port"
)

// systems in the order of the table, with the headings of their columns.
var systems = []struct {
	system  system
	program string
	heading string
}{
	{ours, "outbox", "outbox"},
	{oursLoop, "outbox", "outbox, package dispatch"},
	{goqite, "mattn", "goqite"},
	{goqiteOne, "mattn", "goqite, one connection"},
	{batched, "mattn", "goqite, batched by hand"},
	{runner, "mattn", "goqite, package jobs"},
	{river, "river", "River"},
	{backlite, "mattn", "backlite"},
	{handrolled, "mattn", "written by hand"},
	{limit, "limit", "C"},
	{port, "outbox", "plain port"},
}

func (s system) program() string {
	for _, known := range systems {
		if known.system == s {
			return known.program
		}
	}
	panic("unknown system " + s)
}

// measurement is a spec and who is measured by it.
type measurement struct {
	name    string
	spec    workload.Spec
	systems []system
	rounds  int      // at most; zero: as asked
	shown   []figure // the rows of the table
}

// figure is a row of the table.
type figure struct {
	name string // as the programs call it
	text string // what it is
}

// The names that targets and chart refer to.
const (
	appendOne     = "append 1"
	appendFanOut  = "append 100 of a fan-out"
	appendRandom  = "append 100, random keys"
	appendTimed   = "append 100, ascending keys"
	crowdOf       = "append from %d goroutines"
	claimOf       = "claim 100 of %s"
	oneDue        = "claim the one due row"
	drainAll      = "drain"
	steadyState   = "append 10 a call while draining"
	lifeOf        = "life of rows with %s"
	drainWebhooks = "drain webhooks"
	dispatchAll   = "dispatch to a handler that does nothing"
)

func atLevel(name string, full bool) string {
	if full {
		return name + ", FULL"
	}
	return name + ", NORMAL"
}

// backlogs that are claimed from.
var backlogs = []struct {
	rows int
	text string
}{{10_000, "10,000"}, {100_000, "100,000"}, {1_000_000, "1,000,000"}}

var payloads = []struct {
	size int
	text string
}{{256, "256 B"}, {8 << 10, "8 KB"}, {27 << 10, "27 KB"}}

// plan returns all measurements. Those that would suffer from what others leave
// for the disk to do come first.
func plan(quick bool, deliveries string) []measurement {
	const size = 256
	sized := func(full, small int) int {
		if quick {
			return small
		}
		return full
	}
	lasting := func(d time.Duration) time.Duration {
		if quick {
			return 50 * time.Millisecond
		}
		return d
	}
	speed := []figure{{"rows/s", "rows/s"}}
	var all []measurement
	for _, full := range []bool{true, false} {
		all = append(all, measurement{
			name: atLevel(appendOne, full),
			spec: workload.Spec{Kind: workload.Append, Full: full, Keys: workload.FanOut,
				Batch: 1, Size: size, Time: lasting(time.Second / 2)},
			systems: []system{ours, goqite, river, backlite, handrolled, limit, port},
			shown:   append(speed, figure{"p50 ms", "p50, ms"}, figure{"p99 ms", "p99, ms"}),
		})
		for _, goroutines := range []int{8, 32} {
			all = append(all, measurement{
				name: atLevel(fmt.Sprintf(crowdOf, goroutines), full),
				spec: workload.Spec{Kind: workload.Crowd, Full: full, Keys: workload.FanOut,
					Batch: 1, Size: size, Workers: goroutines, Time: lasting(time.Second)},
				systems: []system{ours, goqite, goqiteOne, river, backlite, handrolled, port},
				shown: append(speed, figure{"p99 ms", "p99, ms"}, figure{"worst ms", "worst, ms"},
					figure{"fairness", "slowest goroutine / fastest"}),
			})
		}
		for _, batch := range []struct {
			name string
			keys workload.Keys
		}{{appendFanOut, workload.FanOut}, {appendRandom, workload.Random}, {appendTimed, workload.Timed}} {
			all = append(all, measurement{
				name: atLevel(batch.name, full),
				spec: workload.Spec{Kind: workload.Append, Full: full, Keys: batch.keys,
					Batch: 100, Size: size, Time: lasting(time.Second / 2)},
				systems: []system{ours, goqite, batched, river, backlite, handrolled, limit, port},
				shown:   append(speed, figure{"p50 ms", "p50, ms"}),
			})
		}
	}
	for _, payload := range payloads {
		all = append(all, measurement{
			name: fmt.Sprintf(lifeOf, payload.text),
			spec: workload.Spec{Kind: workload.Life, Keys: workload.FanOut,
				Batch: 100, Size: payload.size, Rows: sized(2000, 200)},
			systems: []system{ours, batched, handrolled, limit, port},
			shown: []figure{{"append µs", "append, µs a row"}, {"claim µs", "claim, µs a row"},
				{"complete µs", "complete, µs a row"}, {"life µs", "all three, µs a row"},
				{"WAL bytes", "WAL of claim and complete, bytes a row"}},
		})
	}
	all = append(all,
		measurement{
			name: drainWebhooks,
			spec: workload.Spec{Kind: workload.Drain, Keys: workload.FanOut, Batch: 100,
				Rows: sized(6000, 200), Workers: 4, Time: 5 * time.Second, Deliveries: deliveries},
			systems: []system{ours, batched, handrolled, limit, port},
			shown:   speed,
		},
		measurement{
			name: steadyState,
			spec: workload.Spec{Kind: workload.Steady, Keys: workload.FanOut, Batch: 100, Size: size,
				Rows: sized(20_000, 500), Workers: 4, Time: 5 * time.Second},
			systems: []system{ours, batched, handrolled, port},
			shown:   speed,
			rounds:  3,
		},
		measurement{
			name: drainAll,
			spec: workload.Spec{Kind: workload.Drain, Keys: workload.FanOut, Batch: 100, Size: size,
				Rows: sized(50_000, 1000), Workers: 4, Time: 5 * time.Second},
			systems: []system{ours, goqite, batched, river, backlite, handrolled, limit, port},
			shown:   speed,
			rounds:  3,
		},
		measurement{
			name: dispatchAll,
			spec: workload.Spec{Kind: workload.Drain, Keys: workload.FanOut, Batch: 100, Size: size,
				Rows: sized(20_000, 500), Time: 5 * time.Second},
			systems: []system{oursLoop, runner, river, backlite},
			shown:   speed,
			rounds:  3,
		},
		measurement{
			name: oneDue,
			spec: workload.Spec{Kind: workload.Delayed, Keys: workload.FanOut, Batch: 100, Size: size,
				Rows: sized(100_000, 1000), Samples: 5},
			systems: []system{ours, batched, river, backlite, handrolled, limit},
			shown:   []figure{{"claim ms", "ms a claim"}},
			rounds:  3,
		})
	for _, backlog := range backlogs {
		claim := measurement{
			name: fmt.Sprintf(claimOf, backlog.text),
			spec: workload.Spec{Kind: workload.Claim, Keys: workload.FanOut, Batch: 100, Size: size,
				Rows: sized(backlog.rows, max(backlog.rows/500, 200)), Samples: sized(10, 3)},
			systems: []system{ours, goqite, batched, river, backlite, handrolled, limit, port},
			shown:   []figure{{"claim ms", "ms a claim"}, {"complete ms", "ms to complete them"}},
		}
		if backlog.rows >= 1_000_000 { // it takes long to fill
			claim.systems = []system{ours, batched, river, backlite, handrolled, limit}
			claim.rounds = 3
		}
		all = append(all, claim)
	}
	return all
}
