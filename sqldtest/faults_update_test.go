//go:build sqld

package sqldtest

import (
	"context"
	"testing"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUpdateWhoseTransactionTheServerDroppedStoresNothing(t *testing.T) {
	eachDriver(t, testUpdateWhoseTransactionTheServerDroppedStoresNothing)
}

func testUpdateWhoseTransactionTheServerDroppedStoresNothing(t *testing.T, driver string) {
	t.Parallel()
	const first = "INSERT INTO host VALUES (1)"
	drops := map[string]func(t *testing.T, s *server){
		"killed and started again": func(_ *testing.T, s *server) {
			s.kill()
			s.start()
		},
		"idle for longer than 10 s": func(*testing.T, *server) { time.Sleep(11 * time.Second) },
		"open for longer than 5 s while another waits": func(t *testing.T, s *server) {
			other := openOver(t, driver, s.url(), nil) // migrated already: this takes no lock
			_, err := other.Append(patiently(t), row(uuid.New(), 0))
			require.NoError(t, err, "the one that waits")
		},
	}
	endings := map[string]func(ctx context.Context, store *outbox.Store, tx outbox.Tx) error{
		"says nothing more": func(context.Context, *outbox.Store, outbox.Tx) error { return nil },
		"returns the error of a statement": func(ctx context.Context, _ *outbox.Store, tx outbox.Tx) error {
			_, err := tx.ExecContext(ctx, first)
			return err
		},
		"returns the error of a query": func(ctx context.Context, _ *outbox.Store, tx outbox.Tx) error {
			var n int
			return tx.QueryRowContext(ctx, "SELECT count(*) FROM host").Scan(&n)
		},
		"swallows the error of its last statement": func(ctx context.Context, _ *outbox.Store, tx outbox.Tx) error {
			_, _ = tx.ExecContext(ctx, first)
			return nil
		},
		"swallows every error and goes on": func(ctx context.Context, store *outbox.Store, tx outbox.Tx) error {
			for range 3 {
				_, _ = tx.ExecContext(ctx, first)
				var n int
				_ = tx.QueryRowContext(ctx, "SELECT count(*) FROM host").Scan(&n)
				_, _ = store.AppendTx(ctx, tx, row(uuid.New(), 0))
			}
			return nil
		},
	}
	for dropped, drop := range drops {
		for ending, end := range endings {
			t.Run(dropped+"/"+ending, func(t *testing.T) {
				t.Parallel()
				server := startServer(t)
				store := openOver(t, driver, server.url(), nil)
				require.NoError(t, store.Update(patiently(t), func(ctx context.Context, tx outbox.Tx) error {
					_, err := tx.ExecContext(ctx, "CREATE TABLE host (n INTEGER)")
					return err
				}))
				staged := row(uuid.New(), 1)
				err := store.Update(patiently(t), func(ctx context.Context, tx outbox.Tx) error {
					_, err := tx.ExecContext(ctx, first)
					require.NoError(t, err)
					_, err = store.AppendTx(ctx, tx, staged)
					require.NoError(t, err)
					drop(t, server)
					return end(ctx, store, tx)
				})
				requireTyped(t, err)
				requireStored(t, store, false, staged)
				require.NoError(t, store.Update(patiently(t), func(ctx context.Context, tx outbox.Tx) error {
					var n int
					err := tx.QueryRowContext(ctx, "SELECT count(*) FROM host").Scan(&n)
					require.Zero(t, n, "nothing of the function is stored")
					return err
				}))
				requireWorks(t, store)
			})
		}
	}
}

func TestServerThatFreezesInTheMiddleOfAnUpdate(t *testing.T) {
	eachDriver(t, testServerThatFreezesInTheMiddleOfAnUpdate)
}

func testServerThatFreezesInTheMiddleOfAnUpdate(t *testing.T, driver string) {
	t.Parallel()
	for _, swallows := range []bool{false, true} {
		server := startServer(t)
		store := openOver(t, driver, server.url(), nil)
		staged := row(uuid.New(), 0)
		err := returnsInTime(t, func(ctx context.Context) error {
			return store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
				_, err := store.AppendTx(ctx, tx, staged)
				require.NoError(t, err)
				server.freeze()
				_, err = store.AppendTx(ctx, tx, row(uuid.New(), 1))
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				if swallows {
					err = nil
				}
				return err
			})
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		server.thaw()
		requireWorks(t, store)
		requireStored(t, store, false, staged)
	}
}
