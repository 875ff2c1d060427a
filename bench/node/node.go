// Package node is one node of several that share a database on a server: a
// process with a store of its own, which does what the benchmark orders.
package node

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"time"

	"example.com/outbox"
	"example.com/outbox/bench/plain"
	"example.com/outbox/dispatch"
	"github.com/google/uuid"
)

// Call is what a node can be ordered to do.
type Call string

const (
	Fill     Call = "fill"     // stages Rows rows
	Live     Call = "live"     // counts the rows that are not settled
	Cycle    Call = "cycle"    // appends, claims and completes Rows rows a call, for as long as Time
	Dispatch Call = "dispatch" // hands rows out until its standard input ends
)

// Order is a line that a node reads.
type Order struct {
	Call Call
	Rows int           `json:",omitempty"`
	Time time.Duration `json:",omitempty"`
}

// Report is the line that it answers with.
type Report struct {
	Live                    int       `json:",omitempty"`
	Append, Claim, Complete []float64 `json:",omitempty"` // milliseconds of every call
	InTime                  int       `json:",omitempty"` // calls that ended before time was up
	Errors                  []string  `json:",omitempty"` // of calls that failed
}

// Size is how many bytes the payloads have.
const Size = 256

// Main is what the program does: it opens a store, says so with a line, and does
// what it is ordered, a line each, until standard input ends.
func Main() error {
	var (
		driver  = flag.String("driver", "", "which driver")
		url     = flag.String("url", "", "of the server")
		timeout = flag.Duration("timeout", time.Minute, "after which it gives up, whatever it does")
	)
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	store, err := outbox.Open(ctx, *driver, *url, nil)
	if err != nil {
		return err
	}
	answers := json.NewEncoder(os.Stdout)
	if err := answers.Encode(Report{}); err != nil {
		return err
	}
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		var order Order
		if err := json.Unmarshal(orders.Bytes(), &order); err != nil {
			return err
		}
		report, err := do(ctx, store, order, orders)
		if err != nil {
			return fmt.Errorf("%s: %w", order.Call, err)
		}
		if err := answers.Encode(report); err != nil {
			return err
		}
	}
	return store.Close()
}

func do(ctx context.Context, store *outbox.Store, order Order, orders *bufio.Scanner) (Report, error) {
	switch order.Call {
	case Fill:
		return Report{}, fill(ctx, store, order.Rows)
	case Live:
		n, err := store.CountInFlight(ctx, outbox.DefaultRoute)
		return Report{Live: int(n)}, err
	case Cycle:
		const patience = 15 * time.Second // with a call that was begun in time
		ctx, cancel := context.WithTimeout(ctx, order.Time+patience)
		defer cancel()
		return cycle(ctx, store, order), nil
	case Dispatch:
		return handOut(ctx, store, orders), nil
	}
	return Report{}, errors.New("there is no such call")
}

func fill(ctx context.Context, store *outbox.Store, rows int) error {
	const batch = 100
	for n := 0; n < rows; n += batch {
		if _, err := store.Append(ctx, fanOut(min(batch, rows-n))...); err != nil {
			return err
		}
	}
	return nil
}

func fanOut(n int) []outbox.Row {
	workflow := uuid.New()
	rows := make([]outbox.Row, n)
	for i := range rows {
		rows[i] = outbox.Row{
			WorkflowID:   workflow,
			Ordinal:      uint64(i),
			ActivityType: plain.ActivityType,
			Input:        outbox.Payload{ContentType: plain.ContentType, Data: make([]byte, Size)},
		}
	}
	return rows
}

// cycle has at least as many rows pending as it claims, whatever other nodes do,
// as each claims no more than it has appended. A claim may still return fewer: it
// read the clock before it waited for the others, so that what they staged
// meanwhile is not due yet. The next ones return the rest. A call that fails is
// told about, and the cycle begins anew.
func cycle(ctx context.Context, store *outbox.Store, order Order) (report Report) {
	end := time.Now().Add(order.Time)
	timed := func(times *[]float64, call func() error) bool {
		if !time.Now().Before(end) {
			return false
		}
		start := time.Now()
		err := call()
		if err != nil {
			report.Errors = append(report.Errors, err.Error())
			return false
		}
		*times = append(*times, float64(time.Since(start).Microseconds())/1000)
		if time.Now().Before(end) {
			report.InTime++
		}
		return true
	}
	for time.Now().Before(end) && ctx.Err() == nil {
		staged := fanOut(order.Rows)
		var refs []outbox.Ref
		_ = timed(&report.Append, func() error {
			_, err := store.Append(ctx, staged...)
			return err
		}) && timed(&report.Claim, func() error {
			rows, err := store.Claim(ctx, order.Rows)
			for _, row := range rows {
				refs = append(refs, row.Ref())
			}
			return err
		}) && len(refs) > 0 && timed(&report.Complete, func() error { return store.Complete(ctx, refs...) })
	}
	return report
}

// handlers is how many rows a dispatcher handles at once.
const handlers = 100

// handOut answers nothing until it is over. That it left rows behind is no
// failure: it was stopped.
func handOut(ctx context.Context, store *outbox.Store, orders *bufio.Scanner) (report Report) {
	loop := dispatch.New(store, func(context.Context, outbox.Row) error { return nil },
		&dispatch.Options{Concurrency: handlers, Logger: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- loop.Run(ctx) }()
	orders.Scan() // until the benchmark has enough
	stop()
	if err := <-ended; err != nil {
		report.Errors = append(report.Errors, err.Error())
	}
	return report
}
