//go:build sqld

package hrana_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// server is a libSQL server of its own on free ports of 127.0.0.1. OUTBOX_SQLD
// names the program.
type server struct {
	t          testing.TB
	dir        string
	http, grpc string // addresses
	args       []string
	cmd        *exec.Cmd
}

func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir(), http: freeAddress(t), grpc: freeAddress(t), args: args}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) url() string { return "http://" + s.http }

// start starts the server on the data it had before, and waits until it answers.
func (s *server) start() {
	s.t.Helper()
	program := os.Getenv("OUTBOX_SQLD")
	if program == "" {
		s.t.Fatal("OUTBOX_SQLD does not name a libSQL server")
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(s.t, err)
	defer log.Close()
	s.cmd = exec.Command(program, append([]string{"--db-path", filepath.Join(s.dir, "data"),
		"--http-listen-addr", s.http, "--grpc-listen-addr", s.grpc}, s.args...)...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	require.NoError(s.t, s.cmd.Start())
	for range 1000 {
		if response, err := http.Get(s.url() + "/health"); err == nil {
			response.Body.Close()
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	text, _ := os.ReadFile(log.Name())
	s.t.Fatalf("the server does not answer:\n%s", text)
}

// kill ends the server with SIGKILL.
func (s *server) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// freeze stops the server where it is, with every connection open, until thaw.
func (s *server) freeze() {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGSTOP))
}

func (s *server) thaw() {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGCONT))
}

// freeAddress returns an address that nobody listens on, with a port that the
// system does not give to outgoing connections.
func freeAddress(t testing.TB) string {
	t.Helper()
	const first, last = 10_000, 32_000
	for range 1000 {
		address := fmt.Sprintf("127.0.0.1:%d", first+rand.N(last-first))
		if _, taken := takenAddresses.LoadOrStore(address, true); taken {
			continue
		}
		if listener, err := net.Listen("tcp", address); err == nil {
			listener.Close()
			return address
		}
	}
	require.Fail(t, "no port is free")
	return ""
}

var takenAddresses sync.Map

func open(t testing.TB, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("hrana", url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}
