package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"
)

// base returns the driver's connector for a data source name.
func (w witness) base(driverName, dataSourceName string) (base driver.Connector, err error) {
	defer w.recovered(&err)
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
	synchronous string // FULL or NORMAL
	readOnly    bool   // as the data source name says
	busyTimeout time.Duration
	witness

	keeps atomic.Pointer[bool] // whether the driver keeps statements, once that is known

	// keeper is a connection beside the pool that is never used. An in-memory
	// database lasts as long as it is open.
	keeper driver.Conn
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	// A file whose last connection is just closing is locked for a moment.
	var conn driver.Conn
	err := retryBusy(ctx, c.busyTimeout, func() (err error) {
		defer c.recovered(&err)
		conn, err = c.Connector.Connect(ctx)
		return err
	})
	if err != nil {
		return nil, c.secret.keptFrom(err)
	}
	guarded := &guardedConn{Conn: conn, witness: c.witness}
	if c.kind != serverTarget && c.keepsStatements(conn) {
		guarded.prepared = &prepared{kept: make(map[string]*keptStmt), seen: make(map[string]bool)}
	}
	conn = guarded
	for _, setting := range c.settings() {
		err := retryBusy(ctx, c.busyTimeout, func() error {
			_, err := queryDriver(ctx, conn, setting)
			return err
		})
		if err != nil {
			conn.Close()
			return nil, fmt.Errorf("%s: %w", setting, c.secret.keptFrom(err))
		}
	}
	return conn, nil
}

// keepsStatements finds out what the driver does, once.
func (c *connector) keepsStatements(conn driver.Conn) (keeps bool) {
	if known := c.keeps.Load(); known != nil {
		return *known
	}
	var err error
	func() {
		defer c.recovered(&err)
		keeps = keepsStatements(conn)
	}()
	c.keeps.Store(&keeps)
	return keeps
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
	if c.Connector, err = c.base(driverName, inMemdb(dataSourceName)); err != nil {
		return err
	}
	if c.keeper, err = c.Connect(ctx); isNoSuchVFS(err) {
		err = fmt.Errorf("connections of this driver cannot share a database in memory "+
			"(for that of github.com/ncruces/go-sqlite3, import its package vfs/memdb): %w", err)
	}
	return err
}

// settings are the statements that configure a connection. The waiting for
// locks is done by retryBusy.
func (c *connector) settings() []string {
	const noWait = "PRAGMA busy_timeout = 0"
	switch c.kind {
	case serverTarget:
		return nil
	case memoryTarget:
		return []string{noWait}
	}
	settings := []string{noWait, "PRAGMA synchronous = " + c.synchronous, walSizeLimit}
	if c.synchronous == "NORMAL" {
		settings = append(settings, fewCheckpoints)
	}
	return settings
}

// Where only a checkpoint waits for the disk, one after 16 MiB rather than
// SQLite's 4 makes small appends a sixth faster. Where every commit does it gains
// nothing, and a WAL that grows for longer is slower to sync. A WAL that a long
// reader made grow is cut back when it is next reset.
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
