package outbox_test

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"testing"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// noCalls are the methods of a Store that do not need its database.
var noCalls = map[string]bool{"Close": true, "Now": true, "Subscribe": true, "Waiting": true}

// everyCall returns each method of a Store that needs the database, found by
// reflection so that none is forgotten, as a call with arguments that ask for
// something: one row, the ref given, a limit of 1. Those with a Tx run on tx, and
// are left out without one.
func everyCall(store *outbox.Store, ref outbox.Ref, tx outbox.Tx) map[string]func(context.Context) error {
	arguments := map[reflect.Type]any{
		reflect.TypeFor[outbox.Row]():    row(uuid.New(), 1),
		reflect.TypeFor[outbox.Ref]():    ref,
		reflect.TypeFor[outbox.Scope]():  outbox.Scope{Namespace: "default", TaskQueue: "default"},
		reflect.TypeFor[outbox.Filter](): outbox.Filter{},
		reflect.TypeFor[uuid.UUID]():     uuid.New(),
		reflect.TypeFor[time.Time]():     time.Now().Add(time.Hour),
		reflect.TypeFor[string]():        ref.DispatchKey,
		reflect.TypeFor[int]():           1,
		reflect.TypeFor[uint32]():        uint32(1),
		reflect.TypeFor[error]():         errors.New("cause"),
		reflect.TypeFor[func(context.Context, outbox.Tx) error](): func(ctx context.Context, tx outbox.Tx) error {
			return tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM main.outbox WHERE id = 1)").Scan(new(int))
		},
	}
	calls := make(map[string]func(context.Context) error)
	value := reflect.ValueOf(store)
methods:
	for i := range value.NumMethod() {
		name, method := value.Type().Method(i).Name, value.Method(i)
		if noCalls[name] {
			continue
		}
		var given []reflect.Value // after the context
		for i := 1; i < method.Type().NumIn(); i++ {
			kind := method.Type().In(i)
			if method.Type().IsVariadic() && i == method.Type().NumIn()-1 {
				kind = kind.Elem()
			}
			argument, ok := arguments[kind]
			if kind == reflect.TypeFor[outbox.Tx]() {
				if argument, ok = tx, true; tx == nil {
					continue methods
				}
			}
			if !ok {
				panic("no argument for a " + kind.String() + " of " + name)
			}
			given = append(given, reflect.ValueOf(argument))
		}
		calls[name] = func(ctx context.Context) error {
			return outcome(method.Call(append([]reflect.Value{reflect.ValueOf(ctx)}, given...)))
		}
	}
	return calls
}

// reads are the calls that take no write lock. Migrate takes it if there is
// something to do.
var reads = []string{
	"CountClaimed", "CountClaimedByNamespace", "CountInFlight", "Get", "List", "ListStale", "Migrate", "NextVisible",
	"NextVisibleAfter", "PendingRoutes", "Rows", "State", "UnsettledWorkflows", "Watch",
}

// writes are the calls that need the write lock, on a row that is claimed.
func writes(store *outbox.Store, ref outbox.Ref) map[string]func(context.Context) error {
	calls := everyCall(store, ref, nil)
	for _, name := range reads {
		delete(calls, name)
	}
	return calls
}

// outcome returns the error of a call, and closes what it has opened.
func outcome(results []reflect.Value) error {
	if watch, ok := results[0].Interface().(*outbox.Watch); ok && watch != nil {
		defer watch.Close()
	}
	switch last := results[len(results)-1].Interface().(type) {
	case iter.Seq2[outbox.Row, error]:
		for _, err := range last {
			if err != nil {
				return err
			}
		}
		return nil
	case error:
		return last
	}
	return nil
}

