// Engine is a tiny workflow engine on package outbox, to be read. It records
// what happened and stages what is to be dispatched in one transaction each
// time, so that it can be killed at any moment.
//
//	go run ./examples/engine
//
// runs a short scenario on a database file in a temporary directory, and checks
// what came of it. With -db URL it does so on a libSQL server.
//
// Where to read on: workflow.go says what a workflow is, history.go keeps what
// happened to it, and engine.go is the engine: fan-out and continuing as new
// (goOn), dispatch (handle), completion by whoever did the work (complete),
// cancellation, pause and resume, recovery (recover). scenario.go is what is run
// here.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"example.com/outbox"
	_ "example.com/outbox/hrana"
	_ "github.com/tursodatabase/go-libsql"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	db := flag.String("db", "", "use an empty database on the libSQL server of a `URL`")
	flag.Parse()
	err := command(ctx, *db, flag.Args(), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "engine:", err)
		os.Exit(1)
	}
}

// doomed is the argument of the process that is killed.
const doomed = "doomed"

// command lets a process work until it is killed, and goes on with what it left.
func command(ctx context.Context, db string, args []string, out io.Writer) (err error) {
	if len(args) == 2 && args[0] == doomed {
		return withEngine(ctx, args[1], doomedWorkers(), func(e *engine) error { return begin(ctx, e) })
	}
	if db == "" {
		dir, err := os.MkdirTemp("", "outbox-engine-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		db = "file:" + (&url.URL{Path: filepath.Join(dir, "engine.db")}).EscapedPath()
	}
	if err := crash(ctx, db); err != nil {
		return err
	}
	workers := newWorkers()
	return withEngine(ctx, db, workers, func(e *engine) error { return finish(ctx, e, workers, out) })
}

// crash runs this program as another process, which is killed.
func crash(ctx context.Context, db string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	process := exec.CommandContext(ctx, program, doomed, db)
	process.Stderr = os.Stderr
	err = process.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return ctx.Err()
	}
	return fmt.Errorf("the process that was to be killed has ended otherwise: %w", err)
}

// withEngine has fn use an engine on a database.
func withEngine(ctx context.Context, db string, workers *workers, fn func(e *engine) error) (err error) {
	driver := "hrana"
	if strings.HasPrefix(db, "file:") {
		driver = "libsql"
	}
	store, err := outbox.Open(ctx, driver, db, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	e, err := newEngine(ctx, store, definitions(), workers.activities())
	if err != nil {
		return err
	}
	return fn(e)
}
