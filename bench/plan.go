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

	// Our store beside the way of the one whose files it reads.
	oursMattn  system = "outbox-mattn"
	older      system = "older"
	olderMattn system = "older-mattn"

	// Our store on a host's pool. Beside it stands what Open makes.
	newLibsql   system = "new-libsql"
	newMattn    system = "new-mattn"
	newModernc  system = "new-modernc"
	oursModernc system = "outbox-modernc"

	// Our store over drivers whose calls are measured.
	splitLibsql  system = "split-libsql"
	splitMattn   system = "split-mattn"
	splitModernc system = "split-modernc"
)

// systems in the order of the tables, with the headings of their columns.
var systems = []struct {
	system  system
	program string
	heading string
	beside  system // which of ours it is compared with; itself if it is that
}{
	{ours, "libsql", "outbox", ours},
	{oursLoop, "libsql", "outbox, package dispatch", oursLoop},
	{goqite, "mattn", "goqite", ours},
	{goqiteOne, "mattn", "goqite, one connection", ours},
	{batched, "mattn", "goqite, batched by hand", ours},
	{runner, "mattn", "goqite, package jobs", ours},
	{river, "modernc", "River", ours},
	{backlite, "mattn", "backlite", ours},
	{handrolled, "mattn", "written by hand", ours},
	{limit, "limit", "C", ours},
	{port, "libsql", "plain port", ours},
	{older, "libsql", "older way", ours},
	{newLibsql, "libsql", "outbox, New", ours},
	{oursMattn, "mattn", "outbox, mattn", oursMattn},
	{olderMattn, "mattn", "older way, mattn", oursMattn},
	{newMattn, "mattn", "outbox, New, mattn", oursMattn},
	{oursModernc, "modernc", "outbox, modernc", oursModernc},
	{newModernc, "modernc", "outbox, New, modernc", oursModernc},
	{splitLibsql, "libsql", "go-libsql", splitLibsql},
	{splitMattn, "mattn", "mattn", splitMattn},
	{splitModernc, "modernc", "modernc", splitModernc},
}

func (s system) program() string {
	for _, known := range systems {
		if known.system == s {
			return known.program
		}
	}
	panic("unknown system " + s)
}

// beside returns which of ours a system is compared with.
func (s system) beside() system {
	for _, known := range systems {
		if known.system == s {
			return known.beside
		}
	}
	return ours
}

// part is a table of the report.
type part struct {
	name, legend string
}

var (
	amongQueues = part{"Beside other queues", `goqite and backlite keep no key and no settled row, so they have less to do. River runs on one connection, as it advises;
of goqite there are both, eight with a busy timeout and one. backlite and River drain with their own dispatchers; a claim of
backlite is the time from its start until 100 workers have a row each. C is one thread. Drains end after 5 seconds.
`}
	besideOlder = part{"Beside the way of the store whose files this one reads", `One table with thirteen columns, its key, one index on (status, visible_after), payloads as a JSON envelope; BEGIN IMMEDIATE,
one plain statement a row, COMMIT. It has no fences and keeps no reasons. What is not said to be mattn is go-libsql.
`}
	onPools = part{"New on a host's pool beside Open", `The pool has as many connections as Open's. Appends of one row a call.
`}
	insideClaim = part{"Where the time of a claim goes", `Medians of one claim of 100 rows, in µs. A driver between the store and the real one measures its calls. What compiling, packing
and copying take is told by running the claim's statement again, undone each time: explained only, returning values of the
same size that need not be put together, and returning next to nothing.
`}
	amongMany = part{"Among many settled rows", `A million live rows, in workflows of 100.
`}
	parts = []part{amongQueues, besideOlder, onPools, insideClaim, amongMany}
)

// measurement is a spec and who is measured by it.
type measurement struct {
	name    string
	spec    workload.Spec
	systems []system
	rounds  int      // at most; zero: as asked
	part    part     // the table it stands in; the zero value: amongQueues
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

	appendRow       = "append 1 row"
	completeRow     = "complete 1 row"
	retryRow        = "retry 1 row"
	failRow         = "fail 1 row"
	appendWorkflows = "append 100 of random workflows"
	appendInstant   = "append 100 of random workflows, at one instant"
	appendSpread    = "append 100 of random workflows, over 1,000 namespaces"
	claimBatch      = "claim 100 of 10,000 rows"
	listWorkflows   = "list 1,000 unsettled workflows of 100,000 rows"
	claimSplit      = "claim 100, taken apart"
	poolOf          = "append from %d goroutines, New and Open, FULL"
)

