package torture_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	_ "github.com/tursodatabase/go-libsql"
)

// The tests of crashes, power loss and contention take longer on request:
//
//	go test -run Crash -kills 5000 -timeout 0
//	go test -run PowerLoss -frames 900 -timeout 0
//	go test -run Contention -contention 1m
//	go test -run 'Crash|PowerLoss|Contention' -seed 42
var (
	kills      = flag.Int("kills", 100, "how many processes the crash tests kill, over all their settings")
	contention = flag.Duration("contention", 5*time.Second, "how long the contention tests run in each journal mode")
	frames     = flag.Int("frames", 120, "how many frames of each log the power loss test cuts; at most 900")
	seed       = flag.Uint64("seed", 0, "seed of the crash, power loss and contention tests; 0: a new one")
)

// children are the roles in which the test binary runs itself as another
// process. A child works until its input ends, and writes to out.
var children = map[string]func(args []string, in *bufio.Scanner, out io.Writer) error{
	"work":      workUntilToldToStop,
	"hold-lock": holdLocksAtRandom,
}

const childVariable = "OUTBOX_TORTURE_CHILD"

func TestMain(m *testing.M) {
	role := os.Getenv(childVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := children[role](os.Args[1:], bufio.NewScanner(os.Stdin), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		os.Exit(1)
	}
}

// newRand returns the source of a test's random choices, and logs its seed.
func newRand(t testing.TB) *rand.Rand {
	chosen := *seed
	if chosen == 0 {
		chosen = rand.Uint64()
	}
	t.Logf("to choose the same again: -seed %d", chosen)
	return rand.New(rand.NewPCG(chosen, 0))
}
