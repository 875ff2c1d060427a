package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

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

// baseConnector returns the driver's connector for a data source name.
func baseConnector(driverName, dataSourceName string) (driver.Connector, error) {
	db, err := sql.Open(driverName, dataSourceName)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if dc, ok := db.Driver().(driver.DriverContext); ok {
		return dc.OpenConnector(dataSourceName)
	}
	return dsnConnector{db.Driver(), dataSourceName}, nil
}

// dsnConnector is a connector for drivers that have none.
type dsnConnector struct {
	driver         driver.Driver
	dataSourceName string
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) {
	return c.driver.Open(c.dataSourceName)
}

func (c dsnConnector) Driver() driver.Driver { return c.driver }

// connector gives each new connection its settings.
type connector struct {
	driver.Connector
	kind        target
	synchronous Synchronous
	busyTimeout time.Duration
	logger      *slog.Logger

	// keeper is a connection beside the pool that is never used. An in-memory
	// database lasts as long as it is open.
	keeper driver.Conn
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	// A file whose last connection is just closing is locked for a moment.
	var conn driver.Conn
	err := retryBusy(ctx, c.busyTimeout, func() (err error) {
		defer recovered(c.logger, &err)
		conn, err = c.Connector.Connect(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	conn = &guardedConn{Conn: conn, logger: c.logger}
	for _, setting := range c.settings() {
		err := retryBusy(ctx, c.busyTimeout, func() error {
			_, err := queryDriver(ctx, conn, setting)
			return err
		})
		if err != nil {
			conn.Close()
			return nil, fmt.Errorf("%s: %w", setting, err)
		}
	}
	return conn, nil
}

// openKeeper opens the keeper of an in-memory database. If the driver's SQLite
// has no shared cache, by which connections share it, they do so in memdb.
func (c *connector) openKeeper(ctx context.Context, driverName, dataSourceName string) (err error) {
	if c.keeper, err = c.Connect(ctx); err != nil {
		return err
	}
	omitted, err := queryDriver(ctx, c.keeper, "SELECT sqlite_compileoption_used('OMIT_SHARED_CACHE')")
	if err != nil || omitted != int64(1) || strings.Contains(dataSourceName, "vfs=memdb") {
		return nil // also if SQLite was built without knowing its options
	}
	if err := c.keeper.Close(); err != nil {
		return err
	}
	if c.Connector, err = baseConnector(driverName, inMemdb(dataSourceName)); err != nil {
		return err
	}
	if c.keeper, err = c.Connect(ctx); isNoSuchVFS(err) {
		err = fmt.Errorf("connections of this driver cannot share a database in memory "+
			"(for that of github.com/ncruces/go-sqlite3, import its package vfs/memdb): %w", err)
	}
	return err
}

// settings are the statements that configure a connection. The waiting for
// locks is done in tx.go, since drivers wait deaf to the context.
func (c *connector) settings() []string {
	const noWait = "PRAGMA busy_timeout = 0"
	switch c.kind {
	case serverDatabase:
		return nil
	case memoryDatabase:
		return []string{noWait}
	}
	if c.synchronous == Normal {
		return []string{noWait, "PRAGMA synchronous = NORMAL", fewCheckpoints, walSizeLimit}
	}
	return []string{noWait, "PRAGMA synchronous = FULL", walSizeLimit}
}

// Where only a checkpoint waits for the disk, one after 16 MiB rather than
// SQLite's 4 makes small appends a sixth faster. Where every commit does it gains
// nothing, and a WAL that grows for longer is slower to sync. A WAL that a long
// reader made grow is cut back when it is used anew.
const (
	fewCheckpoints = "PRAGMA wal_autocheckpoint = 4000"
	walSizeLimit   = "PRAGMA journal_size_limit = 20971520"
)

// Close is called by sql.DB.Close.
func (c *connector) Close() error {
	var err error
	if c.keeper != nil {
		err = c.keeper.Close()
	}
	if closer, ok := c.Connector.(io.Closer); ok {
		err = errors.Join(err, closer.Close())
	}
	return err
}

// queryDriver runs a statement without arguments on a driver's connection,
// drains what it returns, and returns the first value of the last row. A PRAGMA
// must be queried: some drivers refuse to execute what returns rows.
func queryDriver(ctx context.Context, conn driver.Conn, query string) (value driver.Value, err error) {
	queryer, ok := conn.(driver.QueryerContext)
	if !ok {
		return queryPrepared(ctx, conn, query)
	}
	rows, err := queryer.QueryContext(ctx, query, nil)
	if errors.Is(err, driver.ErrSkip) {
		return queryPrepared(ctx, conn, query)
	}
	if err != nil {
		return nil, err
	}
	return lastValue(rows)
}

// queryPrepared is queryDriver the long way round: some drivers parse a
// statement themselves to prepare it, which takes a third of a millisecond.
func queryPrepared(ctx context.Context, conn driver.Conn, query string) (value driver.Value, err error) {
	statement, err := conn.Prepare(query)
	if err != nil {
		return nil, err
	}
	defer statement.Close()
	var rows driver.Rows
	if queryer, ok := statement.(driver.StmtQueryContext); ok {
		rows, err = queryer.QueryContext(ctx, nil)
	} else {
		rows, err = statement.Query(nil) //lint:ignore SA1019 the only form that old drivers have
	}
	if err != nil {
		return nil, err
	}
	return lastValue(rows)
}

func lastValue(rows driver.Rows) (value driver.Value, err error) {
	defer rows.Close()
	values := make([]driver.Value, len(rows.Columns()))
	for {
		if err := rows.Next(values); err == io.EOF {
			return value, nil
		} else if err != nil {
			return nil, err
		}
		value = values[0]
	}
}
