package outbox

import (
	"context"

	"example.com/outbox/internal/engine"
)

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
// each connection gets Options.Synchronous. A file that cannot be written needs
// mode=ro in its name, and one in WAL mode in a folder that cannot be written
// immutable=1, too; it must have been migrated before.
//
// Open returns ErrForeignTable or ErrNewerSchema, with nothing changed, for a
// database that is not the store's to use; ErrInvalid for an empty name or an
// unknown Options.Synchronous; ErrUnavailable, ErrReadOnly, ErrCorrupt, ErrFull or
// ErrBusy for a file or server that cannot be used. No error shows a token that
// the data source name has. If Open fails, nothing is left open.
func Open(ctx context.Context, driverName, dataSourceName string, opts *Options) (*Store, error) {
	if dataSourceName == "" {
		return nil, &InvalidError{Index: -1, Field: "dataSourceName", Reason: "is empty"}
	}
	s, config := newStore(opts)
	synchronous := "FULL"
	if opts != nil {
		switch opts.Synchronous {
		case Full:
		case Normal:
			synchronous = "NORMAL"
		default:
			return nil, &InvalidError{Index: -1, Field: "Options.Synchronous", Reason: "is neither Full nor Normal"}
		}
	}
	db, err := engine.Open(ctx, driverName, dataSourceName, synchronous, config)
	if err != nil {
		return nil, err
	}
	s.db = db
	if err = s.Migrate(ctx); err == nil {
		err = db.UseWAL(ctx)
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return s, nil
}
