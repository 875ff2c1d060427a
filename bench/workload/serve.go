package workload

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Main is what a program of the benchmark does. It makes ready what its
// arguments ask for, says so with a line on standard output, and then measures
// one round for every line on standard input, whose figures it answers with as a
// line of JSON. So the rounds of several programs can take turns.
func Main(systems map[string]Opener) {
	log.SetFlags(0)
	log.SetPrefix(filepath.Base(os.Args[0]) + ": ")
	if err := serve(context.Background(), systems); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, systems map[string]Opener) error {
	var (
		spec   Spec
		flags  = flag.NewFlagSet(os.Args[0], flag.ExitOnError)
		system = flags.String("system", "", "which of the program's systems")
		dir    = flags.String("dir", "", "where its databases are made")
	)
	if err := spec.parse(flags, os.Args[1:]); err != nil {
		return err
	}
	open, ok := systems[*system]
	if !ok {
		return fmt.Errorf("system %q is none of %v", *system, slices.Sorted(maps.Keys(systems)))
	}
	rows, err := newSource(spec)
	if err != nil {
		return err
	}
	bench := &bench{spec: spec, open: open, dir: *dir, rows: rows}
	if err := bench.prepare(ctx); err != nil {
		return fmt.Errorf("%s: prepare: %w", *system, err)
	}
	answers := json.NewEncoder(os.Stdout)
	if err := answers.Encode("ready"); err != nil {
		return err
	}
	for rounds := bufio.NewScanner(os.Stdin); rounds.Scan(); {
		figures, err := bench.round(ctx)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", *system, spec.Kind, err)
		}
		if err := answers.Encode(figures); err != nil {
			return err
		}
	}
	return bench.close()
}
