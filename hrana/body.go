package hrana

import (
	"errors"
	"io"
	"sync"
)

// delivery gives a request's body to net/http and knows whether the whole of it
// may have gone out. A server executes nothing of half a body, so a request whose
// last byte net/http never got was certainly not executed.
type delivery struct {
	body []byte

	mu     sync.Mutex // guards what follows: net/http may read on when it has returned
	reader *bodyReader
	whole  bool // the last byte was handed out
}

var errDelivered = errors.New("the request is over")

// open returns the body from its start. net/http asks for it again if it wrote
// nothing to a connection that it had kept, or the server let it know that it
// had not looked at the request. What was read before does not count then.
func (d *delivery) open() (io.ReadCloser, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reader, d.whole = &bodyReader{d: d, rest: d.body}, false
	return d.reader, nil
}

// finish hands out no more and reports whether the last byte was.
func (d *delivery) finish() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reader = nil
	return d.whole
}

type bodyReader struct {
	d    *delivery
	rest []byte
}

func (r *bodyReader) Read(p []byte) (int, error) {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	if r.d.reader != r {
		return 0, errDelivered
	}
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	r.d.whole = len(r.rest) == 0
	return n, nil
}

func (r *bodyReader) Close() error { return nil }
