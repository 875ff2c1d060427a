package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"example.com/outbox/bench/plain"
	"golang.org/x/sync/errgroup"
)

// programs is where the built programs lie, and where they make databases.
type programs struct {
	dir          string
	goqiteSchema string
}

// build builds every program into dir.
func build(ctx context.Context, dir string) (*programs, error) {
	p := &programs{dir: dir}
	goqite, err := moduleDir(ctx, "maragu.dev/goqite")
	if err != nil {
		return nil, err
	}
	p.goqiteSchema = filepath.Join(goqite, "schema_sqlite.sql")
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return buildLimit(ctx, dir) })
	group.Go(func() error { return command(ctx, "go", "build", "-o", dir, "./programs/...") })
	return p, group.Wait()
}

// buildLimit compiles the program in C with the SQLite that mattn/go-sqlite3
// ships.
func buildLimit(ctx context.Context, dir string) error {
	sqlite, err := moduleDir(ctx, "github.com/mattn/go-sqlite3")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "statements.h"), []byte(plain.Header()), 0o644); err != nil {
		return err
	}
	return command(ctx, "gcc", "-O2", "-o", filepath.Join(dir, "limit"), "-I", dir, "-I", sqlite,
		"limit/limit.c", "limit/measure.c", filepath.Join(sqlite, "sqlite3-binding.c"), "-lpthread", "-ldl", "-lm")
}

// moduleDir is where a module lies, once it has been downloaded.
func moduleDir(ctx context.Context, module string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", module).Output()
	var found struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &found); jsonErr == nil && found.Error != "" {
		err = errors.New(found.Error)
	} else if err == nil {
		err = jsonErr
	}
	if err != nil {
		return "", fmt.Errorf("download %s: %w", module, err)
	}
	return found.Dir, nil
}

func command(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