// amongSettled is the name of claims from a large backlog beside settled rows.
func amongSettled(rows int) string {
	if rows == 0 {
		return "claim 100 of a large backlog, no settled rows"
	}
	return fmt.Sprintf("claim 100 of a large backlog, among %s settled rows", number(float64(rows)))
}

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
// for the disk to do come first. If settled is not zero, claims are also measured
// among so many settled rows.
func plan(quick bool, deliveries string, settled int) []measurement {
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
	all = append(all, planOlder(sized, lasting)...)
	all = append(all, planPools(lasting)...)
	all = append(all, measurement{
		name: claimSplit,
		spec: workload.Spec{Kind: workload.Split, Keys: workload.FanOut, Batch: 100, Size: size,
			Rows: sized(10_000, 200), Samples: sized(20, 3)},
		systems: []system{splitLibsql, splitMattn, splitModernc},
		shown: []figure{{"whole µs", "all of it"}, {"look µs", "look whether anything is due"}, {"begin µs", "BEGIN IMMEDIATE"},
			{"compile µs", "compile the statement"}, {"update µs", "find the rows, write them and their indexes"},
			{"pack µs", "pack what is returned"}, {"copy µs", "carry it through the driver"}, {"commit µs", "COMMIT"},
			{"database/sql µs", "database/sql"}, {"rest µs", "decode, and the rest of the store"}},
		part: insideClaim,
	})
	if settled > 0 {
		for _, settled := range []int{0, settled} {
			all = append(all, measurement{
				name: amongSettled(settled),
				spec: workload.Spec{Kind: workload.Claim, Keys: workload.FanOut, Batch: 100, Size: size,
					Rows: sized(1_000_000, 1000), Settled: settled, Samples: sized(50, 3)},
				systems: []system{ours},
				shown: []figure{{"claim ms", "ms a claim"}, {"complete ms", "ms to complete them"},
					{"append ms", "ms to append as many"}},
				rounds: 3,
				part:   amongMany,
			})
		}
	}
	for i := range all {
		if all[i].part == (part{}) {
			all[i].part = amongQueues
		}
	}
	return all
}

// planOlder is our store beside the older way, on two drivers.
func planOlder(sized func(full, small int) int, lasting func(time.Duration) time.Duration) []measurement {
	const size = 256
	var (
		four  = []system{ours, older, oursMattn, olderMattn}
		speed = []figure{{"rows/s", "rows/s"}, {"p50 ms", "p50, ms"}, {"p99 ms", "p99, ms"}}
		all   []measurement
	)
	for _, full := range []bool{true, false} {
		for _, m := range []struct {
			name  string
			spec  workload.Spec
			shown []figure
		}{
			{appendRow, workload.Spec{Kind: workload.Append, Batch: 1, Time: lasting(time.Second / 2)}, speed},
			{completeRow, workload.Spec{Kind: workload.CompleteOne, Batch: 100, Rows: sized(2000, 100)}, speed},
			{retryRow, workload.Spec{Kind: workload.RetryOne, Batch: 100, Rows: sized(2000, 100)}, speed},
			{failRow, workload.Spec{Kind: workload.FailOne, Batch: 100, Rows: sized(2000, 100)}, speed},
			{appendWorkflows, workload.Spec{Kind: workload.Append, Keys: workload.Single, Batch: 100,
				Time: lasting(time.Second / 2)}, speed},
			{appendInstant, workload.Spec{Kind: workload.Append, Keys: workload.Single, Batch: 100, OneInstant: true,
				Time: lasting(time.Second / 2)}, speed},
			{appendSpread, workload.Spec{Kind: workload.Append, Keys: workload.Single, Batch: 100, Namespaces: 1000,
				Time: lasting(time.Second / 2)}, speed},
			{claimBatch, workload.Spec{Kind: workload.Claim, Batch: 100, Rows: sized(10_000, 200), Samples: sized(20, 3)},
				[]figure{{"claim ms", "ms a claim"}, {"complete ms", "ms to complete them"}}},
			{listWorkflows, workload.Spec{Kind: workload.Unsettled, Batch: 100, Rows: sized(100_000, 1000), Samples: sized(10, 3)},
				[]figure{{"list ms", "ms"}}},
		} {
			if m.spec.Kind == workload.Unsettled && full { // it writes nothing
				continue
			}
			m.spec.Full, m.spec.Size = full, size
			if m.spec.Keys == "" {
				m.spec.Keys = workload.FanOut
			}
			all = append(all, measurement{name: atLevel(m.name, full), spec: m.spec, systems: four, shown: m.shown, part: besideOlder})
		}
	}
	return all
}

// planPools is our store on a host's pool beside what Open makes.
func planPools(lasting func(time.Duration) time.Duration) []measurement {
	var all []measurement
	for _, goroutines := range []int{8, 32} {
		all = append(all, measurement{
			name: fmt.Sprintf(poolOf, goroutines),
			spec: workload.Spec{Kind: workload.Crowd, Full: true, Keys: workload.FanOut,
				Batch: 1, Size: 256, Workers: goroutines, Time: lasting(time.Second)},
			systems: []system{ours, newLibsql, oursMattn, newMattn, oursModernc, newModernc},
			shown: []figure{{"rows/s", "rows/s"}, {"p99 ms", "p99, ms"}, {"worst ms", "worst, ms"},
				{"fairness", "slowest goroutine / fastest"}},
			part: onPools,
		})
	}
	return all
}
