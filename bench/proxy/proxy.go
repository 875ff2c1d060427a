// Package proxy puts a distance between clients and a server on one machine: it
// passes TCP connections on and holds every byte back for half a round trip in
// each direction, however many are under way.
package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Proxy listens on a free port of 127.0.0.1.
type Proxy struct {
	server    string
	roundTrip time.Duration
	label     string
	listener  net.Listener
	serving   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
}

// New starts a proxy before the server at an address. If label is not empty, it
// takes the place of the 127 in the proxy's own address wherever a client writes
// that, which is in the Host header: a server of many databases takes the first
// label of the host for the name of one, and here no resolver knows such hosts.
// It has three characters, so that nothing changes its length.
func New(server string, roundTrip time.Duration, label string) (*Proxy, error) {
	if label != "" && len(label) != len("127") {
		return nil, errors.New("proxy: the label does not have three characters")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{server: server, roundTrip: roundTrip, label: label, listener: listener, conns: make(map[net.Conn]struct{})}
	p.serving.Go(p.accept)
	return p, nil
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close ends all connections.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for conn := range p.conns {
		conn.Close()
	}
	p.mu.Unlock()
	p.serving.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.keep(client) {
			p.serving.Go(func() { p.serve(client) })
		}
	}
}

// keep has Close end the connection, or ends it if Close was called.
func (p *Proxy) keep(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		conn.Close()
		return false
	}
	p.conns[conn] = struct{}{}
	return true
}

func (p *Proxy) drop(conn net.Conn) {
	conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}

func (p *Proxy) serve(client net.Conn) {
	defer p.drop(client)
	time.Sleep(p.roundTrip) // what the handshake takes
	server, err := net.Dial("tcp", p.server)
	if err != nil || !p.keep(server) {
		return
	}
	defer p.drop(server)
	var both sync.WaitGroup
	both.Go(func() { p.pass(server, client, p.rename) })
	both.Go(func() { p.pass(client, server, nil) })
	both.Wait()
}

func (p *Proxy) rename(text []byte) []byte {
	if p.label == "" {
		return text
	}
	own := p.Addr()
	return bytes.Replace(text, []byte(own), []byte(p.label+own[len(p.label):]), 1)
}

// chunk is what was read at once, and when it is to be written.
type chunk struct {
	text []byte
	due  time.Time
}

// pass copies until either side ends, and then ends both: HTTP leaves no
// connection half open.
func (p *Proxy) pass(to, from net.Conn, change func([]byte) []byte) {
	const (
		most  = 64 << 10
		ahead = 1024
	)
	chunks := make(chan chunk, ahead)
	var writing sync.WaitGroup
	writing.Go(func() {
		for c := range chunks {
			time.Sleep(time.Until(c.due))
			if _, err := to.Write(c.text); err != nil {
				break
			}
		}
		to.Close()
		from.Close()
		for range chunks { // what nobody takes any more
		}
	})
	for {
		text := make([]byte, most)
		n, err := from.Read(text)
		if n > 0 {
			text = text[:n]
			if change != nil {
				text = change(text)
			}
			chunks <- chunk{text, time.Now().Add(p.roundTrip / 2)}
		}
		if err != nil {
			break // io.EOF or worse: either way there is no more
		}
	}
	close(chunks)
	writing.Wait()
}

var _ io.Closer = (*Proxy)(nil)
