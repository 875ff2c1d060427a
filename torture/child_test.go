package torture_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// child is another process of the test binary.
type child struct {
	t      testing.TB
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	waited bool
}

func startChild(t testing.TB, role string, args ...string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), childVariable+"="+role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	c := &child{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		if !c.waited {
			_ = c.cmd.Process.Kill()
			_ = c.cmd.Wait()
		}
	})
	return c
}

// line returns the next whole line of the child's output; false at its end.
// What a killed child wrote of a line is none.
func (c *child) line() (string, bool) {
	text, err := c.out.ReadString('\n')
	return strings.TrimSuffix(text, "\n"), err == nil
}

// calls reads the calls that a working child makes until it ends, each as last
// reported, and shows every line to see.
func (c *child) calls(see func(lines int)) []call {
	var (
		made []call
		at   = map[string]int{}
	)
	for lines := 1; ; lines++ {
		text, ok := c.line()
		if !ok {
			return made
		}
		var reported call
		if !assert.NoError(c.t, json.Unmarshal([]byte(text), &reported), text) {
			return made
		}
		if i, known := at[reported.ID]; known {
			made[i] = reported
		} else {
			at[reported.ID] = len(made)
			made = append(made, reported)
		}
		see(lines)
	}
}

// callsUntilKilled kills the child a moment after it has written so many lines,
// or after its start if that is 0.
func (c *child) callsUntilKilled(lines int, moment time.Duration) []call {
	kill := func() {
		time.Sleep(moment)
		_ = c.cmd.Process.Kill()
	}
	if lines == 0 {
		kill()
	}
	made := c.calls(func(seen int) {
		if seen == lines {
			kill()
		}
	})
	c.waited = true
	_ = c.cmd.Wait()
	assert.False(c.t, c.cmd.ProcessState.Exited(), "a child ended before it was killed: %v", c.cmd.ProcessState)
	return made
}

// stop closes the child's input.
func (c *child) stop() { assert.NoError(c.t, c.in.Close()) }

// wait waits for a child that was told to stop, whose output is read, to end well.
func (c *child) wait() {
	c.waited = true
	assert.NoError(c.t, c.cmd.Wait())
}
