package torture

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// calls makes a few calls inside a transaction, on the store and on staged. It
// reports whether the host has ended the transaction meanwhile; then nothing
// more may get through.
func (m *machine) calls(ctx context.Context, r *rapid.T, n *node, tx outbox.Tx, staged *model) (ended bool) {
	n.clock.listen()
	for range rapid.IntRange(0, 4).Draw(r, "calls") {
		var got, want []string
		var err, wantErr error
		switch rapid.SampledFrom([]string{"append", "append", "rearm", "complete", "settle workflow", "event"}).Draw(r, "call") {
		case "append":
			rows := drawRows(r)
			got, err = n.store.AppendTx(ctx, tx, rows...)
			want, wantErr = staged.append(n.now(r, 1), rows)
		case "rearm":
			rows := drawRows(r)
			err = n.store.RearmTx(ctx, tx, rows...)
			wantErr = staged.rearm(n.now(r, 1), rows)
		case "complete":
			refs := m.drawRefs(r)
			err = n.store.CompleteTx(ctx, tx, refs...)
			wantErr = staged.complete(n.now(r, 1), refs)
		case "settle workflow":
			workflow := drawWorkflow(r)
			got, err = n.store.SettleWorkflowTx(ctx, tx, workflow)
			want, wantErr = staged.settleWorkflow(n.now(r, 1), workflow)
		case "event":
			staged.events++
			_, err = tx.ExecContext(ctx, "INSERT INTO history VALUES (?)", staged.events)
		}
		requireOutcome(r, wantErr, err)
		require.Equal(r, orNone(want), orNone(got))
		if errors.Is(wantErr, errFatal) {
			return true
		}
	}
	return false
}

// lookFromOutside reads by another node what was there before a transaction.
func (m *machine) lookFromOutside(r *rapid.T, inside *node) {
	if !m.place.isolated {
		return
	}
	for _, n := range m.nodes {
		if n != inside {
			rows, err := n.store.List(m.ctx, outbox.Filter{})
			require.NoError(r, err)
			want, err := m.model.list(outbox.Filter{})
			require.NoError(r, err)
			requireRows(r, want, rows)
			return
		}
	}
}

var errUpdate = errors.New("the function failed")

// update runs calls in an Update that ends in one of many ways.
func (m *machine) update(r *rapid.T) {
	n, staged := m.node(r), m.model.clone()
	end := rapid.SampledFrom([]string{"commit", "commit", "commit", "error", "panic", "cancel", "end the transaction", "call without Tx"}).Draw(r, "end")
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	var ended bool
	err := recovered(func() error {
		return n.store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
			ended = m.calls(ctx, r, n, tx, staged)
			m.lookFromOutside(r, n)
			if !ended && end == "end the transaction" {
				_, err := tx.ExecContext(ctx, "INSERT OR ROLLBACK INTO history VALUES (0)")
				require.Error(r, err)
				ended = true
			}
			if ended {
				m.requireRefused(ctx, r, n, tx)
				return nil
			}
			switch end {
			case "error":
				return errUpdate
			case "panic":
				panic(errUpdate)
			case "cancel":
				cancel()
			case "call without Tx":
				m.requireInUpdate(ctx, r, n)
			}
			return nil
		})
	})
	switch {
	case ended:
		require.ErrorIs(r, err, outbox.ErrRolledBack)
	case end == "error", end == "panic":
		require.Equal(r, errUpdate, err)
	case end == "cancel":
		require.ErrorIs(r, err, context.Canceled)
	default:
		require.NoError(r, err)
		m.model = staged
	}
}

// requireRefused tries to store more after the transaction is gone.
func (m *machine) requireRefused(ctx context.Context, r *rapid.T, n *node, tx outbox.Tx) {
	_, err := n.store.AppendTx(ctx, tx, outbox.Row{WorkflowID: uuid.New(), ActivityType: "late"})
	require.ErrorIs(r, err, outbox.ErrRolledBack)
	_, err = tx.ExecContext(ctx, "INSERT INTO history VALUES (-1)")
	require.ErrorIs(r, err, outbox.ErrRolledBack)
}

