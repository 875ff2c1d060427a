// Package workload is the work that every Go program of the benchmark does: the
// loops that are measured are the same code for all, over the small interface
// Queue that each system implements.
package workload

import (
	"flag"
	"fmt"
	"time"
)

// Kind is a loop that is measured.
type Kind string

const (
	Append  Kind = "append"  // one goroutine, Batch rows a call, for as long as Time
	Crowd   Kind = "crowd"   // the same from Workers goroutines at once
	Claim   Kind = "claim"   // claim and complete Batch rows a call, Samples times, of Rows pending
	Delayed Kind = "delayed" // claim the one due row behind Rows delayed ones, Samples times
	Drain   Kind = "drain"   // Workers claim and complete all of Rows, Batch a call
	Steady  Kind = "steady"  // the same while Rows are being appended, 10 a call
	Life    Kind = "life"    // Rows are appended, then claimed, then completed, Batch a call

	CompleteOne Kind = "complete"  // Rows are claimed, then completed one a call
	RetryOne    Kind = "retry"     // the same, retried
	FailOne     Kind = "fail"      // the same, failed
	Unsettled   Kind = "unsettled" // the workflows of Rows are listed, Samples times
	Split       Kind = "split"     // where the time of claims goes, Samples times, of Rows pending
)

// Keys is what dispatch keys look like.
type Keys string

const (
	FanOut Keys = "fan-out" // "<uuid>:<ordinal>": those of a batch share a prefix
	Random Keys = "random"  // UUIDs of version 4
	Timed  Keys = "timed"   // UUIDs of version 7, which ascend
	Single Keys = "single"  // "<uuid>:0": each row is of a workflow of its own
)

// Spec is one measurement. It travels to the programs as flags, which a program
// in C can read too.
type Spec struct {
	Kind       Kind
	Full       bool // synchronous=FULL, else NORMAL; the journal is a WAL
	Keys       Keys
	Batch      int
	Size       int // of a payload, in bytes
	Rows       int
	Workers    int
	Samples    int
	Time       time.Duration // how long to append, or to drain at most
	Deliveries string        // a file whose lines are the payloads
	Namespaces int           // that rows are spread over; zero: one
	Settled    int           // rows that are done lie beside those of a claim
	OneInstant bool          // all rows are due at the same instant, else when they are staged
}

// Args returns the spec as the arguments of a program.
func (s Spec) Args() []string {
	return []string{
		"-kind=" + string(s.Kind),
		fmt.Sprintf("-full=%t", s.Full),
		"-keys=" + string(s.Keys),
		fmt.Sprintf("-batch=%d", s.Batch),
		fmt.Sprintf("-size=%d", s.Size),
		fmt.Sprintf("-rows=%d", s.Rows),
		fmt.Sprintf("-workers=%d", s.Workers),
		fmt.Sprintf("-samples=%d", s.Samples),
		fmt.Sprintf("-ms=%d", s.Time.Milliseconds()),
		"-deliveries=" + s.Deliveries,
		fmt.Sprintf("-namespaces=%d", s.Namespaces),
		fmt.Sprintf("-settled=%d", s.Settled),
		fmt.Sprintf("-instant=%t", s.OneInstant),
	}
}

// Parse is the reverse of Args.
func Parse(args []string) (Spec, error) {
	var spec Spec
	err := spec.parse(flag.NewFlagSet("spec", flag.ContinueOnError), args)
	return spec, err
}

func (s *Spec) parse(flags *flag.FlagSet, args []string) error {
	flags.StringVar((*string)(&s.Kind), "kind", "", "what is measured")
	flags.BoolVar(&s.Full, "full", false, "synchronous=FULL")
	flags.StringVar((*string)(&s.Keys), "keys", "", "what keys look like")
	flags.IntVar(&s.Batch, "batch", 0, "rows a call")
	flags.IntVar(&s.Size, "size", 0, "bytes of a payload")
	flags.IntVar(&s.Rows, "rows", 0, "rows in all")
	flags.IntVar(&s.Workers, "workers", 0, "goroutines")
	flags.IntVar(&s.Samples, "samples", 0, "calls that are timed")
	ms := flags.Int("ms", 0, "milliseconds")
	flags.StringVar(&s.Deliveries, "deliveries", "", "file of payloads")
	flags.IntVar(&s.Namespaces, "namespaces", 0, "that rows are spread over")
	flags.IntVar(&s.Settled, "settled", 0, "rows that are done already")
	flags.BoolVar(&s.OneInstant, "instant", false, "all rows are due at once")
	err := flags.Parse(args)
	s.Time = time.Duration(*ms) * time.Millisecond
	return err
}

// Figures are what a round measured, by name: "rows/s", or "p50 ms" and the like.
type Figures map[string]float64
