package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// line hands out the right to write, to one goroutine at a time in the order
// they came. Whoever writes may take jobs of those behind along.
type line struct {
	mu      sync.Mutex
	taken   bool   // somebody writes
	waiting []*job // those who came later, in order
	crowded bool   // the last turn was shared; for who writes alone
}

// job is a call in the line.
type job struct {
	ctx    context.Context
	call   *Call         // nil for one that nobody else may run
	come   chan struct{} // closed when it is this one's turn, or another has run it; nil if it came first
	served bool          // another has run it; set before come is closed

	impatient bool // it cannot wait for who runs it for long after its context

	err      error // its outcome
	panicked any   // what the call panicked with, for its own goroutine to go on with
}

// take waits for the turn of a job. It reports false if another goroutine has run
// the job. It returns ctx's error only if nobody has begun to.
func (l *line) take(j *job) (mine bool, err error) {
	l.mu.Lock()
	if !l.taken {
		l.taken = true
		l.mu.Unlock()
		return true, nil
	}
	j.come = make(chan struct{})
	l.waiting = append(l.waiting, j)
	l.mu.Unlock()
	select {
	case <-j.come:
	case <-j.ctx.Done():
		if l.leave(j) {
			return false, j.ctx.Err()
		}
		if !j.impatient {
			<-j.come // soon: what others run for it is bounded
		} else if !j.wait() {
			return false, fmt.Errorf("%w: %w", ErrCommitUnknown, j.ctx.Err())
		}
	}
	return !j.served, nil
}

// leave takes a job out of the line, and reports whether it still stood there.
func (l *line) leave(j *job) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.Index(l.waiting, j)
	if at < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, at, at+1)
	return true
}

// join takes those next in line along, up to the first that nobody else may run,
// and as long as they weigh no more than this together.
func (l *line) join(weight int) []*job {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < len(l.waiting) && l.waiting[n].call != nil && l.waiting[n].call.Weight <= weight {
		weight -= l.waiting[n].call.Weight
		n++
	}
	joined := slices.Clone(l.waiting[:n])
	l.waiting = slices.Delete(l.waiting, 0, n)
	l.crowded = n > 0
	return joined
}

// serve lets a job that was taken along go.
func (j *job) serve() {
	j.served = true
	close(j.come)
}

// pass gives the turn to the next in line.
func (l *line) pass() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.taken = false
		return
	}
	next := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	close(next.come)
}

// length is how many stand in line behind the one that writes.
func (l *line) length() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

// commitGrace is how long a COMMIT on its way is still waited for once its
// context has ended: better a late answer than not to know.
const commitGrace = 100 * time.Millisecond

// wait waits until the job was served, and for a moment longer than its context
// lasts. It reports whether the job has an outcome.
func (j *job) wait() bool {
	select {
	case <-j.come:
		return true
	case <-j.ctx.Done():
	}
	timer := time.NewTimer(commitGrace)
	defer timer.Stop()
	select {
	case <-j.come:
		return true
	case <-timer.C:
		return false
	}
}

// protect runs a call on another's goroutine, which it must not end.
func (j *job) protect(fn func() error) (err error) {
	defer func() {
		if j.panicked = recover(); j.panicked != nil {
			err = errPanicked
		}
	}()
	return fn()
}

var errPanicked = errors.New("outbox: panic")

// Limits of what shares a commit, since a call cannot leave once it does.
const (
	mostWeight = 1000
	Unbounded  = mostWeight + 1 // the weight of a call that may touch any number of rows
)

// gather takes those along who wait in the line.
func (l *line) gather(weight int) []*job {
	if l.crowded {
		// Those whose calls the last turn ran are about to come back with
		// others: let them join this one rather than the next.
		runtime.Gosched()
	}
	joined := l.join(weight)
	for _, other := range joined {
		other.err = ErrRolledBack // until it is known to be stored
	}
	return joined
}

// joinable returns the calls of the first jobs that can be joined.
func joinable(group []*job) []*Call {
	var calls []*Call
	for _, j := range group {
		if j.call.Kind == nil || j.call.Kind != group[0].call.Kind || j.ctx.Err() != nil {
			break
		}
		calls = append(calls, j.call)
	}
	return calls
}
