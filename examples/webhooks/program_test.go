package main

import (
	"bufio"
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func buildProgram(t testing.TB) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "webhooks")
	text, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", text)
	return program
}

func never(string, int) bool { return false }

// runProgram runs the program on the database at path until it ends, or kills
// it by SIGKILL after the line, the nth of its output, that kill says.
func runProgram(t testing.TB, program, path string, kill func(line string, n int) bool) (killed bool, out string) {
	t.Helper()
	run := exec.CommandContext(t.Context(), program, "-db", path)
	var complaints bytes.Buffer
	run.Stderr = &complaints
	stdout, err := run.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, run.Start())
	var text strings.Builder
	lines := bufio.NewScanner(stdout)
	for n := 1; lines.Scan(); n++ {
		text.WriteString(lines.Text() + "\n")
		if kill(lines.Text(), n) {
			require.NoError(t, run.Process.Kill())
			kill = never
		}
	}
	require.NoError(t, lines.Err())
	err = run.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true, text.String()
	}
	require.NoError(t, err, "%s%s", text.String(), complaints.String())
	return false, text.String()
}

type tableLine struct{ run, total int }

// readTable reads the table at the end of what a run printed.
func readTable(t testing.TB, out string) map[string]tableLine {
	t.Helper()
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		if err != nil {
			return -1
		}
		return n
	}
	table := make(map[string]tableLine)
	for _, match := range regexp.MustCompile(`(?m)^ *([a-z -]+?) +(\d+|-) +(\d+|-)$`).FindAllStringSubmatch(out, -1) {
		table[match[1]] = tableLine{number(match[2]), number(match[3])}
	}
	require.NotEmpty(t, table, "%s", out)
	return table
}
