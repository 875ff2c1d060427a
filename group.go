package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"runtime"
	"slices"
	"sync"
)

// Goroutines that write at once share commits: while one commits, the calls of
// others gather, and the next in line runs them all in one transaction, each
// inside a savepoint, so that the error of one is nobody else's. A call that
// comes alone is not held up. Update always has a transaction of its own, for
// its function is the caller's and must run on the caller's goroutine.

// job is a call that another goroutine may run.
type job struct {
	ctx    context.Context
	weight int // how many rows it may touch, or so
	run    func(tx Tx, now string) error
	work   mergeable // what run does, if it can be done together with others'

	err      error // its outcome
	panicked any   // what run panicked with, for its own goroutine to panic on with
}

// mergeable is work of which one statement can do several at a time.
type mergeable interface {
	mergesWith(other mergeable) bool
	// runAll does the work of all, of which the receiver is the first, and
	// notes the outcome of each.
	runAll(ctx context.Context, tx Tx, now string, all []mergeable) error
}

// guard calls fn for the job on another's goroutine, which it must not end.
func (j *job) guard(fn func() error) (err error) {
	defer func() {
		if j.panicked = recover(); j.panicked != nil {
			err = errPanicked
		}
	}()
	return fn()
}

var errPanicked = errors.New("outbox: panic")

// turns hands out the right to write, to one goroutine at a time in the order
// they came.
type turns struct {
	mu      sync.Mutex
	taken   bool    // somebody writes
	crowded bool    // the last turn was shared; for who writes alone
	waiting []*turn // those who came later, in order
}

// turn is a goroutine's place in the line.
type turn struct {
	job  *job          // what another may run in its stead; nil: nothing
	done bool          // another has run it; set before come is closed
	come chan struct{} // closed when it is this one's turn, or its job is done
}

// take waits for a turn. It reports false if another has run the job meanwhile.
// It returns ctx's error only if nobody has begun to.
func (q *turns) take(ctx context.Context, j *job) (mine bool, err error) {
	q.mu.Lock()
	if !q.taken {
		q.taken = true
		q.mu.Unlock()
		return true, nil
	}
	t := &turn{job: j, come: make(chan struct{})}
	q.waiting = append(q.waiting, t)
	q.mu.Unlock()
	select {
	case <-t.come:
	case <-ctx.Done():
		if q.leave(t) {
			return false, ctx.Err()
		}
		<-t.come // soon: what others run in its stead is bounded
	}
	return !t.done, nil
}

// leave takes t out of the line, and reports whether it still stood there.
func (q *turns) leave(t *turn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := slices.Index(q.waiting, t)
	if at < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, at, at+1)
	return true
}

// join takes those next in line, up to the first whose job nobody else may run
// and as long as they weigh no more than this together.
func (q *turns) join(weight int) []*turn {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < len(q.waiting) && q.waiting[n].job != nil && q.waiting[n].job.weight <= weight {
		weight -= q.waiting[n].job.weight
		n++
	}
	joined := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	return joined
}

// pass gives the turn to the next in line.
func (q *turns) pass() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.taken = false
		return
	}
	next := q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	close(next.come)
}

// groupWeight bounds what shares a commit, since a call cannot leave its group
// when its context ends.
const (
	groupWeight = 1000
	unbounded   = groupWeight + 1 // the weight of a call that may touch any number of rows
)

// runJob runs a job in its turn, here or on another goroutine's.
func (s *Store) runJob(j *job) {
	mine, err := s.turns.take(j.ctx, j)
	if err != nil {
		j.err = err
	}
	if !mine {
		return
	}
	defer s.turns.pass()
	conn, err := s.begin(j.ctx)
	if err != nil {
		j.err = err // the others try for themselves
		return
	}
	if s.turns.crowded {
		// Those whose calls the last group did are about to come back with
		// others: let them join this one rather than the next.
		runtime.Gosched()
	}
	others := s.turns.join(groupWeight - j.weight)
	s.turns.crowded = len(others) > 0
	if len(others) == 0 {
		j.err = s.finishJob(conn, j)
		return
	}
	group := []*job{j}
	for _, t := range others {
		t.job.err = ErrRolledBack // until it is known to be stored
		group = append(group, t.job)
	}
	defer func() {
		for _, t := range others {
			t.done = true
			close(t.come)
		}
	}()
	s.runGroup(conn, group)
}

// runGroup runs jobs in the transaction that is open on conn. If that is undone,
// whoever's fault it was, each is run alone.
func (s *Store) runGroup(conn *sql.Conn, group []*job) {
	outcomes, err := s.commitGroup(conn, group)
	for i, j := range group {
		switch {
		case j.panicked != nil:
		case err == nil:
			j.err = outcomes[i]
		case errors.Is(err, ErrCommitUnknown), errors.Is(err, ErrBusy):
			j.err = cmp.Or(outcomes[i], err)
		default:
			j.err = j.guard(func() error {
				alone, err := s.begin(j.ctx)
				if err != nil {
					return err
				}
				return s.finishJob(alone, j)
			})
		}
	}
}

// commitGroup returns the outcome of each job, which stands if there is no
// error beside it.
func (s *Store) commitGroup(conn *sql.Conn, group []*job) ([]error, error) {
	ctx := context.Background()
	ended := false
	defer func() {
		if !ended {
			s.abort(ctx, conn, false) // a job's panic was recovered, and is not the driver's
		}
	}()
	outcomes := make([]error, len(group))
	for i := 0; i < len(group); {
		merged, err := s.runMerged(conn, group[i:])
		if err != nil {
			return nil, err
		}
		if i += merged; merged > 0 {
			continue
		}
		j := group[i]
		outcomes[i] = j.guard(func() error {
			_, err := savepoint(j.ctx, s, conn, true, func(tx Tx, now string) (done, error) {
				return done{}, j.run(tx, now)
			})
			return err
		})
		if j.panicked != nil || errors.Is(outcomes[i], errNotUndone) || isBroken(outcomes[i]) {
			return nil, ErrRolledBack
		}
		i++
	}
	for _, j := range group {
		j.err = ErrCommitUnknown // until it is known
	}
	ended = true
	return outcomes, s.commit(ctx, conn)
}

// runMerged does the work of the first jobs as one, if several are alike, and
// returns how many: 0 if they are not, or if that failed and has been undone.
// Then each is to be run for itself.
func (s *Store) runMerged(conn *sql.Conn, group []*job) (int, error) {
	var all []mergeable
	for _, j := range group {
		if j.work == nil || j.ctx.Err() != nil || !group[0].work.mergesWith(j.work) {
			break
		}
		all = append(all, j.work)
	}
	if len(all) < 2 {
		return 0, nil
	}
	ctx := context.Background() // what others wait for does not end with one of them
	err := group[0].guard(func() error {
		_, err := savepoint(ctx, s, conn, true, func(tx Tx, now string) (done, error) {
			return done{}, all[0].runAll(ctx, tx, now, all)
		})
		return err
	})
	switch {
	case errors.Is(err, errPanicked), errors.Is(err, errNotUndone):
		group[0].panicked = nil // alone, the one at fault will again
		return 0, ErrRolledBack
	case err != nil:
		return 0, nil
	}
	return len(all), nil
}

func (s *Store) finishJob(conn *sql.Conn, j *job) error {
	_, err := finish(j.ctx, s, conn, func(tx Tx, now string) (done, error) {
		return done{}, j.run(tx, now)
	})
	return err
}
