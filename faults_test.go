package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// faulty is a store over a driver that does faults, with rows in every state to
// which it can be set back.
type faulty struct {
	*outbox.Store
	t        *testing.T
	recorded *recorder
	clock    *outboxtest.Clock
	db       *sql.DB // the host's, of a store that New returned
}

var (
	faultyWorkflow = uuid.MustParse(oldWorkflow)
	otherWorkflow  = uuid.MustParse("00000000-0000-4000-8000-000000000001")
)

func key(ordinal int) string { return outbox.DispatchKey(faultyWorkflow, uint64(ordinal)) }

func held(ordinal int) outbox.Ref { return outbox.Ref{DispatchKey: key(ordinal), Fence: 1} }

// fill stores rows in every state, and saves them.
func (f *faulty) fill() {
	f.t.Helper()
	ctx := context.Background()
	var rows []outbox.Row
	for i, status := range []outbox.Status{
		outbox.Pending, outbox.Pending, outbox.Pending, outbox.Pending,
		outbox.Claimed, outbox.Claimed, outbox.Claimed, outbox.Done, outbox.Failed, outbox.Cancelled,
	} {
		row := row(faultyWorkflow, i)
		if i%2 == 1 {
			row = large(row)
		}
		row.Status = status
		row.VisibleAfter = f.clock.Now().Add(time.Duration(i-100) * time.Second)
		row.CreatedAt = row.VisibleAfter
		if status == outbox.Claimed {
			row.ClaimedAt = row.VisibleAfter
		}
		row.FinishedAt = row.VisibleAfter
		rows = append(rows, row)
	}
	rows[0].Node = "n1"
	_, err := f.Append(ctx, append(rows, row(otherWorkflow, 0))...)
	require.NoError(f.t, err)
	f.exec(
		"UPDATE outbox SET attempt = -1 WHERE ordinal = 2", // cannot be decoded
		"CREATE TABLE history (event TEXT)",
		"CREATE TABLE saved AS SELECT * FROM outbox",
		"CREATE TABLE saved_payload AS SELECT * FROM outbox_payload",
	)
}

// reset makes the store as fill left it.
func (f *faulty) reset() {
	f.t.Helper()
	f.exec(
		"DELETE FROM outbox",
		"DELETE FROM history",
		"INSERT INTO outbox SELECT * FROM saved",
		"INSERT INTO outbox_payload SELECT * FROM saved_payload",
	)
}

func (f *faulty) exec(statements ...string) {
	f.t.Helper()
	require.NoError(f.t, f.Update(context.Background(), func(ctx context.Context, tx outbox.Tx) error {
		for _, statement := range statements {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	}))
}

// contents returns all that is stored.
func (f *faulty) contents() (text string) {
	f.t.Helper()
	const lines = `SELECT id || quote(dispatch_key) || quote(status) || attempt || visible_after || quote(claimed_at) || fence
	|| quote(last_error) || quote(finished_at) || created_at || length(ifnull(input, '')) AS line FROM outbox
UNION ALL SELECT id || quote(length(data)) FROM outbox_payload UNION ALL SELECT quote(event) FROM history`
	require.NoError(f.t, f.Update(context.Background(), func(ctx context.Context, tx outbox.Tx) error {
		var all []byte
		err := tx.QueryRowContext(ctx, "SELECT CAST(group_concat(line, char(10)) AS BLOB) FROM ("+lines+")").Scan(&all)
		text = string(all)
		return err
	}))
	return text
}

func TestEveryCallTellsTheTruthWhateverCallOfTheDriverFails(t *testing.T) {
	for _, target := range []struct {
		name   string
		faults []fault
		open   func(t *testing.T, recorded *recorder, opts *outbox.Options) (*outbox.Store, *sql.DB)
	}{
		{"file", faults, func(t *testing.T, recorded *recorder, opts *outbox.Options) (*outbox.Store, *sql.DB) {
			return openFaulty(t, recorded, "file:"+filepath.Join(t.TempDir(), "outbox.db"), opts), nil
		}},
		{"memory", faults, func(t *testing.T, recorded *recorder, opts *outbox.Options) (*outbox.Store, *sql.DB) {
			return openFaulty(t, recorded, ":memory:", opts), nil
		}},
		{"host", []fault{refused, answerless, overtaken}, openFaultyHost},
	} {
		t.Run(target.name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			f := newFaulty(t, target.open)
			recorded, store, db := f.recorded, f.Store, f.db
			total := 0
			for _, op := range operations {
				for _, fault := range target.faults {
					total += f.survive(op, fault)
				}
			}
			t.Log("faults:", total)
			require.LessOrEqual(t, recorded.connections(), 9, "a pool and the keeper of its memory")
			recorded.disarm()
			f.reset()
			require.NoError(t, store.Close())
			if db != nil {
				require.Zero(t, db.Stats().InUse)
				require.NoError(t, db.Close())
			}
			eventually(t, func() bool { return recorded.connections() == 0 }, "all connections are closed")
			eventually(t, func() bool { return runtime.NumGoroutine() <= before }, "goroutines end")
		})
	}
}

