package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"example.com/outbox/bench/workload"
)

// measure runs a measurement on all of its systems. Each has a process, which
// waits while the others measure.
func (p *programs) measure(ctx context.Context, m measurement, rounds int) (map[system][]workload.Figures, error) {
	if m.rounds > 0 {
		rounds = min(rounds, m.rounds)
	}
	ctx, cancel := context.WithCancel(ctx)
	var running []*process
	defer func() { // ends what an error leaves running
		cancel()
		for _, process := range running {
			process.cmd.Wait()
		}
	}()
	for _, system := range m.systems {
		process, err := p.start(ctx, system, m.spec)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", system, err)
		}
		running = append(running, process)
	}
	figures := make(map[system][]workload.Figures)
	for round := range rounds {
		for i := range running {
			process := running[(i+round)%len(running)] // nobody is always first
			measured, err := process.round()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", process.system, err)
			}
			figures[process.system] = append(figures[process.system], measured)
		}
	}
	for _, process := range running {
		if err := process.end(); err != nil {
			return nil, fmt.Errorf("%s: %w", process.system, err)
		}
	}
	return figures, nil
}

// process is a program that measures one system.
type process struct {
	system system
	cmd    *exec.Cmd
	dir    string
	ask    io.WriteCloser
	answer *bufio.Scanner
}

// start returns once the process has made ready.
func (p *programs) start(ctx context.Context, s system, spec workload.Spec) (*process, error) {
	dir, err := os.MkdirTemp(p.dir, string(s)+"-")
	if err != nil {
		return nil, err
	}
	args := append(spec.Args(), "-system="+string(s), "-dir="+dir)
	cmd := exec.CommandContext(ctx, filepath.Join(p.dir, s.program()), args...)
	cmd.Env = append(os.Environ(), "GOQITE_SCHEMA="+p.goqiteSchema)
	cmd.Stderr = os.Stderr
	ask, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := &process{s, cmd, dir, ask, bufio.NewScanner(out)}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if !started.answer.Scan() {
		return nil, started.failure()
	}
	return started, nil
}

func (p *process) round() (figures workload.Figures, err error) {
	if _, err := io.WriteString(p.ask, "\n"); err != nil {
		return nil, errors.Join(err, p.failure())
	}
	if !p.answer.Scan() {
		return nil, p.failure()
	}
	return figures, json.Unmarshal(p.answer.Bytes(), &figures)
}

// failure is why a process ended that should have answered; the rest of it
// stands on standard error.
func (p *process) failure() error {
	if err := p.cmd.Wait(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

func (p *process) end() error {
	return errors.Join(p.ask.Close(), p.cmd.Wait(), os.RemoveAll(p.dir))
}
