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
// A handler that becomes free goes to the Dispatcher that has the fewest of those
// that want one. So a Store with a huge backlog uses all of the Pool while the
// others have nothing to do, and delays the first row of another until one of its
// handlers returns. A Dispatcher whose Store cannot be reached, or has nothing
// due, takes no part.
type Pool struct {
	size int

	mu      sync.Mutex
	free    int
	members int
	waiting []*member // in the order in which they began to wait
}

// NewPool returns a Pool of so many handlers. Not positive: 32.
func NewPool(handlers int) *Pool {
	setDefault(&handlers, 32)
	return &Pool{size: handlers, free: handlers}
}

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
	granted chan int
}

func (p *Pool) join(most int) *member {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.members++
	return &member{pool: p, most: most, granted: make(chan int, 1)}
}

// leave ends the part of a member that has no handlers left.
func (m *member) leave() {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	m.pool.members--
}

// acquire waits for at least one handler and returns how many it got; none when
// ctx has ended.
func (m *member) acquire(ctx context.Context) int {
	p := m.pool
	p.mu.Lock()
	p.waiting = append(p.waiting, m)
	p.grant()
	p.mu.Unlock()
	select {
	case n := <-m.granted:
		return n
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = slices.DeleteFunc(p.waiting, func(other *member) bool { return other == m })
	select {
	case n := <-m.granted: // it came just before
		m.has -= n
		p.free += n
		p.grant()
	default:
	}
	return 0
}

func (m *member) release(n int) {
	if n == 0 {
		return
	}
	p := m.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	m.has -= n
	p.free += n
	p.grant()
}

// grant gives free handlers to those that wait, the one with the fewest first,
// until all have as many as the others. Alone, one gets but half of those that are
// free if there are other members: its Store may take long to find out that it
// cannot be reached.
func (p *Pool) grant() {
	for p.free > 0 {
		poorest, wanting, total := -1, 0, p.free
		for i, m := range p.waiting {
			if m.has >= m.most {
				continue
			}
			wanting++
			total += m.has
			if poorest < 0 || m.has < p.waiting[poorest].has {
				poorest = i
			}
		}
		if poorest < 0 {
			return
		}
		m := p.waiting[poorest]
		n := max(total/wanting-m.has, 1)
		if wanting == 1 && p.members > 1 {
			n = p.free - p.free/2
		}
		n = min(n, m.most-m.has, p.free)
		m.has += n
		p.free -= n
		p.waiting = slices.Delete(p.waiting, poorest, poorest+1)
		m.granted <- n
	}
}