// requireInUpdate makes calls that would wait for their own transaction.
func (m *machine) requireInUpdate(ctx context.Context, r *rapid.T, n *node) {
	_, appendErr := n.store.Append(ctx, outbox.Row{WorkflowID: uuid.New(), ActivityType: "send"})
	_, claimErr := n.store.Claim(ctx, 1)
	_, stateErr := n.store.State(ctx, "a")
	_, purgeErr := n.store.Purge(ctx, base, 1)
	nested := n.store.Update(ctx, func(context.Context, outbox.Tx) error { return nil })
	for _, err := range []error{appendErr, claimErr, stateErr, purgeErr, nested, n.store.Extend(ctx, outbox.Ref{DispatchKey: "a"})} {
		require.ErrorIs(r, err, outbox.ErrInUpdate)
	}
}

// recovered returns errUpdate also if fn panics with it.
func recovered(fn func() error) (err error) {
	defer func() {
		if p := recover(); p == errUpdate {
			err = errUpdate
		} else if p != nil {
			panic(p)
		}
	}()
	return fn()
}

// hostTransaction runs calls in a transaction of the host's own: a *sql.Tx, a
// *sql.Conn in one, or a *sql.Conn in none, where each call has its own.
func (m *machine) hostTransaction(r *rapid.T) {
	n, staged := m.nodes[hostNode], m.model.clone()
	switch rapid.SampledFrom([]string{"tx", "conn in a transaction", "conn"}).Draw(r, "kind") {
	case "tx":
		tx, err := n.host.BeginTx(m.ctx, nil)
		require.NoError(r, err)
		defer func() { _ = tx.Rollback() }()
		if m.calls(m.ctx, r, n, tx, staged) || rapid.Bool().Draw(r, "roll back") {
			return
		}
		require.NoError(r, tx.Commit())
	case "conn in a transaction":
		conn := m.begin(r)
		defer conn.Close()
		end := rapid.SampledFrom([]string{"COMMIT", "COMMIT", "ROLLBACK", "abandon"}).Draw(r, "end")
		ended := m.calls(m.ctx, r, n, conn, staged)
		m.lookFromOutside(r, n)
		if end == "abandon" || ended {
			abandon(conn)
			return
		}
		_, err := conn.ExecContext(m.ctx, end)
		require.NoError(r, err)
		if end == "ROLLBACK" {
			return
		}
	case "conn":
		conn, err := n.host.Conn(m.ctx)
		require.NoError(r, err)
		defer conn.Close()
		m.calls(m.ctx, r, n, conn, staged)
	}
	m.model = staged
}

// begin returns a connection of the host's inside a transaction.
func (m *machine) begin(r *rapid.T) *sql.Conn {
	conn, err := m.nodes[hostNode].host.Conn(m.ctx)
	require.NoError(r, err)
	for range 5000 { // a connection that was thrown away may still be closing
		_, err = conn.ExecContext(m.ctx, "BEGIN IMMEDIATE")
		if err == nil || !strings.Contains(err.Error(), "locked") {
			break
		}
		time.Sleep(time.Millisecond)
	}
	require.NoError(r, err)
	return conn
}

// abandon throws a connection away as it is, with its transaction.
func abandon(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}

// crash lets the database crash in the middle of a transaction of the host's.
// The stores go on if it comes back where it was. Otherwise they are left as
// they are, nothing closed, for others over what was found on the disk.
func (m *machine) crash(r *rapid.T) {
	conn := m.begin(r)
	defer conn.Close()
	n, staged := m.nodes[hostNode], m.model.clone()
	// More than the cache holds is written to the disk before the COMMIT.
	large := outbox.Row{DispatchKey: "large", WorkflowID: crowd, ActivityType: "lost", Input: outbox.Payload{Data: fill(3 << 20)}}
	_, err := n.store.AppendTx(m.ctx, conn, large)
	require.NoError(r, err)
	_, err = staged.append(n.clock.said, []outbox.Row{large})
	require.NoError(r, err)
	m.calls(m.ctx, r, n, conn, staged)
	left, before := m.nodes, m.dsn
	m.dsn = m.place.crash(m.t, r, before)
	abandon(conn)
	if m.dsn == before {
		return
	}
	m.nodes = nil
	for i, n := range left {
		m.nodes = append(m.nodes, &node{clock: n.clock})
		m.open(r, i)
	}
	for _, n := range left {
		m.close(r, n)
	}
}
