package outbox_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestPoolIsLeftCleanWhateverHappensInside(t *testing.T) {
	db := openHost(t)
	ctx := context.Background()
	store := outbox.New(db, nil)
	require.NoError(t, store.Migrate(ctx))
	before := runtime.NumGoroutine()

	for i := range 200 {
		short, cancel := context.WithTimeout(ctx, time.Duration(i)*10*time.Microsecond)
		_, _ = store.Append(short, row(uuid.New(), i))
		_, _ = store.Claim(short, 1)
		_ = store.Update(ctx, func(_ context.Context, tx outbox.Tx) error {
			_, _ = tx.ExecContext(ctx, "INSERT INTO nowhere VALUES (1)")
			_ = tx.QueryRowContext(ctx, "SELECT 1")
			return errors.New("undo")
		})
		func() {
			defer func() { _ = recover() }()
			_ = store.Update(ctx, func(context.Context, outbox.Tx) error { panic("boom") })
		}()
		cancel()
	}
	eventually(t, func() bool { return db.Stats().InUse == 0 }, "connections are given back")
	for i := range 1000 {
		_, err := store.Append(ctx, row(uuid.New(), i))
		require.NoError(t, err)
	}
	require.Zero(t, db.Stats().InUse)
	eventually(t, func() bool { return runtime.NumGoroutine() <= before }, "goroutines end")
	outboxtest.Check(t, store)
}

func TestConnectionLeftInsideATransactionIsMended(t *testing.T) {
	db := openHost(t)
	ctx := context.Background()
	store := outbox.New(db, nil)
	require.NoError(t, store.Migrate(ctx))
	_, err := db.Exec("BEGIN IMMEDIATE") // the host forgets it in the pool
	require.NoError(t, err)
	_, err = store.Append(ctx, row(uuid.New(), 0))
	require.NoError(t, err)
	rows, err := store.Claim(ctx, 1)
	require.NoError(t, err)
	require.Len(t, rows, 1)
}

func TestTxFormsFollowTheTransactionOfTheHost(t *testing.T) {
	db := openHost(t)
	ctx := context.Background()
	store := outbox.New(db, nil)
	require.NoError(t, store.Migrate(ctx))
	workflow := uuid.New()

	// stage stages two rows, completes one and settles the workflow.
	stage := func(tx outbox.Tx, ordinal int) {
		t.Helper()
		_, err := store.AppendTx(ctx, tx, row(workflow, ordinal), row(workflow, ordinal+1))
		require.NoError(t, err)
		require.NoError(t, store.CompleteTx(ctx, tx, outbox.Ref{DispatchKey: outbox.DispatchKey(workflow, uint64(ordinal))}))
		require.NoError(t, store.RearmTx(ctx, tx, row(workflow, ordinal)))
		keys, err := store.SettleWorkflowTx(ctx, tx, workflow)
		require.NoError(t, err)
		require.Len(t, keys, 2)
	}
	stored := func(want int) {
		t.Helper()
		rows, err := store.List(ctx, outbox.Filter{Status: outbox.Cancelled})
		require.NoError(t, err)
		require.Len(t, rows, want)
	}

	tx, err := db.Begin()
	require.NoError(t, err)
	stage(tx, 0)
	require.NoError(t, tx.Rollback())
	stored(0)

	tx, err = db.Begin()
	require.NoError(t, err)
	stage(tx, 0)
	require.NoError(t, tx.Commit())
	stored(2)

	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(ctx, "BEGIN IMMEDIATE")
	require.NoError(t, err)
	stage(conn, 10)
	_, err = conn.ExecContext(ctx, "ROLLBACK")
	require.NoError(t, err)
	stored(2)

	stage(conn, 10) // without a transaction each call is one of its own
	stored(4)

	// A call that fails half-way leaves the transaction as it was before it.
	tx, err = db.Begin()
	require.NoError(t, err)
	_, err = store.AppendTx(ctx, tx, row(workflow, 20), row(workflow, 21))
	require.NoError(t, err)
	_, err = tx.Exec(`CREATE TEMP TRIGGER picky BEFORE UPDATE ON outbox WHEN OLD.ordinal = 21 BEGIN SELECT RAISE(ABORT, 'picky'); END`)
	require.NoError(t, err)
	refs := []outbox.Ref{{DispatchKey: outbox.DispatchKey(workflow, 20)}, {DispatchKey: outbox.DispatchKey(workflow, 21)}}
	require.ErrorContains(t, store.CompleteTx(ctx, tx, refs...), "picky")
	_, err = store.SettleWorkflowTx(ctx, tx, workflow)
	require.ErrorContains(t, err, "picky")
	_, err = tx.Exec(`DROP TRIGGER picky`)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	outboxtest.RequireCounts(t, store, map[outbox.Status]int{outbox.Pending: 2, outbox.Cancelled: 4})

	_, err = store.AppendTx(ctx, db, row(workflow, 99))
	require.ErrorIs(t, err, outbox.ErrInvalid, "a *sql.DB is no transaction")
}

