package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// screen shows progress. Its calls are not made at the same time.
type screen interface {
	staged(n, of int)
	settled(n, of int)
	note(text string)
	close()
}

// newScreen returns a progress bar if out is a terminal, else plain lines.
func newScreen(out io.Writer, rows int) screen {
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return &bar{out: out, ProgressBar: progressbar.NewOptions(rows,
			progressbar.OptionSetWriter(out),
			progressbar.OptionSetDescription("staging"),
			progressbar.OptionSetWidth(30),
			progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(false),
			progressbar.OptionUseANSICodes(true),
			progressbar.OptionThrottle(50*time.Millisecond),
			progressbar.OptionClearOnFinish(),
		)}
	}
	return &lines{out: out}
}

// bar is a screen for people who watch. Nothing depends on what it shows, so
// errors of the terminal are no errors of the run.
type bar struct {
	*progressbar.ProgressBar
	out io.Writer
}

func (b *bar) staged(n, of int) {
	if n < of {
		b.Describe(fmt.Sprintf("staged %d/%d, delivering", n, of))
	} else {
		b.Describe("delivering")
	}
}

func (b *bar) settled(n, _ int) {
	_ = b.Set(n)
}

func (b *bar) note(text string) {
	_ = b.Clear()
	fmt.Fprintln(b.out, text)
}

// close takes the bar away, also if it did not get to its end.
func (b *bar) close() {
	_ = b.Clear()
	_ = b.Exit()
}

// lines is a screen for logs: a line for every tenth of the work.
type lines struct {
	out                     io.Writer
	stagedStep, settledStep int
}

func (l *lines) staged(n, of int) {
	if step := 10 * n / of; step != l.stagedStep {
		l.stagedStep = step
		fmt.Fprintf(l.out, "staged %d of %d deliveries\n", n, of)
	}
}

func (l *lines) settled(n, of int) {
	if step := 10 * n / of; step != l.settledStep {
		l.settledStep = step
		fmt.Fprintf(l.out, "settled %d of %d rows\n", n, of)
	}
}

func (l *lines) note(text string) { fmt.Fprintln(l.out, text) }

func (l *lines) close() {}
