package torture

import (
	"context"
	"database/sql"
	"log/slog"
	"math"
	"sync"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/stretchr/testify/require"
	_ "github.com/tursodatabase/go-libsql"
	"pgregory.net/rapid"
)

// checkModel makes random sequences of calls on a target and on the model. Each
// sequence survives two crashes.
func checkModel(t *testing.T, place target) {
	steps := 0
	rapid.Check(t, func(r *rapid.T) {
		m := newMachine(t, r, place)
		for life := range 3 {
			if life > 0 {
				m.crash(r)
			}
			r.Repeat(m.actions())
		}
		m.inspect(r)
		steps += m.steps
	})
	t.Logf("%d steps", steps)
}

// machine is several stores over one database, and what they ought to hold.
type machine struct {
	t     testing.TB
	ctx   context.Context
	place target
	dsn   string
	model *model
	nodes []*node

	handed []outbox.Ref // of claims so far, most of them lost by now
	steps  int
}

// node is a store with a clock of its own, as on another machine.
type node struct {
	store *outbox.Store
	clock *clock
	host  *sql.DB // the host's own, if the store was made by New
}

// The nodes of a machine: two that Open opens, and one on a database of the
// host's.
const hostNode, nodes = 2, 3

func newMachine(t testing.TB, r *rapid.T, place target) *machine {
	m := &machine{t: t, ctx: context.Background(), place: place, model: &model{rows: map[string]outbox.Row{}}}
	m.dsn = place.fresh(t, r)
	for i := range nodes {
		m.nodes = append(m.nodes, &node{clock: &clock{at: base}})
		m.open(r, i)
	}
	r.Cleanup(func() {
		for _, n := range m.nodes {
			m.close(r, n)
		}
	})
	m.exec(r, "DELETE FROM outbox")
	for _, statement := range hostSchema {
		m.exec(r, statement)
	}
	return m
}

// hostSchema is what a host has beside the store: a history, and triggers that
// refuse some rows.
var hostSchema = []string{
	"DROP TABLE IF EXISTS history",
	"CREATE TABLE history (event INTEGER PRIMARY KEY)",
	"INSERT INTO history VALUES (0)",
	"CREATE TRIGGER IF NOT EXISTS host_forbids AFTER INSERT ON outbox WHEN NEW.activity_type = '" + forbidden +
		"' BEGIN SELECT RAISE(ABORT, 'the host forbids it'); END",
	"CREATE TRIGGER IF NOT EXISTS host_ends AFTER INSERT ON outbox WHEN NEW.activity_type = '" + fatal +
		"' BEGIN SELECT RAISE(ROLLBACK, 'the host ends the transaction'); END",
}

// exec runs a statement of the host's.
func (m *machine) exec(r *rapid.T, statement string) {
	require.NoError(r, m.nodes[0].store.Update(m.ctx, func(ctx context.Context, tx outbox.Tx) error {
		_, err := tx.ExecContext(ctx, statement)
		return err
	}), statement)
}

func (m *machine) open(r *rapid.T, i int) {
	n := m.nodes[i]
	opts := &outbox.Options{Now: n.clock.now, Logger: slog.New(slog.DiscardHandler)}
	var err error
	if i != hostNode {
		n.store, err = outbox.Open(m.ctx, m.place.driverName(), m.dsn, opts)
		require.NoError(r, err)
		return
	}
	n.host, err = sql.Open(m.place.driverName(), m.dsn)
	require.NoError(r, err)
	n.host.SetMaxOpenConns(m.place.hostConnections)
	n.store = outbox.New(n.host, opts)
	require.NoError(r, n.store.Migrate(m.ctx))
}

func (m *machine) close(r *rapid.T, n *node) {
	require.NoError(r, n.store.Close())
	_, err := n.store.Get(m.ctx, "a")
	require.ErrorIs(r, err, outbox.ErrClosed)
	if n.host != nil {
		require.NoError(r, n.host.Close())
	}
}

