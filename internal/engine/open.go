package engine

import (
	"context"
	"database/sql"
	"fmt"
)

// Open opens a database by driver and data source name, and gives every new
// connection its settings, by default those of a synchronous level. It changes
// nothing in it. See [DB.UseWAL] for what is left to do.
func Open(ctx context.Context, driverName, dataSourceName, synchronous string, config Config) (*DB, error) {
	witness := witness{config.Logger, secretOf(driverName, dataSourceName)}
	kind, name := classify(dataSourceName)
	base, err := witness.base(driverName, name)
	if err != nil {
		err = witness.secret.keptFrom(err)
		return nil, withMeaning(err, &OpError{"open", err})
	}
	db := &DB{config: config, owned: true}
	db.connector = &connector{
		Connector: base, kind: kind, synchronous: synchronous, witness: witness,
		readOnly:    isNotToBeWritten(name),
		busyTimeout: config.BusyTimeout,
	}
	db.pool = sql.OpenDB(db.connector)
	db.pool.SetMaxOpenConns(maxConnections)
	db.pool.SetMaxIdleConns(maxConnections)
	switch kind {
	case fileTarget:
		db.known.Store(&localAbilities)
	case memoryTarget:
		db.known.Store(&localAbilities)
		db.shared = name == dataSourceName
		db.pool.SetMaxOpenConns(1) // SQLite's shared cache locks whole tables between connections
		db.pool.SetMaxIdleConns(1)
		err = db.connector.openKeeper(ctx, driverName, name)
	case serverTarget:
		err = db.lookAtServer(ctx)
	}
	if err != nil {
		db.Close()
		return nil, db.explain(ctx, "open", err)
	}
	return db, nil
}

// lookAtServer finds out whether the driver of a server sends batches. If not,
// the server has to be kept from losing its write lock.
func (db *DB) lookAtServer(ctx context.Context) error {
	s := db.newSession(ctx, serverAbilities)
	defer s.end()
	found := serverAbilities
	err := s.do(func() (err error) {
		if s.conn, err = db.pool.Conn(ctx); err == nil && takesBatches(s.conn) {
			found = batchAbilities
		}
		return err
	})
	if err != nil {
		return err
	}
	if !found.Batch {
		db.contention = &contention{}
	}
	db.known.Store(&found)
	return nil
}

// UseWAL puts a file into WAL mode, which is a change of the file and waits
// until it is known to be the caller's. A file that cannot be written stays as
// it is, and so do other databases.
func (db *DB) UseWAL(ctx context.Context) error {
	if db.connector.kind != fileTarget || db.connector.readOnly {
		return nil
	}
	mode, err := Read(ctx, db, "open", func(tx Tx) (mode string, err error) {
		err = tx.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode)
		return mode, err
	})
	if err == nil && mode != "wal" {
		err = fmt.Errorf("outbox: open: journal mode is %q and cannot be set to wal", mode)
	}
	return err
}