func TestClosedStoreRefusesEveryCall(t *testing.T) {
	ctx := t.Context()
	db := openHost(t)
	host := outbox.New(db, nil)
	require.NoError(t, host.Migrate(ctx))
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	defer conn.Close()
	for name, store := range map[string]*outbox.Store{
		"New": host, "memory": openMemory(t, nil), "file": openFile(t, nil),
	} {
		watch, err := store.Watch(ctx)
		watches := err == nil
		require.Equal(t, name != "memory", watches, name)
		require.NoError(t, store.Close())
		require.NoError(t, store.Close())
		calls := everyCall(store, outbox.Ref{DispatchKey: "a"}, conn)
		require.Greater(t, len(calls), 35)
		for method, call := range calls {
			require.ErrorIs(t, call(ctx), outbox.ErrClosed, "%s of %s", method, name)
		}
		if watches {
			_, err = watch.Changed(ctx)
			require.ErrorIs(t, err, outbox.ErrClosed, name)
			require.NoError(t, watch.Close())
		}
	}
	require.NoError(t, db.Ping(), "New leaves the program's database open")
}

func TestStoreWhosePoolTheProgramClosesIsClosed(t *testing.T) {
	ctx := t.Context()
	db := openHost(t)
	store := outbox.New(db, nil)
	require.NoError(t, store.Migrate(ctx))
	watch, err := store.Watch(ctx)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	calls := everyCall(store, outbox.Ref{DispatchKey: "a"}, nil)
	require.Greater(t, len(calls), 27)
	for method, call := range calls {
		require.ErrorIs(t, call(ctx), outbox.ErrClosed, method)
	}
	_, err = watch.Changed(ctx)
	require.ErrorIs(t, err, outbox.ErrClosed)
	require.NoError(t, watch.Close())
	require.NoError(t, store.Close())

	unused := openHost(t)
	never := outbox.New(unused, nil)
	require.NoError(t, unused.Close())
	for method, call := range everyCall(never, outbox.Ref{DispatchKey: "a"}, nil) {
		require.ErrorIs(t, call(ctx), outbox.ErrClosed, method)
	}
}

// What other databases have attached under their names is none of the store's
// business, even if the main one lacks its tables.
func TestTablesOfAnAttachedDatabaseAreNotTheStores(t *testing.T) {
	ctx := t.Context()
	file := "file:" + t.TempDir() + "/other.db"
	other := open(t, file, nil)
	staged := row(uuid.New(), 0)
	_, err := other.Append(ctx, staged)
	require.NoError(t, err)
	ref := outbox.Ref{DispatchKey: outbox.DispatchKey(staged.WorkflowID, 0)}
	before, err := other.List(ctx, outbox.Filter{})
	require.NoError(t, err)

	db := openHost(t)
	db.SetMaxOpenConns(1)
	_, err = db.Exec("ATTACH ? AS other", file)
	require.NoError(t, err)
	require.NoError(t, db.QueryRow("SELECT count(*) FROM outbox").Scan(new(int)), "the name alone finds the attached table")
	store := outbox.New(db, nil)
	calls := everyCall(store, ref, nil)
	delete(calls, "Migrate") // which makes the tables
	delete(calls, "Watch")   // which needs none
	for method, call := range calls {
		require.ErrorContains(t, call(ctx), "no such table: main.outbox", method)
	}
	tx, err := db.Begin()
	require.NoError(t, err)
	for method, call := range everyCall(store, ref, tx) {
		if calls[method] == nil && method != "Migrate" && method != "Watch" {
			require.ErrorContains(t, call(ctx), "no such table: main.outbox", method)
		}
	}
	require.NoError(t, tx.Commit())

	require.NoError(t, store.Migrate(ctx), "the attached tables are nobody else's in main")
	rows, err := store.Claim(ctx, 9)
	require.NoError(t, err)
	require.Empty(t, rows)
	for method, call := range everyCall(store, ref, nil) {
		if err := call(ctx); err != nil {
			require.NotContains(t, err.Error(), "no such table", method)
		}
	}
	after, err := other.List(ctx, outbox.Filter{})
	require.NoError(t, err)
	require.Equal(t, before, after)
}
