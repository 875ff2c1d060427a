package torture_test

import (
	"context"
	"database/sql"

	"example.com/outbox"
)

// setting is how a file is opened.
type setting string

const (
	walFull   setting = "WAL, Full"
	walNormal setting = "WAL, Normal"
	rollback  setting = "rollback journal" // a *sql.DB of the host's, as the driver sets it up
)

// openFile opens a file that may be new. The host's table lies beside the
// store's.
func openFile(ctx context.Context, how setting, file string) (*outbox.Store, func() error, error) {
	store, closeAll, err := openStore(ctx, how, "file:"+file)
	if err != nil {
		return nil, nil, err
	}
	err = store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
		_, err := tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS history (event TEXT PRIMARY KEY, call TEXT)")
		return err
	})
	if err != nil {
		_ = closeAll()
		return nil, nil, err
	}
	return store, closeAll, nil
}

func openStore(ctx context.Context, how setting, dataSourceName string) (*outbox.Store, func() error, error) {
	if how != rollback {
		opts := &outbox.Options{Synchronous: outbox.Full}
		if how == walNormal {
			opts.Synchronous = outbox.Normal
		}
		store, err := outbox.Open(ctx, "libsql", dataSourceName, opts)
		if err != nil {
			return nil, nil, err
		}
		return store, store.Close, nil
	}
	db, err := sql.Open("libsql", dataSourceName)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(8)
	store := outbox.New(db, nil)
	if err := store.Migrate(ctx); err != nil {
		_ = db.Close()
		return nil, nil, err
	}
	return store, db.Close, nil
}
