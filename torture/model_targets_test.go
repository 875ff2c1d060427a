package torture

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// target is a kind of database.
type target struct {
	// fresh returns the name of an empty database. What it needs is gone when
	// the sequence ends.
	fresh func(t testing.TB, r *rapid.T) (dsn string)

	// crash is called in the middle of a transaction of the host's, and returns
	// the name of the database that is found after a crash at this moment: a new
	// one, or the old one that came back.
	crash func(t testing.TB, r *rapid.T, dsn string) string

	driver          string // "": libsql
	hostConnections int    // of the host's pool; 0: any number
	isolated        bool   // reads do not wait for the transactions of others
}

func (p target) driverName() string { return cmp.Or(p.driver, "libsql") }

func TestModelInMemory(t *testing.T) {
	t.Parallel()
	checkModel(t, target{
		fresh: func(testing.TB, *rapid.T) string {
			return "file:model-" + uuid.NewString() + "?mode=memory&cache=shared"
		},
		// What is in memory does not survive; only the connection is lost.
		crash:           func(_ testing.TB, _ *rapid.T, dsn string) string { return dsn },
		hostConnections: 1, // connections to one database in memory lock whole tables
	})
}

func TestModelOnFile(t *testing.T) {
	t.Parallel()
	checkModel(t, target{
		fresh: func(t testing.TB, r *rapid.T) string {
			dir, err := os.MkdirTemp(t.TempDir(), "")
			require.NoError(r, err)
			r.Cleanup(func() { require.NoError(r, os.RemoveAll(dir)) }) // there may be many
			return "file:" + filepath.Join(dir, "outbox.db")
		},
		crash: func(t testing.TB, r *rapid.T, dsn string) string {
			from := dsn[len("file:"):]
			dir, err := os.MkdirTemp(filepath.Dir(from), "crashed")
			require.NoError(r, err)
			to := filepath.Join(dir, "outbox.db")
			for _, file := range []string{"", "-wal"} { // what is shared of the WAL, -shm, is made anew
				data, err := os.ReadFile(from + file)
				require.NoError(r, err)
				require.NoError(r, os.WriteFile(to+file, data, 0o600))
			}
			return "file:" + to
		},
		isolated: true,
	})
}
