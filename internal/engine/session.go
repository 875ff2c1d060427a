package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// session is the use of one connection of the pool, for one transaction at most.
//
// A call of the driver that may outlast its context is made on a goroutine of
// the session: when the context ends first, the session is over for its user,
// and that goroutine undoes and gives back what the session held as soon as the
// driver returns. There is one such goroutine at most, and none if the context
// cannot end.
type session struct {
	db  *DB
	ctx context.Context
	can Abilities

	// These belong to whoever makes the calls.
	conn     *sql.Conn
	open     bool     // a transaction may be open on conn
	unbegun  bool     // its BEGIN travels with the first statement, which was not sent yet
	close    []func() // what is open on conn: it could not be given back
	within   bool     // a function of the program's has the transaction, and has not returned
	calling  bool     // a call was begun and has not returned
	panicked bool     // a call panicked, so conn may be locked for good

	calls chan func() // to the goroutine; nil: there is none
	left  bool        // the driver was left behind with the last call
}

func (db *DB) newSession(ctx context.Context, can Abilities) *session {
	return &session{db: db, ctx: ctx, can: can}
}

// errLeft is for a call of the driver that outlasts its context.
var errLeft = errors.New("outbox: the driver did not return in time")

// errEndedGoroutine is for a call that ended the goroutine it ran on.
var errEndedGoroutine = errors.New("outbox: the call ended its goroutine")

// do makes a call of the driver. If it outlasts the context of the session, do
// returns an errLeft with the context's error, and the session is over.
func (s *session) do(call func() error) error { return s.doWithin(s.ctx, call) }

// doWithin is do with a context of the call's own, which may end sooner.
func (s *session) doWithin(ctx context.Context, call func() error) error {
	if s.left {
		return errLeft
	}
	if s.can.Prompt || ctx.Done() == nil {
		return s.call(call)
	}
	if s.calls == nil {
		s.calls = make(chan func())
		go s.serve()
	}
	type outcome struct {
		err      error
		panicked any
	}
	answer := make(chan outcome, 1)
	s.calls <- func() {
		got := outcome{err: errEndedGoroutine}
		defer func() {
			got.panicked = recover()
			answer <- got
		}()
		got.err = s.call(call)
	}
	settle := func(got outcome) error {
		if got.panicked != nil {
			panic(got.panicked) // on the goroutine of the caller
		}
		if got.err == errEndedGoroutine {
			s.calls = nil
		}
		return got.err
	}
	select {
	case got := <-answer:
		return settle(got)
	case <-ctx.Done():
	}
	select {
	case got := <-answer: // both at once
		return settle(got)
	default:
	}
	s.left = true
	s.db.widen(1)
	close(s.calls)
	return fmt.Errorf("%w: %w", ctx.Err(), errLeft)
}

// call makes a call on the present goroutine.
func (s *session) call(call func() error) error {
	s.panicked = s.panicked || s.calling
	s.calling = true
	err := call()
	s.calling = false
	return err
}

// serve makes the calls of a session, and cleans up after the last.
func (s *session) serve() {
	defer func() {
		if s.left {
			_ = s.call(func() error {
				s.release()
				return nil
			})
			s.db.widen(-1)
		}
	}()
	for call := range s.calls {
		call()
	}
}

// end gives back what the session holds, whatever happened, and undoes what is
// not committed.
func (s *session) end() {
	if !s.left {
		_ = s.do(func() error {
			s.release()
			return nil
		})
	}
	if s.calls != nil && !s.left {
		close(s.calls)
	}
}

// release undoes what is open and gives the connection back. After a panic
// nobody waits for that: if it was the driver's, inside a query, database/sql
// keeps the connection locked for good. (Open sees to it that a driver does not
// panic; Over cannot.)
func (s *session) release() {
	conn := s.conn
	if conn == nil {
		return
	}
	s.conn = nil
	s.closeOpen()
	if s.open {
		s.open = false
		_ = rollback(conn)
	}
	if s.panicked || s.within {
		go conn.Close()
		return
	}
	conn.Close()
}

// closeOpen closes what is open on the connection.
func (s *session) closeOpen() {
	for _, done := range s.close {
		done()
	}
	s.close = nil
}

// On how many connections of the pool a call is tried.
const (
	attempts      = 3
	staleAttempts = 100 // if a server has forgotten them, which may befall all that are idle at once
)

// tried reports whether a call is to be given up that has failed on that many
// connections.
func (s *session) tried(times int, err error) bool {
	if isForgotten(err) {
		return times >= staleAttempts || s.ctx.Err() != nil
	}
	return times >= attempts || s.ctx.Err() != nil
}

// outlive returns a context that ends grace after ctx does.
func outlive(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		return ctx, func() {}
	}
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(grace, cancel)
		context.AfterFunc(longer, func() { timer.Stop() })
	})
	return longer, func() {
		stop()
		cancel()
	}
}
