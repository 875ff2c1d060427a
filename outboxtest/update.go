package outboxtest

import (
	"context"
	"runtime"
	"sync"

	"example.com/outbox"
	"github.com/stretchr/testify/require"
)

var updateRules = []rule{
	{"the caller's data and the outbox commit together", func(s *suite) {
		s.exec(`CREATE TABLE history (event TEXT)`)
		require.NoError(s.t, s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
			if _, err := tx.ExecContext(ctx, `INSERT INTO history VALUES (?)`, "scheduled"); err != nil {
				return err
			}
			_, err := s.AppendTx(ctx, tx, s.row(0))
			return err
		}))
		require.Equal(s.t, 1, s.count(`SELECT count(*) FROM history`))
		require.Len(s.t, s.rows(), 1)
	}},
	{"an error of the function stores nothing and comes back as it is", func(s *suite) {
		err := s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
			_, err := s.AppendTx(ctx, tx, s.row(0))
			require.NoError(s.t, err)
			return errBoom
		})
		require.Equal(s.t, errBoom, err)
		require.Empty(s.t, s.rows())
	}},
	{"a panic of the function stores nothing and reaches the caller", func(s *suite) {
		require.PanicsWithValue(s.t, "boom", func() {
			_ = s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
				_, err := s.AppendTx(ctx, tx, s.row(0))
				require.NoError(s.t, err)
				panic("boom")
			})
		})
		require.Empty(s.t, s.rows())
		s.stageN(3)
	}},
	{"a function that ends its goroutine stores nothing", func(s *suite) {
		var done sync.WaitGroup
		done.Go(func() {
			_ = s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
				_, _ = s.AppendTx(ctx, tx, s.row(0))
				runtime.Goexit()
				return nil
			})
		})
		done.Wait()
		require.Empty(s.t, s.rows())
		s.stageN(3)
	}},
	{"a context that ends inside stores nothing", func(s *suite) {
		ctx, cancel := context.WithCancel(s.ctx)
		err := s.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
			_, err := s.AppendTx(ctx, tx, s.row(0))
			require.NoError(s.t, err)
			cancel()
			return nil
		})
		require.ErrorIs(s.t, err, context.Canceled)
		require.Empty(s.t, s.rows())
	}},
	{"an ignored error of a statement that left the transaction alive is the function's affair", func(s *suite) {
		s.exec(`CREATE TABLE history (event TEXT UNIQUE)`)
		require.NoError(s.t, s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO history VALUES ('a')`)
			require.NoError(s.t, err)
			_, err = tx.ExecContext(ctx, `INSERT INTO history VALUES ('a')`)
			require.Error(s.t, err)
			_, err = s.AppendTx(ctx, tx, s.row(0))
			return err
		}))
		require.Len(s.t, s.rows(), 1)
		require.Equal(s.t, 1, s.count(`SELECT count(*) FROM history`))
	}},
	{"a statement that ends the transaction stores nothing, also for a function that ignores it", func(s *suite) {
		s.exec(`CREATE TABLE history (event TEXT UNIQUE ON CONFLICT ROLLBACK)`)
		s.exec(`INSERT INTO history VALUES ('taken')`)
		s.exec(`CREATE TABLE guarded (event TEXT)`)
		s.exec(`CREATE TRIGGER guard BEFORE INSERT ON guarded BEGIN SELECT RAISE(ROLLBACK, 'no'); END`)

		for name, end := range map[string]func(ctx context.Context, tx outbox.Tx){
			"Exec": func(ctx context.Context, tx outbox.Tx) {
				_, _ = tx.ExecContext(ctx, `INSERT INTO history VALUES ('taken')`)
			},
			"Exec by trigger": func(ctx context.Context, tx outbox.Tx) {
				_, _ = tx.ExecContext(ctx, `INSERT INTO guarded VALUES ('x')`)
			},
			"QueryRow": func(ctx context.Context, tx outbox.Tx) {
				var event string
				_ = tx.QueryRowContext(ctx, `INSERT INTO guarded VALUES ('x') RETURNING event`).Scan(&event)
			},
			"Query, with the error in rows.Err": func(ctx context.Context, tx outbox.Tx) {
				rows, err := tx.QueryContext(ctx, `INSERT INTO history VALUES ('taken') RETURNING event`)
				if err == nil {
					for rows.Next() {
						continue
					}
					_ = rows.Close()
				}
			},
			"Query that is drained later": func(ctx context.Context, tx outbox.Tx) {
				rows, err := tx.QueryContext(ctx, `INSERT INTO guarded VALUES ('x') RETURNING event`)
				_, _ = tx.ExecContext(ctx, `INSERT INTO history VALUES ('between')`)
				if err == nil {
					for rows.Next() {
						continue
					}
				}
			},
		} {
			for _, after := range []bool{false, true} {
				err := s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
					_, err := s.AppendTx(ctx, tx, s.row(0))
					require.NoError(s.t, err)
					end(ctx, tx)
					if !after {
						return nil
					}
					_, err = tx.ExecContext(ctx, `INSERT INTO history VALUES ('stored at once')`)
					require.Error(s.t, err, name)
					_, err = s.AppendTx(ctx, tx, s.row(1))
					require.Error(s.t, err, name)
					require.Error(s.t, tx.QueryRowContext(ctx, `SELECT 1`).Err(), name)
					_, err = tx.QueryContext(ctx, `SELECT 1`)
					require.Error(s.t, err, name)
					return nil
				})
				require.Error(s.t, err, name)
				require.Empty(s.t, s.rows(), name)
				require.Equal(s.t, 1, s.count(`SELECT count(*) FROM history`), name)
			}
		}
	}},
	{"rows that the function leaves open do not hang the commit", func(s *suite) {
		s.stageN(3)
		for range 3 {
			require.NoError(s.t, s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
				rows, err := tx.QueryContext(ctx, `SELECT dispatch_key FROM outbox`)
				require.NoError(s.t, err)
				require.True(s.t, rows.Next())
				_ = tx.QueryRowContext(ctx, `SELECT dispatch_key FROM outbox`) // never scanned
				rows, err = tx.QueryContext(ctx, `UPDATE outbox SET attempt = attempt + 1 RETURNING attempt`)
				require.NoError(s.t, err)
				require.True(s.t, rows.Next())
				return nil
			}))
		}
		require.EqualValues(s.t, 3, s.get(s.key(0)).Attempt)
	}},
	{"the function cannot begin or end the transaction, but may use savepoints", func(s *suite) {
		require.NoError(s.t, s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
			for _, statement := range []string{
				"COMMIT", "commit;", " \n END", "ROLLBACK", "rollback transaction", "BEGIN", "BEGIN IMMEDIATE",
				"-- note\nCOMMIT", "/* note */ COMMIT", ";COMMIT", "/**/--\n;ROLLBACK", " \vCOMMIT", "\n\vEND", "SELECT 1; COMMIT", "SELECT ';'; -- ;\n COMMIT",
				"CREATE TRIGGER x AFTER INSERT ON outbox BEGIN SELECT 1; END; END", `SELECT ";" /* ; */ ; ROLLBACK`, "CREATE TABLE x (y); BEGIN", "; \v;COMMIT", "(COMMIT)",
			} {
				_, err := tx.ExecContext(ctx, statement)
				require.ErrorIs(s.t, err, outbox.ErrInvalid, statement)
				_, err = tx.QueryContext(ctx, statement)
				require.ErrorIs(s.t, err, outbox.ErrInvalid, statement)
				require.ErrorIs(s.t, tx.QueryRowContext(ctx, statement).Err(), outbox.ErrInvalid, statement)
			}
			_, err := s.AppendTx(ctx, tx, s.row(0))
			require.NoError(s.t, err)
			for _, statement := range []string{"SAVEPOINT a", "DELETE FROM outbox;", "CREATE TRIGGER x AFTER INSERT ON outbox BEGIN SELECT 1; SELECT ';'; END;", "ROLLBACK TO a", "rollback transaction to savepoint a", "RELEASE a"} {
				_, err := tx.ExecContext(ctx, statement)
				require.NoError(s.t, err, statement)
			}
			rows, err := tx.QueryContext(ctx, "EXPLAIN QUERY PLAN CREATE TRIGGER x AFTER INSERT ON outbox BEGIN SELECT 1; END")
			require.NoError(s.t, err)
			return rows.Close()
		}))
		require.Len(s.t, s.rows(), 1)
	}},
	{"a call without a Tx inside Update is refused rather than waiting for itself", func(s *suite) {
		s.stageN(1)
		ref := s.claimOne().Ref()
		require.NoError(s.t, s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
			for name, call := range operations(s, ref) {
				require.ErrorIs(s.t, call(ctx), outbox.ErrInUpdate, name)
			}
			return nil
		}))
		require.Equal(s.t, outbox.Claimed, s.status(s.key(0)))
	}},
	{"the transaction is of no use after Update has returned", func(s *suite) {
		var kept outbox.Tx
		require.NoError(s.t, s.Update(s.ctx, func(_ context.Context, tx outbox.Tx) error {
			kept = tx
			return nil
		}))
		_, err := kept.ExecContext(s.ctx, `DELETE FROM outbox`)
		require.Error(s.t, err)
		_, err = kept.QueryContext(s.ctx, `SELECT 1`)
		require.Error(s.t, err)
		require.Error(s.t, kept.QueryRowContext(s.ctx, `SELECT 1`).Err())
		_, err = s.AppendTx(s.ctx, kept, s.row(0))
		require.Error(s.t, err)
		require.Empty(s.t, s.rows())
	}},
	{"goroutines of the function may share the transaction", func(s *suite) {
		require.NoError(s.t, s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
			var all sync.WaitGroup
			errs := make(chan error, 8)
			for i := range 8 {
				all.Go(func() {
					_, err := tx.ExecContext(ctx, `INSERT INTO outbox_payload (id, data) VALUES (?, x'00')`, 1000+i)
					errs <- err
				})
			}
			all.Wait()
			for range 8 {
				require.NoError(s.t, <-errs)
			}
			_, err := tx.ExecContext(ctx, `DELETE FROM outbox_payload`)
			return err
		}))
	}},
}
