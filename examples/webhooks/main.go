// Webhooks is the main job of package outbox on real input: it stages webhook
// deliveries, each in one transaction with a row of a history table, fans each
// out to four subscribers, and delivers them over HTTP until every row is
// settled, whatever goes wrong on the way. And much does: its receiver fails,
// hangs and refuses, as others' servers will.
//
// Usage:
//
//	go run ./examples/webhooks [-input FILE] [-db FILE|URL]
//
// Without -input it delivers a sample that is built in. Without -db its
// database is a file in a temporary directory, which is removed at the end: a
// file rather than memory, since a durable outbox is what this is about. With
// -db the database is kept: a file, or one on a libSQL server, such as
// http://127.0.0.1:8080, which is reached with package hrana. Kill the program at
// any moment, by kill -9 if you like, and run it again: it finishes the rest.
//
// Where to read on: scenario.go says who gets the deliveries and what goes
// wrong; staging.go writes them; dispatch.go has them dispatched and courier.go
// delivers one; report.go counts and checks the result. receiver.go is the other
// side.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"example.com/outbox"
	_ "example.com/outbox/hrana"
	_ "github.com/tursodatabase/go-libsql"
	"golang.org/x/sync/errgroup"
)

func main() {
	input := flag.String("input", "", "deliver the webhooks of `FILE`, one JSON object a line, instead of the sample")
	db := flag.String("db", "", "keep the database in `FILE`, or on the server of a URL, and finish what it holds")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second Ctrl-C ends it at once
	err := command(ctx, *input, *db, os.Stdout)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err == nil:
	case interrupted && errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "webhooks: interrupted; with -db, the next run finishes the rest")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "webhooks:", err)
		os.Exit(1)
	}
}

// command is the program but for flags, signals and exit status.
func command(ctx context.Context, input, db string, out io.Writer) (err error) {
	deliveries, err := readDeliveries(input)
	if err != nil {
		return err
	}
	if db != "" {
		return run(ctx, databaseAt(db), deliveries, out)
	}
	dir, err := os.MkdirTemp("", "outbox-webhooks-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return run(ctx, databaseAt(filepath.Join(dir, "webhooks.db")), deliveries, out)
}

// run stages deliveries in a database, delivers all that it holds, and reports.
// What the receiver saw is kept beside the database.
func run(ctx context.Context, db database, deliveries []delivery, out io.Writer) (err error) {
	store, err := outbox.Open(ctx, db.driver, db.dataSourceName, nil)
	if err != nil {
		return fmt.Errorf("open %s: %w", db.name, err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	receipts, err := openReceipts(db.receipts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, receipts.Close()) }()

	roles := castRoles(deliveries)
	server, err := startReceiver(receipts, roles.hangs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()

	if err := createHistory(ctx, store); err != nil {
		return err
	}
	fmt.Fprintf(out, "delivering %d webhooks to %d subscribers each, from database %s\n",
		len(deliveries), len(subscribers), db.name)
	progress, err := startProgress(ctx, store, deliveries, out)
	if err != nil {
		return err
	}
	held := newHold(roles.held)
	start := time.Now()
	err = work(ctx, store, deliveries, newCourier(store, server.URL(), roles.stops, progress), held, progress)
	took := time.Since(start)
	progress.close()
	if err != nil {
		return err
	}

	total, problems, err := audit(ctx, store, deliveries, receipts)
	if err != nil {
		return err
	}
	problems = append(problems, checkHold(receipts, held, start)...)
	if err := writeReport(out, progress.figures(), total, took); err != nil {
		return err
	}
	if len(problems) > 0 {
		return &checkError{problems}
	}
	_, err = fmt.Fprintln(out, "check passed: every row is settled; the receiver saw each delivered row, and none after it was settled")
	return err
}

// database is where the rows are, and where the receiver keeps its receipts.
type database struct {
	driver, dataSourceName string
	name                   string // to be shown: it has no token
	receipts               string
}

// databaseAt returns a database in a file, or the one on the server of a URL.
func databaseAt(place string) database {
	server, err := url.Parse(place)
	if err != nil || server.Host == "" {
		return database{"libsql", fileName(place), place, place + ".receipts"}
	}
	shown := server.Scheme + "://" + server.Host + server.Path
	receipts := "webhooks-" + strings.NewReplacer(":", "-", "/", "-").Replace(server.Host+server.Path) + ".receipts"
	return database{"hrana", place, shown, filepath.Join(os.TempDir(), receipts)}
}

// fileName is the data source name of a file. The driver takes it for a URI, in
// which some characters have a meaning that they do not have in a path.
func fileName(path string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath()
}

// work stages and delivers at the same time, and returns when every row is
// settled, ctx ends or staging fails: there is nothing to clean up, since the
// next run goes on where this one ended.
//
// A database is meant for one run at a time. Were another alive, they would share
// the rows, and its receiver would not know what this one's has seen.
func work(ctx context.Context, store *outbox.Store, deliveries []delivery, courier *courier, held *hold, progress *progress) error {
	defer courier.Close()
	group, ctx := errgroup.WithContext(ctx)
	running, stop := context.WithCancel(ctx)
	defer stop()

	loops := dispatchers(store, courier, held, progress)
	for _, loop := range loops {
		group.Go(func() error { return loop.Run(running) })
	}
	group.Go(func() error {
		held.release(running, loops, progress)
		return nil
	})
	group.Go(func() error {
		defer stop()
		away, err := stage(ctx, store, deliveries, progress)
		if err != nil {
			return err
		}
		if err := awaitSettled(ctx, store); err != nil {
			return err
		}
		for _, row := range away {
			if err := comeBack(ctx, store, courier, row, progress); err != nil {
				return err
			}
		}
		return nil
	})
	return group.Wait()
}
