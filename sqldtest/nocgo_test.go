//go:build sqld

package sqldtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAProgramWithoutCgo(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "server")
	build := exec.Command("go", "build", "-o", program, "./server")
	build.Dir = filepath.Join("..", "examples")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = exec.Command(program, "-db", startServer(t).url()).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, "greet: \"hello\"\n", string(out))
}
