//go:build sqld

package sqldtest

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// slowly returns the address of a server behind a way on which each byte takes a
// while, as long in one direction as in the other.
func slowly(t testing.TB, s *server, roundTrip time.Duration) string {
	t.Helper()
	if roundTrip == 0 {
		return s.url()
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", s.http)
			if err != nil {
				client.Close()
				continue
			}
			go passLate(upstream, client, roundTrip/2)
			go passLate(client, upstream, roundTrip/2)
		}
	}()
	return "http://" + listener.Addr().String()
}

// passLate passes on what comes, each piece a while after it came.
func passLate(to, from net.Conn, late time.Duration) {
	type piece struct {
		bytes []byte
		due   time.Time
	}
	pieces := make(chan piece, 1000)
	go func() {
		defer to.Close()
		for piece := range pieces {
			time.Sleep(time.Until(piece.due))
			if _, err := to.Write(piece.bytes); err != nil {
				from.Close() // and drain
			}
		}
	}()
	defer close(pieces)
	for {
		buffer := make([]byte, 32<<10)
		n, err := from.Read(buffer)
		pieces <- piece{buffer[:n], time.Now().Add(late)}
		if err != nil {
			return
		}
	}
}
