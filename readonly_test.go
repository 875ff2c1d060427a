package outbox_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// readAsNobody opens a store as a user who owns nothing, and tells what becomes
// of its calls.
func readAsNobody(args []string, _ *bufio.Scanner, out io.Writer) error {
	if os.Geteuid() == 0 {
		if err := syscall.Setuid(65534); err != nil {
			return err
		}
	}
	ctx := context.Background()
	store, err := outbox.Open(ctx, "libsql", args[0], nil)
	if err != nil {
		fmt.Fprintln(out, meaning(err))
		return nil
	}
	defer store.Close()
	var told []string
	for _, call := range []func() error{
		func() error {
			rows, err := store.List(ctx, outbox.Filter{})
			if err == nil && len(rows) != 100 {
				err = fmt.Errorf("%d rows", len(rows))
			}
			return err
		},
		func() error { _, err := store.PendingRoutes(ctx); return err },
		func() error { _, err := store.Claim(ctx, 1); return err },
		func() error { _, err := store.Append(ctx, row(uuid.New(), 0)); return err },
		func() error { return store.Migrate(ctx) },
	} {
		told = append(told, meaning(call()))
	}
	fmt.Fprintln(out, strings.Join(told, " "))
	return nil
}

// meaning is the name of what an error means.
func meaning(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, outbox.ErrReadOnly):
		return "read-only"
	}
	return err.Error()
}

// What the documentation of Open says of files and folders that cannot be
// written.
func TestFileThatCannotBeWrittenCanBeReadAsOpenSays(t *testing.T) {
	const (
		written = "ok ok ok ok ok"
		read    = "ok ok read-only read-only ok" // reads, and a Migrate with nothing to do
		refused = "read-only"
	)
	for _, test := range []struct {
		name         string
		inWAL, inUse bool
		folder, file os.FileMode
		parameters   string
		want         string
	}{
		{"may be written", true, false, 0o777, 0o666, "", written},
		{"mode=ro", true, false, 0o777, 0o666, "?mode=ro", read},
		{"mode=ro, not in WAL mode", false, false, 0o777, 0o666, "?mode=ro", read},
		{"file", true, false, 0o777, 0o444, "", read},
		{"file, mode=ro", true, false, 0o777, 0o444, "?mode=ro", read},
		{"file, not in WAL mode", false, false, 0o777, 0o444, "", refused},
		{"file, not in WAL mode, mode=ro", false, false, 0o777, 0o444, "?mode=ro", read},
		{"folder", true, false, 0o555, 0o666, "", refused},
		{"folder, mode=ro", true, false, 0o555, 0o666, "?mode=ro", refused},
		{"folder, immutable", true, false, 0o555, 0o666, "?immutable=1", read},
		{"folder and file, immutable", true, false, 0o555, 0o444, "?mode=ro&immutable=1", read},
		{"folder, not in WAL mode", false, false, 0o555, 0o666, "", refused},
		{"folder, not in WAL mode, mode=ro", false, false, 0o555, 0o666, "?mode=ro", read},
		{"folder and file, in use by another process", true, true, 0o555, 0o444, "?mode=ro", read},
	} {
		t.Run(test.name, func(t *testing.T) {
			top := t.TempDir()
			folder := filepath.Join(top, "mode=ro&immutable=1") // which is a path, and says nothing
			require.NoError(t, os.Mkdir(folder, 0o700))
			for _, above := range []string{top, filepath.Dir(top)} {
				require.NoError(t, os.Chmod(above, 0o755))
			}
			file := filepath.Join(folder, "outbox.db")
			content := makeStoreFile(t, file)
			if !test.inWAL {
				content[18], content[19] = 1, 1
				require.NoError(t, os.WriteFile(file, content, 0o600))
			}
			if test.inUse {
				require.NoError(t, open(t, "file:"+file, nil).Migrate(t.Context()))
				for _, beside := range []string{"-wal", "-shm"} {
					require.NoError(t, os.Chmod(file+beside, 0o444))
				}
			}
			require.NoError(t, os.Chmod(file, test.file))
			require.NoError(t, os.Chmod(folder, test.folder))
			defer os.Chmod(folder, 0o700)
			reader := startChild(t, "read", "file:"+file+test.parameters)
			reader.expect(test.want)
			reader.finish()
		})
	}
}
