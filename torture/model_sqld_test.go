//go:build sqld

package torture

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	_ "example.com/outbox/hrana"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestModelOnServer needs a libSQL server, named by OUTBOX_SQLD. A crash kills
// it, and starts it again on the data that it left.
func TestModelOnServer(t *testing.T) {
	for _, driver := range []string{"libsql", "hrana"} {
		t.Run(driver, func(t *testing.T) { checkModelOnServer(t, driver) })
	}
}

func checkModelOnServer(t *testing.T, driver string) {
	t.Parallel()
	server := &modelServer{dir: t.TempDir(), http: freePort(t), grpc: freePort(t)}
	server.start(t)
	t.Cleanup(server.kill)
	checkModel(t, target{
		driver: driver,
		fresh:  func(testing.TB, *rapid.T) string { return "http://" + server.http }, // which the machine empties
		crash: func(t testing.TB, r *rapid.T, dsn string) string {
			server.kill()
			server.start(r)
			return dsn
		},
		isolated: true,
	})
}

type modelServer struct {
	dir, http, grpc string
	cmd             *exec.Cmd
}

// start returns when the server answers.
func (s *modelServer) start(t require.TestingT) {
	program := os.Getenv("OUTBOX_SQLD")
	require.NotEmpty(t, program, "OUTBOX_SQLD does not name a libSQL server")
	s.cmd = exec.Command(program, "--db-path", filepath.Join(s.dir, "data"), "--http-listen-addr", s.http, "--grpc-listen-addr", s.grpc)
	require.NoError(t, s.cmd.Start())
	require.Eventually(t, func() bool {
		response, err := http.Get("http://" + s.http + "/health")
		if err == nil {
			response.Body.Close()
		}
		return err == nil
	}, 30*time.Second, 5*time.Millisecond, "the server does not answer")
}

func (s *modelServer) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// freePort returns an address that nobody listens on. Its port is none of those
// that the system gives to outgoing connections, so that it stays free while the
// server is down.
func freePort(t testing.TB) string {
	for range 1000 {
		address := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.N(22_000))
		if listener, err := net.Listen("tcp", address); err == nil {
			listener.Close()
			return address
		}
	}
	require.Fail(t, "no port is free")
	return ""
}
