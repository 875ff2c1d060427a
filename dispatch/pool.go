package dispatch

import (
	"context"
	"slices"
	"sync"
)

// Pool is a number of handlers that Dispatchers share: those given the same Pool
// in their Options, usually one for each of many Stores, run no more than that at
// once.
//
// Dispatchers that have rows to claim get equal parts, and a handler that becomes
// free goes to the one that has the fewest. So a Store with a huge backlog uses
// all of the Pool while the others have nothing to do, and delays the first row of
// another until one of its handlers returns. A Dispatcher whose Store cannot be
// reached, or has nothing due, takes no part.
type Pool struct {
	size   int
	shared bool

	mu     sync.Mutex
	free   int
	hungry []*member // that have asked for handlers and may ask again soon
	turn   int       // counts the times that one asked
}

// NewPool returns a Pool of so many handlers. Not positive: 32.
func NewPool(handlers int) *Pool {
	setDefault(&handlers, 32)
	return &Pool{size: handlers, free: handlers, shared: true}
}

// ownPool is a Pool for one Dispatcher.
func ownPool(handlers int) *Pool { return &Pool{size: handlers, free: handlers} }

func (p *Pool) sizeOr(without int) int {
	if p == nil {
		return without
	}
	return p.size
}

// member is one run's part of a Pool. Its fields are guarded by the Pool.
type member struct {
	pool    *Pool
	most    int // that it may have
	has     int // handlers, running or about to be
	waiting bool
	turn    int // when it began to wait
	granted chan int
}

func (p *Pool) join(most int) *member {
	return &member{pool: p, most: most, granted: make(chan int, 1)}
}

// acquire waits for at least one handler and returns how many it got; none when
// ctx has ended. Until rest is called, others leave the member its part of the
// pool.
func (m *member) acquire(ctx context.Context) int {
	p := m.pool
	p.mu.Lock()
	m.waiting, m.turn = true, p.turn
	p.turn++
	if !slices.Contains(p.hungry, m) {
		p.hungry = append(p.hungry, m)
	}
	p.grant()
	p.mu.Unlock()
	select {
	case n := <-m.granted:
		return n
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m.waiting = false
	select {
	case n := <-m.granted: // it came just before
		m.has -= n
		p.free += n
	default:
	}
	m.sate()
	return 0
}

// release gives handlers back.
func (m *member) release(n int) {
	p := m.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	m.has -= n
	p.free += n
	p.grant()
}

// rest says that the member has no use for more handlers for now.
func (m *member) rest() {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	m.sate()
}

func (m *member) sate() {
	m.pool.hungry = slices.DeleteFunc(m.pool.hungry, func(other *member) bool { return other == m })
	m.pool.grant()
}

// grant gives free handlers to those that wait, the one with the fewest first, up
// to an equal part for all that are hungry. One that is hungry alone gets but half
// of what is free: its Store may take long to find out that it cannot be reached.
func (p *Pool) grant() {
	for p.free > 0 {
		var poorest *member
		wanting, total := 0, p.free
		for _, m := range p.hungry {
			if m.has >= m.most {
				continue
			}
			wanting++
			total += m.has
			if m.waiting && (poorest == nil || m.has < poorest.has || m.has == poorest.has && m.turn < poorest.turn) {
				poorest = m
			}
		}
		if poorest == nil {
			return
		}
		n := total/wanting - poorest.has
		if total%wanting > 0 {
			n++
		}
		switch {
		case n <= 0:
			return // what is free is for those that are about to ask
		case wanting == 1 && p.shared:
			n = p.free - p.free/2
		}
		n = min(n, poorest.most-poorest.has, p.free)
		poorest.has += n
		p.free -= n
		poorest.waiting = false
		poorest.granted <- n
	}
}
