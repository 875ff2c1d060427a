package outboxtest

import (
	"context"
	"strings"
	"sync"
	"time"

	"example.com/outbox"
	"github.com/stretchr/testify/require"
)

var purgingRules = []rule{
	{"purge deletes settled rows that finished before, the oldest first", func(s *suite) {
		var rows []outbox.Row
		for i := range 6 {
			row := s.row(i)
			row.Input.Data = []byte(strings.Repeat("x", i*600))
			rows = append(rows, row)
		}
		s.stage(rows...)
		for i, row := range s.claim(5) {
			s.clock.Advance(time.Second)
			switch i {
			case 0:
				require.NoError(s.t, s.Fail(s.ctx, row.Ref(), errBoom))
			case 1:
				require.NoError(s.t, s.Cancel(s.ctx, row.Ref()))
			default:
				require.NoError(s.t, s.Complete(s.ctx, row.Ref()))
			}
		}
		purge := func(before time.Time, limit, want int) {
			n, err := s.Purge(s.ctx, before, limit)
			require.NoError(s.t, err)
			require.Equal(s.t, want, n)
		}
		purge(s.clock.Now(), 0, 0)
		purge(s.clock.Now(), 2, 2)
		_, err := s.Get(s.ctx, s.key(1))
		require.ErrorIs(s.t, err, outbox.ErrNotFound)
		purge(s.clock.Now(), 9, 2) // strictly before
		purge(s.clock.Now().Add(1), 9, 1)
		require.Equal(s.t, s.keys(5), keysOf(s.rows()))
		require.Equal(s.t, 1, s.count(`SELECT count(*) FROM outbox_payload`))
		s.stage(s.row(0))
		require.Zero(s.t, s.get(s.key(0)).Fence, "a purged key starts anew")
	}},
	{"purge goes on past its pages", func(s *suite) {
		s.stageN(2500)
		_, err := s.SettleWorkflow(s.ctx, s.workflow)
		require.NoError(s.t, err)
		n, err := s.Purge(s.ctx, s.clock.Now().Add(1), 2200)
		require.NoError(s.t, err)
		require.Equal(s.t, 2200, n)
		n, err = s.Purge(s.ctx, s.clock.Now().Add(1), 1<<40)
		require.NoError(s.t, err)
		require.Equal(s.t, 300, n)
	}},
	{"purge keeps what a foreign key refers to, names it, and deletes the rest", func(s *suite) {
		for _, clause := range []string{"", "DEFERRABLE INITIALLY DEFERRED", "ON DELETE RESTRICT"} {
			drop := s.table(`"the ""receipts"`, `"a b" TEXT REFERENCES outbox (dispatch_key) `+clause)
			dropGone := s.table(`gone`, `dispatch TEXT REFERENCES outbox (dispatch_key) ON DELETE CASCADE`)
			s.finished(6)
			refer := func(table string, ordinal int) { s.exec(`INSERT INTO `+table+` VALUES (?)`, s.key(ordinal)) }
			refer(`"the ""receipts"`, 0)
			refer(`"the ""receipts"`, 3)
			refer(`"the ""receipts"`, 3)
			refer("gone", 1)

			if !s.enforcesForeignKeys() {
				s.purge(6)
				drop()
				dropGone()
				continue
			}
			purged, err := s.Purge(s.ctx, s.clock.Now(), 10)
			require.Equal(s.t, 4, purged)
			var referenced *outbox.ReferencedError
			require.ErrorAs(s.t, err, &referenced)
			require.ErrorIs(s.t, err, outbox.ErrReferenced)
			require.Equal(s.t, s.keys(0, 3), referenced.DispatchKeys)
			require.Contains(s.t, err.Error(), s.key(3))
			require.Equal(s.t, s.keys(0, 3), keysOf(s.rows()))
			require.Zero(s.t, s.count(`SELECT count(*) FROM gone`))

			purged, err = s.Purge(s.ctx, s.clock.Now(), 1)
			require.Zero(s.t, purged)
			require.ErrorAs(s.t, err, &referenced)
			require.Equal(s.t, s.keys(0), referenced.DispatchKeys, "no more than the limit")
			drop()
			s.purge(2)
			dropGone()
		}
	}},
	{"what is referred to takes nothing of the limit from what is not", func(s *suite) {
		s.table(`receipt`, `dispatch TEXT REFERENCES outbox (dispatch_key)`)
		s.finished(10)
		for i := range 4 {
			s.exec(`INSERT INTO receipt VALUES (?)`, s.key(i))
		}
		if !s.enforcesForeignKeys() {
			s.purge(10)
			return
		}
		for range 2 {
			purged, err := s.Purge(s.ctx, s.clock.Now(), 3)
			require.ErrorIs(s.t, err, outbox.ErrReferenced)
			require.Equal(s.t, 3, purged)
		}
		require.Equal(s.t, s.keys(0, 1, 2, 3), keysOf(s.rows()))
	}},
	{"a foreign key to several columns, or to the id, is one like others", func(s *suite) {
		s.exec(`CREATE UNIQUE INDEX outbox_place ON outbox (workflow_id, ordinal)`)
		s.table(`placed`, `ordinal INTEGER, workflow TEXT, FOREIGN KEY (workflow, ordinal) REFERENCES outbox (workflow_id, ordinal)`)
		s.table(`numbered`, `id INTEGER REFERENCES outbox`)
		s.finished(4)
		s.exec(`INSERT INTO placed VALUES (0, ?)`, s.workflow.String())
		s.exec(`INSERT INTO placed VALUES (1, NULL)`)
		s.exec(`INSERT INTO numbered VALUES (?), (NULL)`, s.get(s.key(2)).ID)
		if !s.enforcesForeignKeys() {
			s.purge(4)
			return
		}
		purged, err := s.Purge(s.ctx, s.clock.Now(), 10)
		var referenced *outbox.ReferencedError
		require.ErrorAs(s.t, err, &referenced)
		require.Equal(s.t, s.keys(0, 2), referenced.DispatchKeys)
		require.Equal(s.t, 2, purged)
	}},
}

