package outbox_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// children are the roles in which the test binary runs itself as another
// process. A child reads lines on its standard input and answers on its output.
var children = map[string]func(args []string, in *bufio.Scanner, out io.Writer) error{
	"hold":  holdLock,
	"work":  workOnFile,
	"open":  openOnce,
	"stage": stageUntilKilled,
	"fill":  fillFile,
	"read":  readAsNobody,
}

const childVariable = "OUTBOX_TEST_CHILD"

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

// child is another process of the test binary.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	waited bool
}

func startChild(t *testing.T, role string, args ...string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), childVariable+"="+role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	c := &child{t: t, cmd: cmd, in: in, out: bufio.NewScanner(out)}
	t.Cleanup(func() {
		if !c.waited {
			_ = c.cmd.Process.Kill()
			_ = c.cmd.Wait()
		}
	})
	return c
}

// expect waits for a line of the child's.
func (c *child) expect(line string) {
	c.t.Helper()
	require.True(c.t, c.out.Scan(), "the child ended before it said %q", line)
	require.Equal(c.t, line, c.out.Text())
}

// finish closes the child's input and waits for it to end well.
func (c *child) finish() {
	c.t.Helper()
	require.NoError(c.t, c.in.Close())
	for c.out.Scan() {
		continue
	}
	c.waited = true
	require.NoError(c.t, c.cmd.Wait())
}

// kill ends the child with SIGKILL.
func (c *child) kill() {
	c.t.Helper()
	require.NoError(c.t, c.cmd.Process.Kill())
	c.waited = true
	_ = c.cmd.Wait()
}

// holdLock takes the write lock of a file and holds it until its input ends.
func holdLock(args []string, in *bufio.Scanner, out io.Writer) error {
	db, err := sql.Open("libsql", args[0])
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := db.Conn(context.Background())
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, statement := range args[1:] {
		if _, err := conn.ExecContext(context.Background(), statement); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "held")
	for in.Scan() {
		continue
	}
	_, err = conn.ExecContext(context.Background(), "ROLLBACK")
	return err
}
