package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"testing"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/stretchr/testify/require"
)

func TestOpenThatMeetsAFaultLeavesNothingOpenAndNothingHalfMigrated(t *testing.T) {
	for name, statements := range map[string][]string{
		"a new file": nil,
		"an old file": {
			oldTable, oldRow("a", nil), oldRow("b", map[string]string{"visible_after": "'soon'"}),
			"CREATE TABLE child (k TEXT REFERENCES outbox (dispatch_key) ON DELETE CASCADE)", "INSERT INTO child VALUES ('a')",
			"CREATE INDEX by_type ON outbox (activity_type)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := "file:" + filepath.Join(t.TempDir(), "outbox.db")
			recorded := &recorder{parks: true, deep: true}
			driverName := registerRecorded(recorded)
			plain, err := sql.Open("libsql", file)
			require.NoError(t, err)
			defer plain.Close()
			plain.SetMaxOpenConns(1)
			_, err = plain.Exec("PRAGMA synchronous = OFF") // this is not about power
			require.NoError(t, err)
			reset := func() {
				t.Helper()
				for _, table := range []string{"child", "outbox", "outbox_payload", "outbox_schema"} {
					_, err := plain.Exec("DROP TABLE IF EXISTS " + table)
					require.NoError(t, err)
				}
				for _, statement := range statements {
					_, err := plain.Exec(statement)
					require.NoError(t, err)
				}
			}
			opts := &outbox.Options{Synchronous: outbox.Normal, Logger: slog.New(slog.DiscardHandler)}
			// openAt opens the file with a fault at the n-th call of the driver.
			openAt := func(n int, fault fault) (met bool, err error) {
				t.Helper()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				recorded.arm(n, fault, cancel)
				store, err := outbox.Open(ctx, driverName, file, opts)
				met = recorded.disarm()
				if err == nil {
					outboxtest.Check(t, store)
					require.NoError(t, store.Close())
				}
				return met, err
			}
			reset()
			before := objects(t, plain)
			_, err = openAt(0, none)
			require.NoError(t, err)
			whole := objects(t, plain)
			goroutines := runtime.NumGoroutine()

			total := 0
			for _, fault := range faults {
				for n, met := 1, true; met; n++ {
					reset()
					met, err = openAt(n, fault)
					where := fmt.Sprintf("call %d is %s: %v", n, fault, err)
					if err != nil {
						// What follows the migration can fail, too.
						require.Contains(t, [][]string{before, whole}, objects(t, plain), where)
						require.True(t, explains(err, fault) || errors.Is(err, outbox.ErrCommitUnknown), where)
						_, err = openAt(0, none)
						require.NoError(t, err, where)
					}
					require.Equal(t, whole, objects(t, plain), where)
					eventually(t, func() bool { return recorded.connections() == 0 }, "all connections are closed: "+where)
					total++
				}
			}
			t.Log("faults:", total)
			eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines }, "goroutines end")
		})
	}
}

func TestCloseThatMeetsAFaultClosesTheRest(t *testing.T) {
	for _, fault := range []fault{refused, answerless, panicking, panickingLate} {
		recorded := &recorder{deep: true}
		name := "file:" + filepath.Join(t.TempDir(), "outbox.db")
		store, err := outbox.Open(t.Context(), registerRecorded(recorded), name, &outbox.Options{Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		require.NoError(t, store.Update(t.Context(), func(context.Context, outbox.Tx) error {
			_, err := store.CountClaimed(context.Background(), "default") // on another connection
			return err
		}))
		require.Equal(t, 2, recorded.connections())
		recorded.arm(1, fault, nil)
		require.ErrorContains(t, store.Close(), errTold.Error(), fault)
		require.True(t, recorded.disarm())
		require.Zero(t, recorded.connections())
		require.NoError(t, store.Close())
		_, err = store.Claim(t.Context(), 1)
		require.ErrorIs(t, err, outbox.ErrClosed)
	}
}

// objects returns the schema of a database, in order.
func objects(t *testing.T, db *sql.DB) (lines []string) {
	t.Helper()
	rows, err := db.Query("SELECT CAST(type || ' ' || name || ' ' || ifnull(sql, '') AS BLOB) FROM sqlite_master ORDER BY name")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var line []byte
		require.NoError(t, rows.Scan(&line))
		lines = append(lines, string(line))
	}
	require.NoError(t, rows.Err())
	return lines
}