// finished stages row(0) to row(n-1) as done a minute ago, a second after each
// other, the last with large payloads.
func (s *suite) finished(n int) {
	s.t.Helper()
	for i := range n {
		row := s.row(i)
		row.Status, row.FinishedAt = outbox.Done, s.clock.Now().Add(time.Duration(i)*time.Second-time.Minute)
		if i > n/2 {
			row.Input.Data = make([]byte, 5000)
		}
		s.stage(row)
	}
}

func (s *suite) purge(want int) {
	s.t.Helper()
	n, err := s.Purge(s.ctx, s.clock.Now(), 1000)
	require.NoError(s.t, err)
	require.Equal(s.t, want, n)
}

// enforcesForeignKeys reports whether connections of the store do. Not all
// drivers have them do so by themselves, and it cannot be asked of a server.
func (s *suite) enforcesForeignKeys() bool {
	s.t.Helper()
	dropParent := s.table(`parent`, `id INTEGER PRIMARY KEY`)
	drop := s.table(`child`, `parent INTEGER REFERENCES parent (id)`)
	defer func() { drop(); dropParent() }()
	err := s.tryExec(`INSERT INTO child VALUES (1)`)
	if err != nil {
		require.ErrorContains(s.t, err, "FOREIGN KEY")
	}
	return err != nil
}

// table makes a table that is dropped with the rule, or before, so that the next
// one finds nothing that refers to the store.
func (s *suite) table(name, columns string) (drop func()) {
	s.t.Helper()
	s.exec(`CREATE TABLE ` + name + ` (` + columns + `)`)
	var once sync.Once
	drop = func() {
		once.Do(func() {
			err := s.Update(context.WithoutCancel(s.ctx), func(ctx context.Context, tx outbox.Tx) error {
				_, err := tx.ExecContext(ctx, `DROP TABLE `+name)
				return err
			})
			if err != nil {
				s.t.Errorf("drop %s: %v", name, err)
			}
		})
	}
	s.t.Cleanup(drop)
	return drop
}
