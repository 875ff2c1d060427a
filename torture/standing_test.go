package torture_test

import (
	"cmp"
	"slices"

	"example.com/outbox"
)

// standing is where a row stands; the zero standing is that of a row that is
// not there.
type standing struct {
	Status  outbox.Status
	Fence   int64
	Attempt uint32
}

func (s standing) live() bool { return s.Status == outbox.Pending || s.Status == outbox.Claimed }

func (s standing) settled() bool { return s.Status != "" && !s.live() }

// standings is a set of them: of those that a row may have.
type standings map[standing]bool

// also adds what becomes of those in the set, as far as anything does.
func (set standings) also(become func(standing) (standing, bool)) {
	for s := range set {
		if next, ok := become(s); ok {
			set[next] = true
		}
	}
}

// only is what becomes of those in the set.
func (set standings) only(become func(standing) (standing, bool)) standings {
	after := standings{}
	for s := range set {
		if next, ok := become(s); ok {
			after[next] = true
		}
	}
	return after
}

// step is what one call does to one row.
type step struct {
	call *call
	ref  outbox.Ref // fence -1 if the row is staged
}

// become is what a row becomes by the step, if it can be made. A transition may
// be repeated.
func (st step) become(s standing) (standing, bool) {
	held := s.live() && s.Fence == st.ref.Fence
	switch st.call.Kind {
	case appending, staging:
		return standing{Status: outbox.Pending}, s == standing{}
	case claiming:
		return standing{outbox.Claimed, st.ref.Fence, s.Attempt}, s.Status == outbox.Pending && s.Fence == st.ref.Fence-1
	case extending:
		return s, held && s.Status == outbox.Claimed
	case retrying:
		return standing{outbox.Pending, st.ref.Fence, st.call.Attempt}, held
	case failing:
		failed := standing{outbox.Failed, st.ref.Fence, s.Attempt}
		return failed, held || s == failed
	case requeuing:
		return standing{outbox.Pending, st.ref.Fence + 1, 0}, s.Status == outbox.Failed && s.Fence == st.ref.Fence
	default:
		done := standing{outbox.Done, st.ref.Fence, s.Attempt}
		return done, held || s == done
	}
}

// anotherClaim is what a row becomes by a claim that was never answered.
func anotherClaim(s standing) (standing, bool) {
	return standing{outbox.Claimed, s.Fence + 1, s.Attempt}, s.Status == outbox.Pending
}

func cancelled(s standing) (standing, bool) {
	return standing{outbox.Cancelled, s.Fence, s.Attempt}, s.live()
}

// path is all that was done to one row, but for settling its workflow.
type path []step

// from is where the row may stand after the path, if it stood there before:
// nowhere, if the answers contradict each other.
func (p path) from(before standing) standings {
	set := standings{before: true}
	for _, st := range p {
		switch {
		case st.call.Outcome == stored && !slices.Contains(st.call.Lost, st.ref.DispatchKey):
			set = set.only(st.become)
		case st.call.Outcome == unanswered:
			set.also(st.become)
		}
	}
	return set
}

// requeued reports whether the row may have been requeued.
func (p path) requeued() bool {
	return slices.ContainsFunc(p, func(st step) bool { return st.call.Kind == requeuing && st.call.Outcome != refused })
}

// sort brings the steps into the order in which they were made. Those of one
// fence are made by one worker, which has claimed the row.
func (p path) sort() {
	slices.SortStableFunc(p, func(a, b step) int { return cmp.Compare(a.ref.Fence, b.ref.Fence) })
}
