package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"example.com/outbox/bench/node"
	"example.com/outbox/bench/proxy"
	"example.com/outbox/bench/workload"
)

// What is compared on a server: drivers.
const (
	onHrana  system = "hrana"
	onLibsql system = "libsql"
)

// serverDrivers in the order of the tables, as database/sql knows them.
var serverDrivers = []system{onLibsql, onHrana}

// distance is one measurement on a server: so many nodes, so far from it.
type distance struct {
	roundTrip  time.Duration
	nodes      int
	rows       int           // a call
	namespaces int           // databases of the server over which the nodes are spread; 0: its first one
	time       time.Duration // how long they call
	drained    int           // rows that dispatchers of the nodes work off instead, for as long as time at most
}

func (d distance) name() string {
	name := fmt.Sprintf("%d ms, %d nodes", d.roundTrip.Milliseconds(), d.nodes)
	switch {
	case d.drained > 0:
		return name + ", drain"
	case d.namespaces > 0:
		return fmt.Sprintf("%s, %d rows, %d databases", name, d.rows, d.namespaces)
	}
	return fmt.Sprintf("%s, %d rows", name, d.rows)
}

// The distances, numbers of nodes and rows a call that are measured. Quick runs
// leave some out.
var (
	roundTrips = []time.Duration{0, 10 * time.Millisecond, 40 * time.Millisecond}
	nodeCounts = []int{1, 4, 16}
	rowCounts  = []int{1, 10, 100}
	spreads    = []int{1, 4, 16} // databases
)

// between is how far the nodes of drains and of several databases are.
const between = 10 * time.Millisecond

func planServer(quick bool) []distance {
	roundTrips, nodeCounts, rowCounts, spreads := roundTrips, nodeCounts, rowCounts, spreads
	calling, draining, drained, spread := 3*time.Second, 10*time.Second, 20_000, 16
	if quick {
		roundTrips, nodeCounts, rowCounts, spreads = roundTrips[:2], nodeCounts[:2], rowCounts[1:2], spreads[:2]
		calling, draining, drained, spread = 150*time.Millisecond, 2*time.Second, 200, 4
	}
	var all []distance
	for _, roundTrip := range roundTrips {
		for _, nodes := range nodeCounts {
			for _, rows := range rowCounts {
				all = append(all, distance{roundTrip: roundTrip, nodes: nodes, rows: rows, time: calling})
			}
		}
	}
	all = append(all, distance{roundTrip: between, nodes: 4, drained: drained, time: draining})
	for _, namespaces := range spreads {
		all = append(all, distance{roundTrip: between, nodes: spread, rows: 10, namespaces: namespaces, time: calling})
	}
	return all
}

// measureServer runs the server part: rounds of all distances, the drivers in
// turns, each on a server of its own.
func measureServer(ctx context.Context, o options, dir string) (measured results, failed error) {
	program, err := findSqld(ctx)
	if err != nil {
		return nil, err
	}
	if err := command(ctx, "go", "build", "-o", dir, "./programs/node"); err != nil {
		return nil, err
	}
	s := &serverBench{sqld: program, node: filepath.Join(dir, "node"), dir: dir}
	measured = make(results)
	for round := range o.rounds {
		for _, d := range planServer(o.quick) {
			if !o.only.MatchString(d.name()) {
				continue
			}
			fmt.Fprintf(o.progress, "round %d: %s\n", round+1, d.name())
			if measured[d.name()] == nil {
				measured[d.name()] = make(map[system][]workload.Figures)
			}
			for i := range serverDrivers {
				driver := serverDrivers[(i+round)%len(serverDrivers)]
				if !o.drivers.MatchString(string(driver)) {
					continue
				}
				figures, err := s.measure(ctx, driver, d)
				if err != nil { // the others are measured all the same
					failed = errors.Join(failed, fmt.Errorf("%s: %s: %w", d.name(), driver, err))
					continue
				}
				measured[d.name()][driver] = append(measured[d.name()][driver], figures)
			}
		}
	}
	return measured, failed
}

// serverBench knows the programs.
type serverBench struct {
	sqld, node, dir string
}

// measure has its own server, its own proxies and its own nodes, so that nothing
// is left over from one measurement to the next.
func (s *serverBench) measure(ctx context.Context, driver system, d distance) (figures workload.Figures, err error) {
	const patience = time.Minute
	ctx, cancel := context.WithTimeout(ctx, d.time+patience)
	defer cancel()
	var databases []string
	for i := range d.namespaces {
		databases = append(databases, fmt.Sprintf("n%02d", i))
	}
	server, err := startSqld(ctx, s.sqld, s.dir, databases)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	if len(databases) == 0 {
		databases = []string{""}
	}
	var near []*nodeProcess // one without a distance for each database, which makes the tables
	var far []*nodeProcess
	defer func() {
		for _, node := range slices.Concat(near, far) {
			err = errors.Join(err, node.end())
		}
	}()
	for _, database := range databases {
		made, err := s.start(ctx, driver, server, 0, database)
		if err != nil {
			return nil, err
		}
		near = append(near, made...)
	}
	var names []string
	for i := range d.nodes {
		names = append(names, databases[i%len(databases)])
	}
	if far, err = s.start(ctx, driver, server, d.roundTrip, names...); err != nil {
		return nil, err
	}
	if d.drained > 0 {
		return drainServer(near[0], far, d)
	}
	return callServer(far, d)
}