func newFaulty(t *testing.T, open func(*testing.T, *recorder, *outbox.Options) (*outbox.Store, *sql.DB)) *faulty {
	t.Helper()
	f := &faulty{t: t, recorded: &recorder{parks: true}, clock: outboxtest.NewClock()}
	f.Store, f.db = open(t, f.recorded, &outbox.Options{
		Now: f.clock.Now, Synchronous: outbox.Normal, Logger: slog.New(slog.DiscardHandler),
	})
	f.fill()
	f.recorded.deep = true
	return f
}

func openFaultyHost(t *testing.T, recorded *recorder, opts *outbox.Options) (*outbox.Store, *sql.DB) {
	t.Helper()
	db, err := sql.Open(registerRecorded(recorded), "file:"+filepath.Join(t.TempDir(), "outbox.db"))
	require.NoError(t, err)
	var mode string
	require.NoError(t, db.QueryRow("PRAGMA journal_mode = WAL").Scan(&mode))
	_, err = db.Exec("PRAGMA synchronous = OFF") // this is not about power
	require.NoError(t, err)
	store := outbox.New(db, opts)
	require.NoError(t, store.Migrate(t.Context()))
	return store, db
}

func openFaulty(t *testing.T, recorded *recorder, dataSourceName string, opts *outbox.Options) *outbox.Store {
	t.Helper()
	store, err := outbox.Open(t.Context(), registerRecorded(recorded), dataSourceName, opts)
	require.NoError(t, err)
	return store
}

// survive makes a call with a fault at its first call of the driver, its second
// and so on, until it makes no more. It returns how many faults there were.
func (f *faulty) survive(op operation, fault fault) int {
	f.t.Helper()
	f.reset()
	before := f.contents()
	want, err := op.call(context.Background(), f)
	require.NoError(f.t, err, op.name)
	whole := f.contents()

	for n := 1; ; n++ {
		f.reset()
		ctx, cancel := context.WithCancel(context.Background())
		f.recorded.arm(n, fault, cancel)
		got, err := op.call(ctx, f)
		met := f.recorded.disarm()
		cancel()
		where := fmt.Sprintf("%s, call %d is %s: %v", op.name, n, fault, err)
		after := f.contents()
		switch {
		case err == nil:
			require.Equal(f.t, whole, after, where)
			require.Equal(f.t, want, got, where)
		case errors.Is(err, outbox.ErrCommitUnknown):
			require.Contains(f.t, []string{before, whole}, after, where)
		default:
			require.Equal(f.t, before, after, where)
			require.True(f.t, explains(err, fault), where)
		}
		f.worksOn(where)
		if !met {
			require.NoError(f.t, err, where)
			return n - 1
		}
	}
}

// explains reports whether an error tells which fault a call met.
func explains(err error, fault fault) bool {
	switch {
	case errors.Is(err, outbox.ErrRolledBack):
		return true
	case fault == overtaken:
		return errors.Is(err, context.Canceled)
	case fault == disowned:
		return errors.Is(err, outbox.ErrUnavailable)
	case strings.HasPrefix(string(fault), "panicking"):
		return errors.Is(err, outbox.ErrUnavailable) && strings.Contains(err.Error(), errTold.Error())
	}
	return errors.Is(err, errTold)
}

// worksOn makes the calls of a whole life.
func (f *faulty) worksOn(where string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	row := row(uuid.New(), 0)
	row.TaskQueue = "next"
	_, err := f.Append(ctx, row)
	require.NoError(f.t, err, where)
	claimed, err := f.ClaimScoped(ctx, outbox.Scope{Namespace: "default", TaskQueue: "next"}, 9)
	require.NoError(f.t, err, where)
	require.Len(f.t, claimed, 1, where)
	require.NoError(f.t, f.Complete(ctx, claimed[0].Ref()), where)
	if f.db != nil {
		eventually(f.t, func() bool { return f.db.Stats().InUse == 0 }, "connections are given back: "+where)
	}
}

func TestPanicOfAHostsDriverReachesTheCallerAndHangsNoStore(t *testing.T) {
	f := newFaulty(t, openFaultyHost)
	db := f.db
	f.db = nil // a query that panics costs the pool a connection
	panics := 0
	for _, op := range operations {
		for _, fault := range []fault{panicking, panickingLate} {
			f.reset()
			before := f.contents()
			_, err := op.call(t.Context(), f)
			require.NoError(t, err)
			whole := f.contents()
			for n, met := 1, true; met; n++ {
				f.reset()
				f.recorded.arm(n, fault, nil)
				panicked, err := f.recovered(op)
				met = f.recorded.disarm()
				where := fmt.Sprintf("%s, call %d is %s: %v %v", op.name, n, fault, panicked, err)
				if panicked != nil {
					panics++
					require.Equal(t, errTold, panicked, where)
					require.Contains(t, []string{before, whole}, f.contents(), where)
				}
				f.worksOn(where)
			}
		}
	}
	t.Log("panics:", panics, "connections lost:", db.Stats().InUse)
	require.Less(t, db.Stats().InUse, panics, "others cost none")
	require.NoError(t, f.Close())
	require.NoError(t, db.Close())
}

// recovered returns what a call panicked with.
func (f *faulty) recovered(op operation) (panicked any, err error) {
	defer func() { panicked = recover() }()
	_, err = op.call(f.t.Context(), f)
	return nil, err
}
