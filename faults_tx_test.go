package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"example.com/outbox"
	"github.com/stretchr/testify/require"
)

// txForms are the calls that have a Tx.
var txForms = []struct {
	name string
	call func(ctx context.Context, f *faulty, tx outbox.Tx) error
}{
	{"AppendTx", func(ctx context.Context, f *faulty, tx outbox.Tx) error {
		_, err := f.AppendTx(ctx, tx, row(faultyWorkflow, 0), row(faultyWorkflow, 20), large(row(faultyWorkflow, 21)))
		return err
	}},
	{"RearmTx", func(ctx context.Context, f *faulty, tx outbox.Tx) error {
		return f.RearmTx(ctx, tx, row(faultyWorkflow, 7), large(row(faultyWorkflow, 20)))
	}},
	{"CompleteTx", func(ctx context.Context, f *faulty, tx outbox.Tx) error {
		_, err := lost(f.CompleteTx(ctx, tx, held(4), held(9)))
		return err
	}},
	{"CancelTx", func(ctx context.Context, f *faulty, tx outbox.Tx) error {
		_, err := lost(f.CancelTx(ctx, tx, held(4), held(9), outbox.Ref{DispatchKey: key(0)}))
		return err
	}},
	{"FailTx", func(ctx context.Context, f *faulty, tx outbox.Tx) error { return f.FailTx(ctx, tx, held(4), errTold) }},
	{"RetryTx", func(ctx context.Context, f *faulty, tx outbox.Tx) error {
		return f.RetryTx(ctx, tx, held(4), 1, time.Time{}, errTold)
	}},
	{"SettleWorkflowTx", func(ctx context.Context, f *faulty, tx outbox.Tx) error {
		_, err := f.SettleWorkflowTx(ctx, tx, faultyWorkflow)
		return err
	}},
}

// hostTransactions are the ways in which a host begins one.
var hostTransactions = []struct {
	name  string
	begin func(f *faulty) (tx outbox.Tx, commit func() error)
}{
	{"a *sql.Tx", func(f *faulty) (outbox.Tx, func() error) {
		tx, err := f.db.Begin()
		require.NoError(f.t, err)
		return tx, tx.Commit
	}},
	{"a *sql.Conn inside a transaction", func(f *faulty) (outbox.Tx, func() error) {
		conn := f.conn()
		_, err := conn.ExecContext(context.Background(), "BEGIN IMMEDIATE")
		require.NoError(f.t, err)
		return conn, func() error {
			_, err := conn.ExecContext(context.Background(), "COMMIT")
			return errors.Join(err, conn.Close())
		}
	}},
	{"a *sql.Conn", func(f *faulty) (outbox.Tx, func() error) {
		conn := f.conn()
		return conn, conn.Close
	}},
}

func (f *faulty) conn() *sql.Conn {
	f.t.Helper()
	conn, err := f.db.Conn(context.Background())
	require.NoError(f.t, err)
	return conn
}

func TestTxFormThatFailsLeavesTheTransactionOfTheHostAsItWas(t *testing.T) {
	f := newFaulty(t, openFaultyHost)
	total := 0
	for _, transaction := range hostTransactions {
		for _, form := range txForms {
			for _, fault := range []fault{refused, answerless, overtaken} {
				inside := func(n int, call func(ctx context.Context, f *faulty, tx outbox.Tx) error) (met bool, err error) {
					f.reset()
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					tx, commit := transaction.begin(f)
					_, failed := tx.ExecContext(ctx, "INSERT INTO history VALUES ('before')")
					require.NoError(t, failed)
					f.recorded.arm(n, fault, cancel)
					err = call(ctx, f, tx)
					met = f.recorded.disarm()
					if errors.Is(err, outbox.ErrCommitUnknown) { // the connection was thrown away
						require.ErrorIs(t, commit(), sql.ErrConnDone)
						return met, err
					}
					_, failed = tx.ExecContext(context.Background(), "INSERT INTO history VALUES ('after')")
					require.NoError(t, failed)
					require.NoError(t, commit())
					return met, err
				}
				_, err := inside(0, func(context.Context, *faulty, outbox.Tx) error { return nil })
				require.NoError(t, err)
				before := f.contents()
				_, err = inside(0, form.call)
				require.NoError(t, err)
				whole := f.contents()
				require.NotEqual(t, before, whole)
				first := 1
				if transaction.name == "a *sql.Conn" && fault == answerless {
					first = 2 // a BEGIN of the call's own cannot be told from one of the host's
				}
				for n, met := first, true; met; n++ {
					met, err = inside(n, form.call)
					where := fmt.Sprintf("%s in %s, call %d is %s: %v", form.name, transaction.name, n, fault, err)
					switch {
					case err == nil:
						require.Equal(t, whole, f.contents(), where)
					case errors.Is(err, outbox.ErrCommitUnknown):
						f.exec("INSERT INTO history VALUES ('after')")
						require.Contains(t, []string{before, whole}, f.contents(), where)
					default:
						require.Equal(t, before, f.contents(), where)
						require.True(t, explains(err, fault), where)
					}
					f.worksOn(where)
					total++
				}
			}
		}
	}
	t.Log("faults:", total)
}

func TestFaultsAreDoneToEveryCall(t *testing.T) {
	tried := make(map[string]bool)
	for _, op := range operations {
		tried[op.name] = true
	}
	for _, form := range txForms {
		tried[form.name] = true
	}
	store := open(t, ":memory:", nil)
	for name := range everyCall(store, outbox.Ref{}, new(sql.Tx)) {
		require.True(t, tried[name], name)
	}
}