// start starts a node for each database named, all at once.
func (s *serverBench) start(ctx context.Context, driver system, server *sqld, roundTrip time.Duration, databases ...string) ([]*nodeProcess, error) {
	nodes := make([]*nodeProcess, len(databases))
	errs := make([]error, len(databases))
	var starting sync.WaitGroup
	for i, database := range databases {
		starting.Go(func() { nodes[i], errs[i] = startNode(ctx, s.node, driver, server.http, roundTrip, database) })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		for _, node := range nodes {
			if node != nil {
				node.end()
			}
		}
		return nil, err
	}
	return nodes, nil
}

// callServer has all nodes call at once.
func callServer(nodes []*nodeProcess, d distance) (workload.Figures, error) {
	reports, err := orderAll(nodes, node.Order{Call: node.Cycle, Rows: d.rows, Time: d.time})
	if err != nil {
		return nil, err
	}
	var all node.Report
	for _, report := range reports {
		all.Append = append(all.Append, report.Append...)
		all.Claim = append(all.Claim, report.Claim...)
		all.Complete = append(all.Complete, report.Complete...)
		all.Errors = append(all.Errors, report.Errors...)
		all.InTime += report.InTime
	}
	figures := workload.Figures{"calls/s": float64(all.InTime) / d.time.Seconds()}
	for name, times := range map[string][]float64{"append": all.Append, "claim": all.Claim, "complete": all.Complete} {
		if len(times) > 0 {
			slices.Sort(times)
			figures[name+" ms"] = times[len(times)/2]
			figures[name+" p99 ms"] = times[len(times)*99/100]
		}
	}
	if len(all.Errors) > 0 {
		figures["errors"] = float64(len(all.Errors))
		fmt.Fprintf(os.Stderr, "%d calls failed, among them: %s\n", len(all.Errors), all.Errors[0])
	}
	return figures, nil
}

// drainServer has the dispatchers of all nodes work off what lies there.
func drainServer(near *nodeProcess, far []*nodeProcess, d distance) (workload.Figures, error) {
	if _, err := near.order(node.Order{Call: node.Fill, Rows: d.drained}); err != nil {
		return nil, err
	}
	start := time.Now()
	for _, process := range far {
		if err := process.send(node.Order{Call: node.Dispatch}); err != nil {
			return nil, err
		}
	}
	left, took := d.drained, time.Duration(0)
	for left > 0 && took < d.time {
		time.Sleep(20 * time.Millisecond)
		report, err := near.order(node.Order{Call: node.Live})
		if err != nil {
			return nil, err
		}
		left, took = report.Live, time.Since(start)
	}
	return workload.Figures{"rows/s": float64(d.drained-left) / took.Seconds()}, nil
}

// nodeProcess is a node and the proxy before it.
type nodeProcess struct {
	cmd    *exec.Cmd
	proxy  *proxy.Proxy // nil if there is no distance
	ask    io.WriteCloser
	answer *bufio.Scanner
}

func startNode(ctx context.Context, program string, driver system, server string, roundTrip time.Duration, database string) (*nodeProcess, error) {
	n := new(nodeProcess)
	if roundTrip > 0 || database != "" {
		var err error
		if n.proxy, err = proxy.New(server, roundTrip, database); err != nil {
			return nil, err
		}
		server = n.proxy.Addr()
	}
	n.cmd = exec.CommandContext(ctx, program, "-driver="+string(driver), "-url=http://"+server)
	n.cmd.Stderr = os.Stderr
	err := n.begin()
	if err != nil {
		return nil, errors.Join(err, n.end())
	}
	return n, nil
}

func (n *nodeProcess) begin() (err error) {
	if n.ask, err = n.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	n.answer = bufio.NewScanner(out)
	n.answer.Buffer(nil, 64<<20)
	if err := n.cmd.Start(); err != nil {
		return err
	}
	_, err = n.receive() // that its store is open
	return err
}

func (n *nodeProcess) send(order node.Order) error {
	return json.NewEncoder(n.ask).Encode(order)
}

func (n *nodeProcess) receive() (report node.Report, err error) {
	if !n.answer.Scan() {
		return report, errors.Join(io.ErrUnexpectedEOF, n.answer.Err())
	}
	return report, json.Unmarshal(n.answer.Bytes(), &report)
}

func (n *nodeProcess) order(order node.Order) (node.Report, error) {
	if err := n.send(order); err != nil {
		return node.Report{}, err
	}
	return n.receive()
}

// end lets the process end by itself, which ends what it was doing.
func (n *nodeProcess) end() error {
	var err error
	if n.cmd.Process != nil {
		n.ask.Close()
		for n.answer.Scan() { // so that it is not held up
		}
		err = n.cmd.Wait()
	}
	if n.proxy != nil {
		err = errors.Join(err, n.proxy.Close())
	}
	return err
}

// orderAll has all nodes do the same at once.
func orderAll(nodes []*nodeProcess, order node.Order) ([]node.Report, error) {
	for _, n := range nodes {
		if err := n.send(order); err != nil {
			return nil, err
		}
	}
	reports := make([]node.Report, len(nodes))
	for i, n := range nodes {
		var err error
		if reports[i], err = n.receive(); err != nil {
			return nil, err
		}
	}
	return reports, nil
}
