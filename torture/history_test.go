package torture_test

import (
	"slices"

	"example.com/outbox"
)

// history is the calls of several processes in the order that matters: row by
// row.
type history struct {
	paths      map[string]path
	staged     map[string][]string // keys by workflow
	settlings  map[string][]*call  // by workflow
	calls      map[string]bool     // by ID
	openClaims int                 // rows that claims without an answer may have taken
}

func newHistory(calls []call) *history {
	h := &history{
		paths: map[string]path{}, staged: map[string][]string{}, settlings: map[string][]*call{}, calls: map[string]bool{},
	}
	for i := range calls {
		c := &calls[i]
		h.calls[c.ID] = true
		switch c.Kind {
		case appending, staging:
			for _, key := range c.Keys {
				h.paths[key] = append(h.paths[key], step{c, outbox.Ref{DispatchKey: key, Fence: -1}})
			}
			h.staged[c.Workflow.String()] = c.Keys
		case settling:
			h.settlings[c.Workflow.String()] = append(h.settlings[c.Workflow.String()], c)
		case claiming:
			if c.Outcome == unanswered {
				h.openClaims += c.Limit
			}
		}
		for _, ref := range c.Refs {
			h.paths[ref.DispatchKey] = append(h.paths[ref.DispatchKey], step{c, ref})
		}
	}
	for _, p := range h.paths {
		p.sort()
	}
	return h
}

// settled is where a row may stand after its workflow was settled, if it was.
func (h *history) settled(key string, possible standings) standings {
	for _, c := range h.settlings[workflowOf(key)] {
		switch {
		case c.Outcome == stored && slices.Contains(c.Keys, key):
			return possible.only(cancelled)
		case c.Outcome == unanswered:
			all := standings{}
			for s := range possible {
				all[s] = true
			}
			all.also(cancelled)
			return all
		}
	}
	return possible
}
