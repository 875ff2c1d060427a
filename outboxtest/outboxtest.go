// Package outboxtest helps to test programs that use package outbox.
//
// [New] gives a test a store in memory whose clock it sets, and checks when the
// test ends that the store is consistent. [Check] does that check alone.
//
// [Run] is the specification of outbox as a conformance suite: every target
// that outbox supports passes it, and a user can run it on a setup of his own
// (another driver, another server), in the manner of [testing/slogtest].
//
// The package imports no driver. New takes one that the test binary has
// registered with database/sql.
package outboxtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// Store is a store in memory with the clock that it reads.
type Store struct {
	*outbox.Store
	Clock *Clock
}

// New opens a store in memory, with a driver for SQLite that is registered with
// database/sql. When the test ends, the store is checked and closed.
func New(t testing.TB) *Store {
	t.Helper()
	driver := ""
	for _, name := range []string{"libsql", "sqlite3", "sqlite"} {
		if slices.Contains(sql.Drivers(), name) {
			driver = name
			break
		}
	}
	if driver == "" {
		t.Fatal("outboxtest: no SQLite driver is registered; import one, such as github.com/tursodatabase/go-libsql")
	}
	clock := NewClock()
	store, err := outbox.Open(context.Background(), driver, ":memory:", &outbox.Options{Now: clock.Now})
	require.NoError(t, err)
	t.Cleanup(func() {
		Check(t, store)
		require.NoError(t, store.Close())
	})
	return &Store{store, clock}
}

// Clock is a clock for outbox.Options.Now that stands still until it is set.
type Clock struct {
	mu     sync.Mutex
	now    time.Time
	broken any // what Now panics with, if it does
}

// NewClock returns a clock that stands at an instant with nine fraction digits.
func NewClock() *Clock {
	return &Clock{now: time.Date(2024, 2, 29, 12, 30, 15, 123456789, time.UTC)}
}

// Now returns the instant the clock stands at.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		panic(c.broken)
	}
	return c.now
}

func (c *Clock) breakWith(panics any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = panics
}

// Set makes the clock stand at an instant, which may lie before the last one.
func (c *Clock) Set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = at
}

// Advance moves the clock by d, which may be negative.
func (c *Clock) Advance(d time.Duration) { c.Set(c.Now().Add(d)) }

// Run checks that stores of one setup keep every rule of package outbox. open
// returns an empty, migrated store with the given options each time it is
// called, and sees to its closing. Each rule is a subtest named after it.
func Run(t *testing.T, open func(t *testing.T, opts *outbox.Options) *outbox.Store) {
	for _, chapter := range []struct {
		name  string
		rules []rule
	}{
		{"Staging", stagingRules},
		{"Claiming", claimingRules},
		{"Stale", staleRules},
		{"Transitions", transitionRules},
		{"Settling", settlingRules},
		{"TxForms", txFormRules},
		{"Purging", purgingRules},
		{"Reading", readingRules},
		{"Waking", wakingRules},
		{"Update", updateRules},
		{"Values", valueRules},
		{"Input", inputRules},
		{"Schema", schemaRules},
		{"Damage", damageRules},
		{"Time", timeRules},
		{"Concurrency", concurrencyRules},
	} {
		t.Run(chapter.name, func(t *testing.T) {
			for _, rule := range chapter.rules {
				t.Run(rule.name, func(t *testing.T) {
					clock := NewClock()
					store := open(t, &outbox.Options{Now: clock.Now, Logger: quiet})
					s := &suite{Store: store, t: t, clock: clock, ctx: t.Context(), workflow: uuid.New()}
					t.Cleanup(func() {
						if !t.Failed() {
							Check(t, store)
						}
					})
					rule.check(s)
				})
			}
		})
	}
}

var (
	quiet   = slog.New(slog.DiscardHandler)
	errBoom = errors.New("boom")
)

// rule is one sentence of the specification.
type rule struct {
	name  string
	check func(s *suite)
}

// suite is what a rule works with: an empty store and its clock.
type suite struct {
	*outbox.Store
	t        *testing.T
	clock    *Clock
	ctx      context.Context
	workflow uuid.UUID
}

// row returns a row of the suite's workflow.
func (s *suite) row(ordinal int) outbox.Row {
	return outbox.Row{
		WorkflowID:   s.workflow,
		Ordinal:      uint64(ordinal),
		ActivityType: "send",
		Input:        outbox.Payload{ContentType: "text/plain", Data: fmt.Appendf(nil, "input %d", ordinal)},
	}
}

// key returns the key of row(ordinal).
func (s *suite) key(ordinal int) string { return outbox.DispatchKey(s.workflow, uint64(ordinal)) }

func (s *suite) keys(ordinals ...int) []string {
	var keys []string
	for _, ordinal := range ordinals {
		keys = append(keys, s.key(ordinal))
	}
	return keys
}

// stage appends rows, none of which may be known.
func (s *suite) stage(rows ...outbox.Row) {
	s.t.Helper()
	duplicates, err := s.Append(s.ctx, rows...)
	require.NoError(s.t, err)
	require.Empty(s.t, duplicates)
}

// stageN appends row(0) to row(n-1).
func (s *suite) stageN(n int) {
	s.t.Helper()
	var rows []outbox.Row
	for i := range n {
		rows = append(rows, s.row(i))
	}
	s.stage(rows...)
}

func (s *suite) claim(limit int) []outbox.Row {
	s.t.Helper()
	rows, err := s.Claim(s.ctx, limit)
	require.NoError(s.t, err)
	return rows
}

// claimOne claims the only row that is due.
func (s *suite) claimOne() outbox.Row {
	s.t.Helper()
	rows := s.claim(2)
	require.Len(s.t, rows, 1)
	return rows[0]
}

func (s *suite) get(key string) outbox.Row {
	s.t.Helper()
	row, err := s.Get(s.ctx, key)
	require.NoError(s.t, err)
	return row
}

func (s *suite) status(key string) outbox.Status {
	s.t.Helper()
	state, err := s.State(s.ctx, key)
	require.NoError(s.t, err)
	return state.Status
}

// exec runs a statement on the database, to plant what no method would store.
func (s *suite) exec(query string, args ...any) {
	s.t.Helper()
	require.NoError(s.t, s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	}))
}

func (s *suite) tryExec(query string) error {
	return s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
		_, err := tx.ExecContext(ctx, query)
		return err
	})
}

// count runs a query for one number.
func (s *suite) count(query string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
		return tx.QueryRowContext(ctx, query, args...).Scan(&n)
	}))
	return n
}

// rows returns all rows in staging order.
func (s *suite) rows() []outbox.Row {
	s.t.Helper()
	rows, err := s.List(s.ctx, outbox.Filter{})
	require.NoError(s.t, err)
	return rows
}

func keysOf(rows []outbox.Row) []string {
	var keys []string
	for _, row := range rows {
		keys = append(keys, row.DispatchKey)
	}
	return keys
}
