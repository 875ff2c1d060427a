//go:build sqld

package sqldtest

import (
	"bytes"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy passes connections on to a server, counts their requests, and lets a
// fault befall the next one with a given text.
type proxy struct {
	server   *server
	listener net.Listener
	thawed   chan struct{} // closed when frozen connections go on
	requests atomic.Int64
	status   atomic.Int64 // that requests are answered with in the server's stead; 0: they are passed on

	mu    sync.Mutex
	fault fault
}

// fault is what befalls a request. The zero value is none.
type fault struct {
	kind  faultKind
	text  string // in the request
	after int    // for cutAnswer: how many bytes of the answer still pass
	hit   chan struct{}
}

type faultKind int

const (
	cutRequest faultKind = iota + 1 // the connection ends before the server has the request
	cutAnswer                       // the server does what is asked; of its answer only some bytes pass
	halve                           // the connection ends when the server has half of what was read of the request
	freeze                          // the server does what is asked; its answer waits until thaw is called
)

func newProxy(t testing.TB, s *server) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{server: s, listener: listener, thawed: make(chan struct{})}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		p.thaw()
	})
	return p
}

func (p *proxy) url() string { return "http://" + p.listener.Addr().String() }

// cost returns how many requests call makes.
func (p *proxy) cost(call func()) int64 {
	before := p.requests.Load()
	call()
	return p.requests.Load() - before
}

// strike arms a fault for the next request with this text, and returns a
// channel that is closed when it has struck.
func (p *proxy) strike(kind faultKind, text string, after int) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault{kind, text, after, make(chan struct{})}
	return p.fault.hit
}

// thaw lets the answers of frozen connections pass.
func (p *proxy) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.thawed:
	default:
		close(p.thawed)
	}
}

// take returns the fault that befalls a request, and disarms it.
func (p *proxy) take(request []byte) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.fault
	if taken.kind == 0 || !bytes.Contains(request, []byte(taken.text)) {
		return fault{}
	}
	p.fault = fault{}
	close(taken.hit)
	return taken
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	upstream, err := net.Dial("tcp", p.server.http)
	if err != nil {
		return
	}
	defer upstream.Close()

	var befallen atomic.Pointer[fault] // what befalls the answer under way
	go func() {
		defer client.Close() // which ends the loop below
		left := -1           // bytes of the answer that still pass; -1: all
		buffer := make([]byte, 64<<10)
		for {
			n, err := upstream.Read(buffer)
			if struck := befallen.Swap(nil); struck != nil {
				if struck.kind == freeze {
					<-p.thawed
				} else {
					left = struck.after
				}
			}
			if left >= 0 {
				n = min(n, left)
				left -= n
			}
			if _, failed := client.Write(buffer[:n]); err != nil || failed != nil || left == 0 {
				return
			}
		}
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		starts := bytes.HasPrefix(buffer[:n], []byte("POST "))
		if starts && !takesPlace(buffer[:n]) {
			p.requests.Add(1)
		}
		if status := p.status.Load(); status != 0 {
			if starts {
				const text = "<html>Come back later.</html>"
				fmt.Fprintf(client, "HTTP/1.1 %d Gateway\r\nContent-Length: %d\r\n\r\n%s", status, len(text), text)
			}
			if err != nil {
				return
			}
			continue
		}
		struck := p.take(buffer[:n]) // a request's statement is in the first bytes read of it
		switch struck.kind {
		case cutRequest:
			return
		case halve:
			_, _ = upstream.Write(buffer[:n/2])
			return
		case cutAnswer, freeze:
			befallen.Store(&struck)
		}
		if _, failed := upstream.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

// takesPlace reports whether a request only takes up a place in the server's queue,
// after a BEGIN that was slow, if only because the machine is.
func takesPlace(request []byte) bool {
	return bytes.Contains(request, []byte("unixepoch")) && !bytes.Contains(request, []byte("outbox"))
}