// actions are the steps of a sequence. Those that should come more often have
// several names.
func (m *machine) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":       m.compare,
		"append": m.append, "append more": m.append, "rearm": m.rearm,
		"claim": m.claim, "claim more": m.claim, "extend": m.extend,
		"list stale": m.listStale, "rearm stale": m.rearmStale,
		"complete": m.complete, "cancel": m.cancel, "fail": m.fail, "retry": m.retry,
		"settle workflow": m.settleWorkflow, "requeue": m.requeue, "purge": m.purge,
		"get": m.get, "list": m.list, "count": m.count, "routes": m.routes,
		"update": m.update, "update more": m.update, "host transaction": m.hostTransaction,
		"set clock": m.setClock, "set clock more": m.setClock, "reopen": m.reopen,
	}
}

// compare is done after every step: the whole table, read by one of the nodes
// in turn, is that of the model.
func (m *machine) compare(r *rapid.T) {
	m.steps++
	rows, err := m.nodes[m.steps%nodes].store.List(m.ctx, outbox.Filter{})
	require.NoError(r, err)
	m.number(r, rows)
	want, err := m.model.list(outbox.Filter{})
	require.NoError(r, err)
	requireRows(r, want, rows)
	if m.steps%16 == 0 {
		m.inspect(r)
	}
}

// number gives new rows of the model the IDs that the store gave: in the order
// of their staging, and larger than those before.
func (m *machine) number(r *rapid.T, stored []outbox.Row) {
	ordered, err := m.model.list(outbox.Filter{})
	require.NoError(r, err)
	require.Equal(r, keysOf(ordered), keysOf(stored))
	last := int64(0)
	for i, row := range ordered {
		if row.ID > unnumbered {
			row.ID = stored[i].ID
			m.model.rows[row.DispatchKey] = row
		}
		require.Greater(r, row.ID, last)
		last = row.ID
	}
}

// inspect looks at what no call shows: the invariants of the tables, and the
// host's own.
func (m *machine) inspect(r *rapid.T) {
	n := m.nodes[m.steps/16%nodes]
	outboxtest.Check(rapidTB{m.t, r}, n.store)
	require.NoError(r, n.store.Update(m.ctx, func(ctx context.Context, tx outbox.Tx) error {
		var events int
		err := tx.QueryRowContext(ctx, "SELECT count(*) - 1 FROM history").Scan(&events)
		require.Equal(r, m.model.events, events, "events of the host")
		return err
	}))
}

// rapidTB lets helpers that want a testing.TB fail a sequence.
type rapidTB struct {
	testing.TB
	r *rapid.T
}

func (t rapidTB) Helper()                           {}
func (t rapidTB) Errorf(format string, args ...any) { t.r.Errorf(format, args...) }
func (t rapidTB) FailNow()                          { t.r.FailNow() }

// clock stands still, or moves by a step each time it is read. It remembers what
// it said last: the now of a call.
type clock struct {
	mu    sync.Mutex
	at    time.Time
	step  time.Duration
	said  time.Time
	reads int // since it was listened to
}

// listen forgets what the clock has said.
func (c *clock) listen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads = 0
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = c.at
	c.at = c.at.Add(c.step)
	c.reads++
	return c.said
}

// now is the instant at which the last call of the node took place. A write
// reads its clock once, when it has the lock. Reads, and the look of a claim
// before it locks, may be done again on another connection.
func (n *node) now(r *rapid.T, most int) time.Time {
	n.clock.mu.Lock()
	defer n.clock.mu.Unlock()
	require.LessOrEqual(r, n.clock.reads, most, "readings of the clock in one call")
	n.clock.reads = 0
	return n.clock.said.UTC()
}

const anyTimes = math.MaxInt

// setClock sets the clock of one node, backwards as well as forwards.
func (m *machine) setClock(r *rapid.T) {
	c := m.node(r).clock
	c.at = storable.Filter(func(at moment) bool { return !at.IsZero() }).Draw(r, "at").Time
	c.step = rapid.SampledFrom([]time.Duration{0, 0, 0, 0, 1, -1, time.Hour, -time.Hour}).Draw(r, "step")
	if year := c.at.Year(); year == 0 || year == 9999 {
		c.step = 0 // it would leave the years that can be stored
	}
}

// reopen closes a store and opens it again.
func (m *machine) reopen(r *rapid.T) {
	i := rapid.IntRange(0, nodes-1).Draw(r, "node")
	m.close(r, m.nodes[i])
	m.open(r, i)
}
