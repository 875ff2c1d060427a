package main

import (
	"slices"
	"strings"

	"example.com/outbox"
	"github.com/google/uuid"
)

// definition is what a workflow does: one step after the other, the activities
// of a step at the same time. Their names are unique in it.
type definition struct {
	steps [][]string
	runs  int // after a run it continues as new, until there were so many
}

// event is a fact of a workflow's history.
type event struct {
	run    uuid.UUID
	what   string
	detail string // the definition's name, or the activity's
}

const (
	started   = "started"
	scheduled = "scheduled"
	completed = "completed"
	paused    = "paused"
	resumed   = "resumed"
	cancelled = "cancelled"
	ended     = "ended"
)

// workflow is what a history adds up to.
type workflow struct {
	id      uuid.UUID
	history []event
	name    string
	run     uuid.UUID // the present one
	runs    int
	seen    map[string]bool   // activities that this run has scheduled
	open    map[string]uint64 // those not completed, with the number of the event
	active  bool
	held    bool
}

// apply adds an event. All that a workflow is comes from here, whether the
// event is read from the history or has just happened.
func (w *workflow) apply(e event) {
	w.history = append(w.history, e)
	switch e.what {
	case started: // once more, if it continues as new
		w.name, w.run, w.active = e.detail, e.run, true
		w.runs++
		w.seen, w.open = make(map[string]bool), make(map[string]uint64)
	case scheduled:
		w.seen[e.detail], w.open[e.detail] = true, uint64(len(w.history))
	case completed:
		delete(w.open, e.detail)
	case paused, resumed:
		w.held = e.what == paused
	case cancelled, ended:
		w.active, w.open = false, nil
	}
}

// dispatches are the rows of what is open. The ordinal is the number of the event
// that scheduled it, so that the same event always has the same dispatch key.
func (w *workflow) dispatches() (rows []outbox.Row) {
	for activity, number := range w.open {
		rows = append(rows, outbox.Row{
			WorkflowID:   w.id,
			Ordinal:      number,
			RunID:        uuid.NullUUID{UUID: w.run, Valid: true},
			ActivityType: activity,
		})
	}
	return rows
}

// String tells the last event, and what was completed in all runs.
func (w *workflow) String() string {
	var last string
	var done []string
	for _, e := range w.history {
		if last = e.what; e.what == completed {
			done = append(done, e.detail)
		}
	}
	if len(done) == 0 {
		return last + " after nothing"
	}
	slices.Sort(done)
	return last + " after " + strings.Join(done, ", ")
}
