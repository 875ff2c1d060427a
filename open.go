package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// target is the kind of database behind a Store.
type target int

const (
	hostDatabase   target = iota // given to New: anything
	fileDatabase                 // a local file
	memoryDatabase               // in memory of this process
	serverDatabase               // a libSQL server
)

// maxConnections bounds the pool of a database that Open opened. One
// connection writes at a time; the others read.
const maxConnections = 8

// Open opens a database with a driver that the program has registered with
// database/sql, gives every new connection its settings, and migrates.
//
// The data source name is the driver's own. One that starts with "file:" is a
// URI, where %, ? and # of a path must be escaped. ":memory:" and "file::memory:"
// are in memory: each Open has its own database, which lasts until Close, while
// "file:NAME?mode=memory&cache=shared" is shared by name within the process.
// (Where SQLite was built without shared cache, both are made in its VFS memdb.)
// http://, https://, libsql://, ws:// and wss:// are libSQL servers, which keep
// their own settings. Everything else is a file: Open puts it in WAL mode, and
// each connection gets Options.Synchronous.
//
// Open returns ErrForeignTable or ErrNewerSchema, with nothing changed, for a
// database that is not the store's to use, and ErrInvalid for an empty name. If
// it fails, nothing is left open.
func Open(ctx context.Context, driverName, dataSourceName string, opts *Options) (*Store, error) {
	if dataSourceName == "" {
		return nil, &InvalidError{Index: -1, Field: "dataSourceName", Reason: "is empty"}
	}
	if opts == nil {
		opts = &Options{}
	}
	if opts.Synchronous != Full && opts.Synchronous != Normal {
		return nil, &InvalidError{Index: -1, Field: "Options.Synchronous", Reason: "is neither Full nor Normal"}
	}
	kind, name := classify(dataSourceName)
	base, err := baseConnector(driverName, name)
	if err != nil {
		return nil, &opError{"open", err}
	}
	store := newStore(nil, kind, opts)
	store.sharedCache = kind == memoryDatabase && name == dataSourceName
	store.connector = &connector{
		Connector: base, kind: kind, synchronous: opts.Synchronous,
		busyTimeout: store.busyTimeout, logger: store.logger,
	}
	store.db = sql.OpenDB(store.connector)
	if kind == memoryDatabase {
		store.db.SetMaxOpenConns(1) // SQLite's shared cache locks whole tables between connections
		store.db.SetMaxIdleConns(1)
		err = store.explain(ctx, "open", store.connector.openKeeper(ctx, driverName, name))
	} else {
		store.db.SetMaxOpenConns(maxConnections)
		store.db.SetMaxIdleConns(maxConnections)
	}
	if err == nil {
		err = store.prepare(ctx)
	}
	if err != nil {
		store.Close()
		return nil, err
	}
	return store, nil
}

// prepare makes an opened database ready. The journal mode is a change of the
// file, so it waits until it is known to be the store's.
func (s *Store) prepare(ctx context.Context) error {
	if err := s.Migrate(ctx); err != nil || s.opened != fileDatabase {
		return err
	}
	return s.setJournalMode(ctx)
}

func (s *Store) setJournalMode(ctx context.Context) error {
	mode, err := read(ctx, s, "open", func(tx Tx) (mode string, err error) {
		err = tx.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode)
		return mode, err
	})
	if err == nil && mode != "wal" {
		err = fmt.Errorf("outbox: open: journal mode is %q and cannot be set to wal", mode)
	}
	return err
}

// classify tells the kind of a data source name, and replaces one of a private
// in-memory database by a unique name that several connections can share: so
// the data outlives a connection that has to be thrown away.
func classify(dataSourceName string) (target, string) {
	name, query, _ := strings.Cut(dataSourceName, "?")
	for _, scheme := range []string{"http://", "https://", "libsql://", "ws://", "wss://"} {
		if strings.HasPrefix(strings.ToLower(name), scheme) {
			return serverDatabase, dataSourceName
		}
	}
	private := name == ":memory:" || name == "file::memory:"
	switch {
	case strings.Contains(query, "vfs=memdb"):
		return memoryDatabase, dataSourceName
	case !private && !strings.Contains(query, "mode=memory"):
		return fileDatabase, dataSourceName
	case private || !strings.Contains(query, "cache=shared"):
		dataSourceName = withParameters("file:outbox-"+uuid.NewString(), "mode=memory&cache=shared", query)
	}
	return memoryDatabase, dataSourceName
}

// inMemdb is the name of a shared in-memory database for SQLite without shared
// cache, which has them in a file system of its own,
// see https://www.sqlite.org/src/file/src/memdb.c.
func inMemdb(dataSourceName string) string {
	name, query, _ := strings.Cut(strings.TrimPrefix(dataSourceName, "file:"), "?")
	return withParameters("file:/"+strings.TrimLeft(name, "/"), "vfs=memdb", query)
}

// withParameters appends the parameters that say where a database is, and those
// of query, which may be the driver's, that say something else.
func withParameters(name, where, query string) string {
	name += "?" + where
	for parameter := range strings.SplitSeq(query, "&") {
		key, _, _ := strings.Cut(parameter, "=")
		if key != "" && key != "mode" && key != "cache" {
			name += "&" + parameter
		}
	}
	return name
}
