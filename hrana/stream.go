package hrana

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"example.com/outbox/sqlbatch"
)

// stream is a session with the server: what a connection is to a database in a
// file. The server knows it by a baton, of which every answer brings a new one.
type stream struct {
	to    *Connector
	baton string // "": the server has none yet, or none any more
	base  string // the address it is reached at; "": the connector's
	heard time.Time

	elsewhere string // an origin that the server asked for and that is not allowed
}

// idleLimit is how long a server keeps a stream that nobody uses. A request on
// an older one would be refused, and sent again on a new one.
const idleLimit = 10 * time.Second

// forget makes the next request open a new stream.
func (s *stream) forget() { *s = stream{to: s.to} }

// do sends a request and returns the answer, which has one reply of the right
// kind for each request in it. The stream is left as it was if nothing was done,
// and is forgotten if nobody knows.
//
// Outside a transaction a stream that the server no longer knows is replaced:
// nothing of the request was executed, and nothing was lost with it.
func (s *stream) do(ctx context.Context, r *request, inTransaction bool, kinds ...string) (*answer, *Error) {
	if inTransaction && s.baton == "" {
		return nil, refuse(sqlbatch.CodeStreamUnknown, "the server has ended the stream inside a transaction")
	}
	if !inTransaction && s.baton != "" && time.Since(s.heard) > idleLimit {
		s.forget()
	}
	a, err := s.exchange(ctx, r.on(s.baton))
	if err != nil && s.baton != "" && isGone(err) {
		if err.code == sqlbatch.CodeStreamUnknown && s.elsewhere != "" {
			err.message += " (the server asked to be reached at " + s.elsewhere + ", which Options.Origins does not allow)"
		}
		s.forget()
		if inTransaction {
			return nil, err
		}
		a, err = s.exchange(ctx, r.on(""))
	}
	if err == nil {
		err = a.expect(kinds...)
	}
	if err != nil {
		if err.outcome != nothing {
			s.forget()
		}
		return nil, err
	}
	s.heard = time.Now()
	s.baton = a.baton
	s.move(a.baseURL)
	return a, nil
}

// isGone reports whether the server does not know the stream.
func isGone(err *Error) bool {
	return err.code == sqlbatch.CodeStreamUnknown || err.code == sqlbatch.CodeStreamExpired
}

// move follows the server's wish where to be reached, if that is allowed.
func (s *stream) move(to string) {
	if to == "" {
		return
	}
	u, err := url.Parse(to)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return
	}
	if origin := originOf(u); !s.to.origins[origin] {
		s.elsewhere = origin
		return
	}
	s.base = strings.TrimSuffix(u.String(), "/")
}

// close tells the server that the stream is over, which ends a transaction in it
// and frees the lock at once. It is a request of its own: a close that travels
// with a COMMIT makes the server lose its write lock, now and then.
func (s *stream) close() {
	if s.baton == "" || time.Since(s.heard) > idleLimit || s.to.unresponsive() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	r := newRequest(0)
	r.text = append(r.text, `{"type":"close"}`...)
	_, err := s.exchange(ctx, r.on(s.baton))
	s.forget()
	if err != nil && ctx.Err() != nil {
		s.to.silent.Store(time.Now().UnixNano())
	}
}

// closeTimeout bounds the farewell. A server that misses it ends the stream by
// itself some seconds later.
const closeTimeout = time.Second

// unresponsive reports whether a farewell was in vain lately, so that a pool that
// closes many connections waits for one of them.
func (c *Connector) unresponsive() bool {
	silent := c.silent.Load()
	return silent != 0 && time.Since(time.Unix(0, silent)) < 5*time.Second
}

// exchange sends one HTTP request and reads the answer.
func (s *stream) exchange(ctx context.Context, text []byte) (*answer, *Error) {
	if ctx.Err() != nil {
		return nil, sendError(ctx, ctx.Err(), false)
	}
	base := s.base
	if base == "" {
		base = s.to.base
	}
	d := &delivery{body: text}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v3/pipeline", nil)
	if err != nil {
		return nil, s.to.redact(sendError(ctx, err, false))
	}
	request.Body, _ = d.open()
	request.GetBody = d.open
	request.ContentLength = int64(len(text))
	request.Header["Content-Type"] = contentType
	if token := s.to.token(); token != "" {
		request.Header["Authorization"] = []string{"Bearer " + token}
	}
	response, err := s.to.client.Do(request)
	delivered := d.finish()
	if err != nil {
		return nil, s.to.redact(sendError(ctx, err, delivered))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		// What is said about it is short, or is not worth the reading.
		body, _ := io.ReadAll(io.LimitReader(response.Body, 16<<10))
		if token := s.to.token(); token != "" { // before it is shortened
			body = bytes.ReplaceAll(body, []byte(token), []byte("[secret]"))
		}
		e := statusError(response.StatusCode, response.Header.Get("Content-Type"), body)
		if !delivered {
			e.outcome = nothing
		}
		return nil, s.to.redact(e)
	}
	buffer := buffers.Get().(*bytes.Buffer)
	defer func() {
		if buffer.Cap() <= maxPooled {
			buffer.Reset()
			buffers.Put(buffer)
		}
	}()
	if n := response.ContentLength; n > 0 {
		buffer.Grow(int(min(n, s.to.maxAnswer, maxPooled)) + bytes.MinRead)
	}
	if _, err := buffer.ReadFrom(io.LimitReader(response.Body, s.to.maxAnswer+1)); err != nil {
		return nil, s.to.redact(answerError(ctx, err))
	}
	if int64(buffer.Len()) > s.to.maxAnswer {
		return nil, &Error{code: sqlbatch.CodeAnswerTooLarge, outcome: lost,
			message: "the answer has more bytes than Options.MaxAnswer allows"}
	}
	a, err := parseAnswer(buffer.Bytes())
	if err != nil {
		e := invalid("cannot read the answer: %v", err)
		if errors.Is(err, errSyntax) && !strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
			e.message = "the answer is not JSON: is this a libSQL server?"
		}
		return nil, e
	}
	for _, r := range a.replies {
		s.to.redact(r.err)
		for _, err := range r.stepErrors {
			s.to.redact(err)
		}
	}
	return a, nil
}

var contentType = []string{"application/json"}

// Buffers for answers up to this size are kept.
const maxPooled = 1 << 20

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}
