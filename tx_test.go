package outbox_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
)

func row(workflow uuid.UUID, ordinal int) outbox.Row {
	return outbox.Row{WorkflowID: workflow, Ordinal: uint64(ordinal), ActivityType: "send"}
}

// eventually waits for what another goroutine is about to do. (That of testify
// starts goroutines itself.)
func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	for range 10_000 {
		if condition() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

// writes are the calls that need the write lock, on a row that is claimed.
func writes(store *outbox.Store, ref outbox.Ref) map[string]func(ctx context.Context) error {
	return map[string]func(context.Context) error{
		"Append": func(ctx context.Context) error { _, err := store.Append(ctx, row(uuid.New(), 1)); return err },
		"Rearm":  func(ctx context.Context) error { return store.Rearm(ctx, row(uuid.New(), 1)) },
		"Update": func(ctx context.Context) error {
			return store.Update(ctx, func(context.Context, outbox.Tx) error { return nil })
		},
		"Claim":    func(ctx context.Context) error { _, err := store.Claim(ctx, 1); return err },
		"Complete": func(ctx context.Context) error { return store.Complete(ctx, ref) },
		"Retry":    func(ctx context.Context) error { return store.Retry(ctx, ref, 1, time.Time{}, nil) },
		"Extend":   func(ctx context.Context) error { return store.Extend(ctx, ref) },
		"RearmStale": func(ctx context.Context) error {
			_, err := store.RearmStale(ctx, time.Now().Add(time.Hour), time.Time{}, 1)
			return err
		},
		"SettleWorkflow": func(ctx context.Context) error { _, err := store.SettleWorkflow(ctx, uuid.New()); return err },
		"Requeue":        func(ctx context.Context) error { _, err := store.Requeue(ctx, "a"); return err },
		"Purge":          func(ctx context.Context) error { _, err := store.Purge(ctx, time.Now(), 1); return err },
	}
}

func TestLockOfAnotherProcessIsWaitedForWithinContextAndBusyTimeout(t *testing.T) {
	for _, setup := range []struct {
		name string
		open func(t *testing.T, file string, busy time.Duration) *outbox.Store
	}{
		{"Open", func(t *testing.T, file string, busy time.Duration) *outbox.Store {
			return open(t, file, &outbox.Options{BusyTimeout: busy})
		}},
		{"New, over a pool whose driver waits deaf to the context", func(t *testing.T, file string, busy time.Duration) *outbox.Store {
			db, err := sql.Open("libsql", file)
			require.NoError(t, err)
			db.SetMaxOpenConns(4)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			var conns []*sql.Conn
			for range 4 {
				conn, err := db.Conn(context.Background())
				require.NoError(t, err)
				var timeout int
				require.NoError(t, conn.QueryRowContext(context.Background(), "PRAGMA busy_timeout = 400").Scan(&timeout))
				conns = append(conns, conn)
			}
			for _, conn := range conns {
				require.NoError(t, conn.Close())
			}
			return outbox.New(db, &outbox.Options{BusyTimeout: busy})
		}},
	} {
		t.Run(setup.name, func(t *testing.T) {
			file := "file:" + filepath.Join(t.TempDir(), "outbox.db")
			ctx := context.Background()
			first := open(t, file, nil)
			_, err := first.Append(ctx, row(uuid.New(), 0), row(uuid.New(), 1))
			require.NoError(t, err)
			claimed, err := first.Claim(ctx, 1)
			require.NoError(t, err)
			before, err := first.List(ctx, outbox.Filter{})
			require.NoError(t, err)

			store := setup.open(t, file, time.Hour)
			holder := startChild(t, "hold", file, "BEGIN IMMEDIATE")
			holder.expect("held")
			// The holder does not let go before it is told to, so that a call
			// that returns has not waited for it.
			for name, call := range writes(store, claimed[0].Ref()) {
				short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				require.ErrorIs(t, call(short), context.DeadlineExceeded, name)
				cancel()
			}
			impatient := setup.open(t, file, 30*time.Millisecond)
			for name, call := range writes(impatient, claimed[0].Ref()) {
				require.ErrorIs(t, call(ctx), outbox.ErrBusy, name)
			}

			var waiting sync.WaitGroup
			results := make(chan error, 4)
			for range 4 {
				waiting.Go(func() { results <- store.Extend(ctx, claimed[0].Ref()) })
			}
			holder.finish()
			waiting.Wait()
			for range 4 {
				require.NoError(t, <-results, "those who wait are served")
			}
			after, err := first.List(ctx, outbox.Filter{})
			require.NoError(t, err)
			require.Len(t, after, len(before), "nothing that was given up is stored late")
			require.NoError(t, first.Complete(ctx, claimed[0].Ref()))
			outboxtest.Check(t, first)
		})
	}
}

func TestReadsAndEmptyClaimsNeedNoWriteLock(t *testing.T) {
	file := "file:" + filepath.Join(t.TempDir(), "outbox.db")
	store := open(t, file, &outbox.Options{BusyTimeout: -1})
	ctx := context.Background()
	holder := startChild(t, "hold", file, "BEGIN IMMEDIATE")
	holder.expect("held")
	size := fileSize(t, file+"-wal")
	for range 1000 {
		rows, err := store.Claim(ctx, 100)
		require.NoError(t, err)
		require.Empty(t, rows)
	}
	_, err := store.ClaimScopedExcluding(ctx, outbox.Scope{Namespace: "a", TaskQueue: "b"}, 1, uuid.New())
	require.NoError(t, err)
	_, err = store.RearmStale(ctx, time.Now(), time.Time{}, 1)
	require.NoError(t, err)
	_, err = store.PendingRoutes(ctx)
	require.NoError(t, err)
	_, err = store.CountInFlight(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, size, fileSize(t, file+"-wal"))
	holder.finish()
}

func TestReadsWaitForAnExclusiveLock(t *testing.T) {
	// In rollback-journal mode a committing writer shuts readers out.
	file := "file:" + filepath.Join(t.TempDir(), "host.db")
	db, err := sql.Open("libsql", file)
	require.NoError(t, err)
	defer db.Close()
	store := outbox.New(db, &outbox.Options{BusyTimeout: time.Hour})
	ctx := context.Background()
	require.NoError(t, store.Migrate(ctx))
	_, err = store.Append(ctx, row(uuid.New(), 0))
	require.NoError(t, err)
	conn, err := db.Conn(ctx) // the driver would wait for longer, deaf to the context
	require.NoError(t, err)
	var timeout int
	require.NoError(t, conn.QueryRowContext(ctx, "PRAGMA busy_timeout = 3600000").Scan(&timeout))
	require.NoError(t, conn.Close())
	holder := startChild(t, "hold", file, "BEGIN EXCLUSIVE")
	holder.expect("held")
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = store.List(short, outbox.Filter{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = store.Claim(short, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	result := make(chan error)
	go func() {
		rows, err := store.Claim(ctx, 1)
		if err == nil && len(rows) != 1 {
			err = fmt.Errorf("claimed %d rows", len(rows))
		}
		result <- err
	}()
	holder.finish()
	require.NoError(t, <-result)
}

func TestCommitThatAReaderHoldsUpIsRepeatedOrUndone(t *testing.T) {
	file := "file:" + filepath.Join(t.TempDir(), "host.db")
	db, err := sql.Open("libsql", file)
	require.NoError(t, err)
	defer db.Close()
	ctx := context.Background()
	store := outbox.New(db, &outbox.Options{BusyTimeout: 50 * time.Millisecond})
	require.NoError(t, store.Migrate(ctx))

	reader, err := db.Conn(ctx)
	require.NoError(t, err)
	_, err = reader.ExecContext(ctx, "BEGIN")
	require.NoError(t, err)
	var n int
	require.NoError(t, reader.QueryRowContext(ctx, "SELECT count(*) FROM outbox").Scan(&n))

	_, err = store.Append(ctx, row(uuid.New(), 0))
	require.ErrorIs(t, err, outbox.ErrBusy)
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err = store.Append(short, row(uuid.New(), 0))
	require.ErrorIs(t, err, context.DeadlineExceeded)

	patient := outbox.New(db, &outbox.Options{BusyTimeout: time.Hour})
	workflow := uuid.New()
	result := make(chan error)
	go func() { _, err := patient.Append(ctx, row(workflow, 0)); result <- err }()
	time.Sleep(20 * time.Millisecond) // likely reaches its COMMIT; either way it must succeed
	_, err = reader.ExecContext(ctx, "COMMIT")
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	require.NoError(t, <-result)
	rows, err := store.List(ctx, outbox.Filter{})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, workflow, rows[0].WorkflowID)
}

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
	db := openHost(t)
	ctx := context.Background()
	var asked sync.WaitGroup
	clock := outboxtest.NewClock()
	store := outbox.New(db, &outbox.Options{Now: clock.Now})
	require.NoError(t, store.Migrate(ctx))
	stage := map[string]func(row outbox.Row) error{
		"Append": func(row outbox.Row) error { _, err := store.Append(ctx, row); return err },
		"AppendTx in a deferred transaction": func(row outbox.Row) error {
			tx, err := db.Begin()
			if err != nil {
				return err
			}
			if _, err := store.AppendTx(ctx, tx, row); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		},
	}
	for name, call := range stage {
		holder, err := db.Conn(ctx)
		require.NoError(t, err)
		_, err = holder.ExecContext(ctx, "BEGIN IMMEDIATE")
		require.NoError(t, err)
		staged := row(uuid.New(), 0)
		var result error
		asked.Go(func() { result = call(staged) })
		time.Sleep(20 * time.Millisecond) // it waits by now; if not, the test shows less
		clock.Advance(time.Hour)
		_, err = holder.ExecContext(ctx, "COMMIT")
		require.NoError(t, err)
		require.NoError(t, holder.Close())
		asked.Wait()
		require.NoError(t, result, name)
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

func TestTextsOfTheHostAreNotTakenForLocks(t *testing.T) {
	store := open(t, ":memory:", nil)
	ctx := context.Background()
	require.NoError(t, store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TRIGGER t BEFORE INSERT ON outbox BEGIN SELECT RAISE(ABORT, 'the vault database is locked by its keeper'); END`)
		return err
	}))
	_, err := store.Append(ctx, row(uuid.New(), 0))
	require.ErrorContains(t, err, "keeper")
	require.NotErrorIs(t, err, outbox.ErrBusy)
}

// workOnFile appends rows of its own, and completes what it can claim meanwhile.
func workOnFile(args []string, _ *bufio.Scanner, out io.Writer) error {
	ctx := context.Background()
	own, _ := strconv.Atoi(args[1])
	store, err := outbox.Open(ctx, "libsql", args[0], nil)
	if err != nil {
		return err
	}
	defer store.Close()
	const goroutines = 32
	problems := make(chan error, goroutines)
	var mu sync.Mutex
	for range goroutines {
		go func() {
			problems <- appendAndComplete(store, own/goroutines, func(row outbox.Row) {
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintln(out, row.DispatchKey, row.Fence)
			})
		}()
	}
	for range goroutines {
		err = errors.Join(err, <-problems)
	}
	return err
}

// appendAndComplete appends n rows of a workflow, one a call, and completes what
// it can claim in between.
func appendAndComplete(store *outbox.Store, n int, claimed func(outbox.Row)) error {
	ctx := context.Background()
	workflow := uuid.New()
	for i := range n {
		if _, err := store.Append(ctx, row(workflow, i)); err != nil {
			return err
		}
		rows, err := store.Claim(ctx, 3)
		if err != nil {
			return err
		}
		for _, row := range rows {
			claimed(row)
			if err := store.Complete(ctx, row.Ref()); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestProcessesShareAFileWithoutALockErrorAndEachRowOnce(t *testing.T) {
	const processes, own = 3, 320
	file := "file:" + filepath.Join(t.TempDir(), "outbox.db")
	store := open(t, file, nil)
	var workers []*child
	for range processes {
		workers = append(workers, startChild(t, "work", file, strconv.Itoa(own)))
	}
	handed := map[string]bool{}
	for _, worker := range workers {
		for worker.out.Scan() {
			require.False(t, handed[worker.out.Text()], "%s was handed out twice", worker.out.Text())
			handed[worker.out.Text()] = true
		}
		worker.finish()
	}
	ctx := context.Background()
	rest, err := store.Claim(ctx, 1<<20)
	require.NoError(t, err)
	require.Equal(t, processes*own, len(handed)+len(rest))
	for _, row := range rest {
		require.NoError(t, store.Complete(ctx, row.Ref()))
	}
	outboxtest.RequireCounts(t, store, map[outbox.Status]int{outbox.Done: processes * own})
	outboxtest.Check(t, store)
}

// stageUntilKilled appends pairs of rows and says so after each call.
func stageUntilKilled(args []string, _ *bufio.Scanner, out io.Writer) error {
	ctx := context.Background()
	store, err := outbox.Open(ctx, "libsql", args[0], nil)
	if err != nil {
		return err
	}
	workflow := uuid.MustParse(args[1])
	for i := 0; ; i += 2 {
		if _, err := store.Append(ctx, row(workflow, i), row(workflow, i+1)); err != nil {
			return err
		}
		fmt.Fprintln(out, i)
	}
}

func TestKilledProcessLosesNothingItAcknowledged(t *testing.T) {
	file := "file:" + filepath.Join(t.TempDir(), "outbox.db")
	ctx := context.Background()
	for round := range 10 {
		workflow := uuid.New()
		stager := startChild(t, "stage", file, workflow.String())
		last := ""
		for range 1 + round*7 {
			require.True(t, stager.out.Scan())
			last = stager.out.Text()
		}
		stager.kill()
		for stager.out.Scan() { // acknowledged, though not yet read
			last = stager.out.Text()
		}
		store := open(t, file, nil)
		rows, err := store.List(ctx, outbox.Filter{WorkflowID: uuid.NullUUID{UUID: workflow, Valid: true}})
		require.NoError(t, err)
		acknowledged, err := strconv.Atoi(last)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(rows), acknowledged+2)
		require.Zero(t, len(rows)%2, "a call is stored whole or not at all")
		outboxtest.Check(t, store)
		require.NoError(t, store.Close())
	}
}
