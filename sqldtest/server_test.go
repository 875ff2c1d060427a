//go:build sqld

package sqldtest

import (
	"context"
	"database/sql"
	"flag"
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

	"example.com/outbox"
	_ "example.com/outbox/hrana"
	"github.com/stretchr/testify/require"
	"github.com/tursodatabase/go-libsql"
)

// server is a libSQL server of its own on free ports of 127.0.0.1.
type server struct {
	t          testing.TB
	dir        string
	http, grpc string // addresses
	args       []string
	cmd        *exec.Cmd
}

func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	return startServerIn(t, t.TempDir(), args...)
}

func startServerIn(t testing.TB, dir string, args ...string) *server {
	t.Helper()
	s := &server{t: t, dir: dir, http: freeAddress(t), grpc: freeAddress(t), args: args}
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
		s.t.Fatal("OUTBOX_SQLD does not name a libSQL server; see the package's documentation")
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(s.t, err)
	defer log.Close()
	args := append([]string{"--db-path", filepath.Join(s.dir, "data"), "--http-listen-addr", s.http, "--grpc-listen-addr", s.grpc}, s.args...)
	s.cmd = exec.Command(program, args...)
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

// freeAddress returns an address that nobody listens on. Its port is none of
// those that the system gives to outgoing connections, so that it stays free
// while the server is down.
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

// empty drops every table, so that one server serves many tests.
func (s *server) empty(t testing.TB) {
	t.Helper()
	db, err := sql.Open("libsql", s.url())
	require.NoError(t, err)
	defer db.Close()
	rows, err := db.Query(`SELECT name FROM sqlite_master WHERE type = 'table'
AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'libsql_%' ORDER BY name`) // outbox before outbox_payload
	require.NoError(t, err)
	var names []string
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(t, rows.Err())
	for _, name := range names {
		_, err := db.Exec("DROP TABLE " + name)
		require.NoError(t, err)
	}
}

// open opens a store at an address: the server's, or that of a proxy before it.
func open(t testing.TB, url string, opts *outbox.Options) *outbox.Store {
	t.Helper()
	return openOver(t, "libsql", url, opts)
}

// openOver is open by way of a driver.
func openOver(t testing.TB, driverName, url string, opts *outbox.Options) *outbox.Store {
	t.Helper()
	store, err := outbox.Open(context.Background(), driverName, url, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

// openReplica returns a store over an embedded replica of the server, in a file
// of its own.
func openReplica(t testing.TB, s *server, opts *outbox.Options) *outbox.Store {
	t.Helper()
	connector, err := libsql.NewEmbeddedReplicaConnector(filepath.Join(t.TempDir(), "replica.db"), s.url())
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	store := outbox.New(db, opts)
	require.NoError(t, store.Migrate(context.Background()))
	return store
}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := node(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, role+":", err)
			os.Exit(1)
		}
		return
	}
	// Most tests wait for servers and their time limits, not for a processor.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
