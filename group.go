package outbox

import (
	"context"
	"database/sql"
	"errors"
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
	ctx context.Context
	run func(tx Tx, now string) error

	err      error // its outcome, once it has been run
	panicked any   // what run panicked with, for its own goroutine to panic on with
}

// runGuarded is run on another's goroutine, where it must not panic.
func (j *job) runGuarded(tx Tx, now string) (err error) {
	defer func() {
		if j.panicked = recover(); j.panicked != nil {
			err = errPanicked
		}
	}()
	return j.run(tx, now)
}

var errPanicked = errors.New("outbox: panic")

// turns hands out the right to write, to one goroutine at a time in the order
// they came.
type turns struct {
	mu      sync.Mutex
	taken   bool    // somebody writes
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
		<-t.come // at any moment now
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

// join takes those next in line, up to the first whose job nobody else may run.
func (q *turns) join(most int) []*turn {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < len(q.waiting) && n < most && q.waiting[n].job != nil {
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

// groupLimit is the most calls that share a commit.
const groupLimit = 100

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
	conn, err := s.begin(j.ctx, "BEGIN IMMEDIATE")
	if err != nil {
		j.err = err // the others try for themselves
		return
	}
	others := s.turns.join(groupLimit - 1)
	if len(others) == 0 {
		j.err = s.finishJob(conn, j)
		return
	}
	group := []*job{j}
	for _, t := range others {
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

// runGroup runs jobs in the transaction that is open on conn. If one of them
// ends it, or it cannot be committed and nothing is stored, each is run alone.
func (s *Store) runGroup(conn *sql.Conn, group []*job) {
	err := s.commitGroup(conn, group)
	for _, j := range group {
		switch {
		case j.panicked != nil:
		case errors.Is(err, ErrRolledBack):
			alone, err := s.begin(j.ctx, "BEGIN IMMEDIATE")
			if err == nil {
				err = s.finishJob(alone, j)
			}
			j.err = err
		case j.err == nil:
			j.err = err
		}
	}
}

func (s *Store) commitGroup(conn *sql.Conn, group []*job) error {
	ctx := context.Background()
	ended := false
	defer func() {
		if !ended {
			s.abort(ctx, conn)
		}
	}()
	for _, j := range group {
		_, j.err = savepoint(j.ctx, s, conn, true, func(tx Tx, now string) (done, error) {
			return done{}, j.runGuarded(tx, now)
		})
		if j.err != nil {
			if still, _ := inTransaction(conn); !still {
				return ErrRolledBack
			}
		}
	}
	ended = true
	return s.commit(ctx, conn)
}

func (s *Store) finishJob(conn *sql.Conn, j *job) error {
	_, err := finish(j.ctx, s, conn, func(tx Tx, now string) (done, error) {
		return done{}, j.run(tx, now)
	})
	return err
}
