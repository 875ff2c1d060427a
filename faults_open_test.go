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
			open := func(ctx context.Context) error {
				opts := &outbox.Options{Synchronous: outbox.Normal, Logger: slog.New(slog.DiscardHandler)}
				store, err := outbox.Open(ctx, driverName, file, opts)
				if err != nil {
					return err
				}
				outboxtest.Check(t, store)
				return store.Close()
			}
			reset()
			before := objects(t, plain)
			require.NoError(t, open(t.Context()))
			whole := objects(t, plain)
			goroutines := runtime.NumGoroutine()

			total := 0
			for _, fault := range faults {
				for n, met := 1, true; met; n++ {
					reset()
					ctx, cancel := context.WithCancel(t.Context())
					recorded.arm(n, fault, cancel)
					err := open(ctx)
					met = recorded.disarm()
					cancel()
					where := fmt.Sprintf("call %d is %s: %v", n, fault, err)
					if err != nil {
						// What follows the migration can fail, too.
						require.Contains(t, [][]string{before, whole}, objects(t, plain), where)
						require.True(t, explains(err, fault) || errors.Is(err, outbox.ErrCommitUnknown), where)
						require.NoError(t, open(t.Context()), where)
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