func TestTxFormsOnABareConnectionLeaveNoTransactionBehind(t *testing.T) {
	db := openHost(t)
	ctx := context.Background()
	store := outbox.New(db, &outbox.Options{BusyTimeout: 30 * time.Millisecond})
	require.NoError(t, store.Migrate(ctx))
	reader, err := db.Conn(ctx)
	require.NoError(t, err)
	defer reader.Close()
	_, err = reader.ExecContext(ctx, "BEGIN")
	require.NoError(t, err)
	var n int
	require.NoError(t, reader.QueryRowContext(ctx, "SELECT count(*) FROM outbox").Scan(&n))

	bare, err := db.Conn(ctx)
	require.NoError(t, err)
	defer bare.Close()
	_, err = store.AppendTx(ctx, bare, row(uuid.New(), 0))
	require.ErrorIs(t, err, outbox.ErrBusy, "the reader holds up the commit")
	_, err = reader.ExecContext(ctx, "COMMIT")
	require.NoError(t, err)
	_, err = bare.ExecContext(ctx, "BEGIN")
	require.NoError(t, err, "no transaction was left open")
	_, err = bare.ExecContext(ctx, "COMMIT")
	require.NoError(t, err)
	_, err = store.AppendTx(ctx, bare, row(uuid.New(), 0))
	require.NoError(t, err)
	outboxtest.RequireCounts(t, store, map[outbox.Status]int{outbox.Pending: 1})
}

func TestClockIsReadWithTheLockHeld(t *testing.T) {
	db, recorded := openRecorded(t)
	ctx := context.Background()
	clock := outboxtest.NewClock()
	var locked, early atomic.Bool
	store := outbox.New(db, &outbox.Options{Now: func() time.Time {
		if locked.Load() {
			early.Store(true)
		}
		return clock.Now()
	}})
	require.NoError(t, store.Migrate(ctx))
	_, err := store.State(ctx, "") // looks at the pool
	require.ErrorIs(t, err, outbox.ErrNotFound)
	for name, test := range map[string]struct {
		lock string // the statement that waits
		call func(row outbox.Row) error
	}{
		"Append": {"BEGIN IMMEDIATE", func(row outbox.Row) error { _, err := store.Append(ctx, row); return err }},
		"AppendTx in a deferred transaction": {"DELETE FROM main.outbox_schema", func(row outbox.Row) error {
			tx, err := db.Begin()
			if err != nil {
				return err
			}
			if _, err := store.AppendTx(ctx, tx, row); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		}},
	} {
		holder, err := db.Conn(ctx)
		require.NoError(t, err)
		_, err = holder.ExecContext(ctx, "BEGIN IMMEDIATE")
		require.NoError(t, err)
		locked.Store(true)
		recorded.forget()
		staged := row(uuid.New(), 0)
		result := make(chan error)
		go func() { result <- test.call(staged) }()
		eventually(t, func() bool { return recorded.sent(test.lock) }, "it asks for the lock")
		clock.Advance(time.Hour)
		locked.Store(false)
		_, err = holder.ExecContext(ctx, "COMMIT")
		require.NoError(t, err)
		require.NoError(t, holder.Close())
		require.NoError(t, <-result, name)
		require.False(t, early.Load(), name)
		got, err := store.Get(ctx, outbox.DispatchKey(staged.WorkflowID, 0))
		require.NoError(t, err)
		require.Equal(t, clock.Now(), got.VisibleAfter, name)
	}
}

func TestCloseLetsCallsUnderWayEnd(t *testing.T) {
	db := openHost(t)
	ctx := context.Background()
	store := outbox.New(db, nil)
	require.NoError(t, store.Migrate(ctx))
	require.NoError(t, store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
		require.NoError(t, store.Close())
		_, err := store.AppendTx(ctx, tx, row(uuid.New(), 0))
		return err
	}))
	outboxtest.RequireCounts(t, outbox.New(db, nil), map[outbox.Status]int{outbox.Pending: 1})
}

func TestFunctionOfUpdateMayGoOnAfterTheDriverWasLeftBehind(t *testing.T) {
	db := openHost(t)
	store := outbox.New(db, nil)
	require.NoError(t, store.Migrate(t.Context()))
	const slow = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) INSERT INTO outbox_schema SELECT sum(i) FROM n"
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
		_, err := tx.ExecContext(ctx, slow)
		time.Sleep(time.Second) // the driver returns meanwhile, and the connection is given back
		return err
	}), context.DeadlineExceeded)
	eventually(t, func() bool { return db.Stats().InUse == 0 }, "the connection is given back")
	require.NoError(t, store.Migrate(t.Context()), "the schema is none that is newer")
}
