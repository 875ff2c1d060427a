package hrana_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"example.com/outbox/hrana"
	"example.com/outbox/sqlbatch"
	"github.com/stretchr/testify/require"
)

// cutter is a connection that breaks after so many bytes, in one direction.
type cutter struct {
	net.Conn
	writes, reads int // bytes left; -1: no end
}

var errCut = errors.New("cut")

func (c *cutter) Write(p []byte) (int, error) {
	if c.writes >= 0 {
		if len(p) > c.writes {
			n, _ := c.Conn.Write(p[:c.writes])
			c.writes = 0
			c.Conn.Close()
			return n, errCut
		}
		c.writes -= len(p)
	}
	return c.Conn.Write(p)
}

func (c *cutter) Read(p []byte) (int, error) {
	if c.reads >= 0 {
		if c.reads == 0 {
			c.Conn.Close()
			return 0, io.ErrUnexpectedEOF
		}
		n, err := c.Conn.Read(p[:min(len(p), c.reads)])
		c.reads -= n
		return n, err
	}
	return c.Conn.Read(p)
}

// cutting returns a transport whose connections break.
func cutting(writes, reads int) http.RoundTripper {
	return &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return &cutter{conn, writes, reads}, err
	}}
}

func TestARequestCutAnywhereIsNeverTakenForUndoneIfItWasDone(t *testing.T) {
	f := startFake(t, nil)
	done, notDone := 0, 0
	query := "INSERT " + strings.Repeat("x", 6000) // longer than what net/http writes at once
	for n := 0; ; n += 1 + n/50 {
		db := openFake(t, f, &hrana.Options{Transport: cutting(n, -1)})
		f.seen()
		_, err := db.Exec(query)
		if err == nil {
			break
		}
		require.NotEqual(t, sqlbatch.NothingDone(err), sqlbatch.Lost(err))
		seen := f.seen()
		if sqlbatch.NothingDone(err) {
			require.Empty(t, seen)
			notDone++
		}
		done += len(seen)
	}
	require.Zero(t, done)
	require.Greater(t, notDone, 50)
}

func TestAnAnswerCutAnywhereIsLost(t *testing.T) {
	f := startFake(t, nil)
	for n := 1; ; n++ { // 0 bytes break before the request is sent
		db := openFake(t, f, &hrana.Options{Transport: cutting(-1, n)})
		_, err := db.Exec("INSERT")
		if err == nil {
			require.Greater(t, n, 200)
			break
		}
		require.True(t, sqlbatch.Lost(err), "%d: %v", n, err)
		require.Equal(t, sqlbatch.CodeAnswerLost, sqlbatch.Code(err), "%d: %v", n, err)
	}
}

// late is a transport that gives a response whose body ends too early, without
// an error, as a proxy may that buffers.
type late struct{ left int }

func (l late) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		response.Body = io.NopCloser(bytes.NewReader(body[:min(len(body), l.left)]))
	}
	return response, err
}

func TestAnAnswerThatEndsTooEarlyIsLost(t *testing.T) {
	f := startFake(t, nil)
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for n := 0; ; n++ {
		db := openFake(t, f, &hrana.Options{Transport: late{n}})
		_, err := db.Exec("INSERT")
		if err == nil {
			require.Greater(t, n, 200)
			break
		}
		require.True(t, sqlbatch.Lost(err), "%d: %v", n, err)
		require.Equal(t, sqlbatch.CodeAnswerInvalid, sqlbatch.Code(err), "%d: %v", n, err)
	}
}
