package outbox_test

import (
	"bytes"
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestForeignAndNewerDatabasesAreLeftAsTheyAre(t *testing.T) {
	ctx := context.Background()
	for name, test := range map[string]struct {
		ddl  []string
		want error
	}{
		"a table of another shape":        {[]string{"CREATE TABLE outbox (id INTEGER PRIMARY KEY, message TEXT)", "INSERT INTO outbox VALUES (1, 'x')"}, outbox.ErrForeignTable},
		"a view":                          {[]string{"CREATE TABLE t (dispatch_key)", "CREATE VIEW outbox AS SELECT * FROM t"}, outbox.ErrForeignTable},
		"an old table with more":          {[]string{strings.Replace(oldTable, "node TEXT", "node TEXT, tenant TEXT", 1)}, outbox.ErrForeignTable},
		"a payload table":                 {[]string{"CREATE TABLE outbox_payload (x)"}, outbox.ErrForeignTable},
		"a version table":                 {[]string{"CREATE TABLE outbox_schema (x)"}, outbox.ErrForeignTable},
		"an index of one of ours":         {[]string{"CREATE TABLE t (x)", "CREATE INDEX outbox_due ON t (x)"}, outbox.ErrForeignTable},
		"an old table of other types":     {[]string{strings.Replace(oldTable, "ordinal INTEGER", "ordinal TEXT", 1)}, outbox.ErrForeignTable},
		"an old table with keys twice":    {[]string{strings.Replace(oldTable, " PRIMARY KEY", "", 1), oldRow("a", nil), oldRow("a", nil)}, outbox.ErrForeignTable},
		"an old table beside another":     {[]string{oldTable, "CREATE TABLE outbox_migrating (x)"}, outbox.ErrForeignTable},
		"a foreign key without a column":  {[]string{oldTable, "CREATE TABLE child (k TEXT REFERENCES outbox)"}, outbox.ErrForeignTable},
		"a newer schema with more to say": {[]string{"CREATE TABLE outbox_schema (version INTEGER NOT NULL, note TEXT)", "INSERT INTO outbox_schema VALUES (2, 'x')"}, outbox.ErrNewerSchema},
		"a newer schema":                  {[]string{"CREATE TABLE outbox_schema (version INTEGER NOT NULL)", "INSERT INTO outbox_schema VALUES (2)"}, outbox.ErrNewerSchema},
		"a newer schema with table":       {[]string{"CREATE TABLE outbox (other)", "CREATE TABLE outbox_schema (version INTEGER NOT NULL)", "INSERT INTO outbox_schema VALUES (99)"}, outbox.ErrNewerSchema},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "foreign.db")
			db, err := sql.Open("libsql", "file:"+file)
			require.NoError(t, err)
			for _, statement := range test.ddl {
				_, err := db.Exec(statement)
				require.NoError(t, err)
			}
			require.NoError(t, db.Close())
			before, err := os.ReadFile(file)
			require.NoError(t, err)

			_, err = outbox.Open(ctx, "libsql", "file:"+file, nil)
			require.ErrorIs(t, err, test.want)
			after, err := os.ReadFile(file)
			require.NoError(t, err)
			require.True(t, bytes.Equal(before, after), "the file is unchanged")
			eventually(t, func() bool { // the driver closes files on its own time
				files, err := filepath.Glob(file + "*")
				return err == nil && len(files) == 1
			}, "no journal is left")

			db, err = sql.Open("libsql", "file:"+file)
			require.NoError(t, err)
			defer db.Close()
			require.ErrorIs(t, outbox.New(db, nil).Migrate(ctx), test.want)
		})
	}
}

func TestHostMayRunTheSchemaItself(t *testing.T) {
	db := openHost(t)
	for range 2 {
		for statement := range strings.SplitSeq(strings.TrimSpace(outbox.Schema()), ";\n\n") {
			_, err := db.Exec(statement)
			require.NoError(t, err, statement)
		}
	}
	store := outbox.New(db, nil)
	ctx := context.Background()
	_, err := store.Append(ctx, row(uuid.New(), 0))
	require.NoError(t, err)
	require.NoError(t, store.Migrate(ctx))
	outboxtest.Check(t, store)
}

func TestMigrateMendsWhatIsMissing(t *testing.T) {
	file := "file:" + filepath.Join(t.TempDir(), "outbox.db")
	store := open(t, file, nil)
	ctx := context.Background()
	require.NoError(t, store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
		_, err := tx.ExecContext(ctx, "DROP INDEX outbox_due")
		return err
	}))
	_, err := store.Claim(ctx, 1)
	require.Error(t, err)
	require.NoError(t, store.Migrate(ctx))
	_, err = store.Claim(ctx, 1)
	require.NoError(t, err)
}
