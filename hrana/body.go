package hrana

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// delivery gives a request's body to net/http and knows whether the whole of it
// may have gone out. A server executes nothing of half a body, so a request whose
// last byte net/http never got was certainly not executed.
type delivery struct {
	body []byte

	mu     sync.Mutex // guards what follows, as net/http may read on when it has returned
	whole  bool       // the last byte was handed out
	closed bool       // nothing more is
}

var errDeliveryClosed = errors.New("the request is over")

// finish hands out no more and reports whether the last byte was.
func (d *delivery) finish() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return d.whole
}

// reader returns the body from its start. net/http asks for another one if it
// could not write to a connection that it had kept.
func (d *delivery) reader() (io.ReadCloser, error) {
	return &deliveryReader{d: d, Reader: bytes.NewReader(d.body)}, nil
}

type deliveryReader struct {
	d *delivery
	*bytes.Reader
}

func (r *deliveryReader) Read(p []byte) (int, error) {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	if r.d.closed {
		return 0, errDeliveryClosed
	}
	n, err := r.Reader.Read(p)
	r.d.whole = r.d.whole || r.Len() == 0
	return n, err
}

// WriteTo hides that of the bytes.Reader, so that every byte goes through Read.
func (r *deliveryReader) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{r})
}

func (r *deliveryReader) Close() error { return nil }
