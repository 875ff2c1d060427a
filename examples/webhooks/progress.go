package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/google/uuid"
)

// figures count what happened to rows.
type figures struct {
	staged    int
	delivered int
	retried   int // dispatches that failed and were put off
	rearmed   int // claims that went stale: their claimer is dead, or was away for long
	fenced    int // answers that came after the claim was lost, and changed nothing
	accepted  int // deliveries that the receiver took, repetitions included
	dead      int
	cancelled int
}

// settled is the number of rows that are done with.
func (f figures) settled() int { return f.delivered + f.dead + f.cancelled }

// progress counts what this run does, and shows it.
type progress struct {
	mu         sync.Mutex // guards all below
	screen     screen
	run        figures
	before     int // rows that earlier runs settled
	rows       int // how many there will be in the database
	deliveries int // in the input
}

// startProgress asks the store for what earlier runs left.
func startProgress(ctx context.Context, store *outbox.Store, deliveries []delivery, out io.Writer) (*progress, error) {
	received, _, err := readHistory(ctx, store)
	if err != nil {
		return nil, err
	}
	before := len(received) * len(subscribers)
	for _, delivery := range deliveries {
		received[delivery.workflow] = true
	}
	namespaces := make(map[string]bool)
	for _, subscriber := range subscribers {
		namespaces[subscriber.scope.Namespace] = true
	}
	for namespace := range namespaces {
		live, err := store.CountInFlight(ctx, namespace)
		if err != nil {
			return nil, fmt.Errorf("count rows in flight: %w", err)
		}
		before -= int(live)
	}
	rows := len(received) * len(subscribers)
	return &progress{
		screen:     newScreen(out, rows),
		before:     before,
		rows:       rows,
		deliveries: len(deliveries),
	}, nil
}

func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.screen.close()
}

// figures returns the counts of this run.
func (p *progress) figures() figures {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

func (p *progress) note(format string, args ...any) {
	p.update(func(*figures) string { return fmt.Sprintf(format, args...) })
}

// staged tells that the first n deliveries are staged, the last with so many
// rows that were not there before.
func (p *progress) staged(n, rows int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.run.staged += rows
	p.screen.staged(n, p.deliveries)
}

// observer hears what becomes of rows that are dispatched.
func (p *progress) observer() dispatch.Observer {
	return dispatch.Observer{
		Settled: func(_ context.Context, row outbox.Row, outcome dispatch.Outcome, _ time.Duration, err error) {
			switch outcome {
			case dispatch.Completed:
				p.update(func(run *figures) string {
					run.delivered++
					return ""
				})
			case dispatch.Retried:
				p.update(func(run *figures) string {
					run.retried++
					return ""
				})
			case dispatch.Failed:
				p.dead(row, err)
			case dispatch.Lost:
				p.fenced(row)
			}
		},
		Recovered: func(row outbox.Row, _ dispatch.Outcome) { p.rearmed(row) },
		StoreError: func(operation string, err error) {
			p.note("%s failed and will be tried again: %v", operation, err)
		},
	}
}

func (p *progress) rearmed(row outbox.Row) {
	p.update(func(run *figures) string {
		run.rearmed++
		return fmt.Sprintf("%s has gone stale and is re-armed", nameOf(row))
	})
}

func (p *progress) fenced(row outbox.Row) {
	p.update(func(run *figures) string {
		run.fenced++
		return fmt.Sprintf("%s came back too late: claim %d no longer holds it", nameOf(row), row.Fence)
	})
}

func (p *progress) dead(row outbox.Row, cause error) {
	p.update(func(run *figures) string {
		run.dead++
		return fmt.Sprintf("%s is a dead letter: %v", nameOf(row), cause)
	})
}

func (p *progress) cancelled(workflow uuid.UUID, rows int) {
	p.update(func(run *figures) string {
		run.cancelled += rows
		return fmt.Sprintf("workflow %s is stopped: %d rows cancelled", workflow, rows)
	})
}

func (p *progress) update(change func(run *figures) (note string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if note := change(&p.run); note != "" {
		p.screen.note(note)
	}
	p.screen.settled(p.before+p.run.settled(), p.rows)
}

// nameOf names a row for people.
func nameOf(row outbox.Row) string {
	event := strings.TrimPrefix(row.ActivityType, activityPrefix)
	if row.Ordinal >= uint64(len(subscribers)) {
		return event + " to nobody"
	}
	return event + " to " + subscribers[row.Ordinal].name
}
