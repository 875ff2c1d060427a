package dispatch_test

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// openings is a driver that does something before it opens a connection.
type openings struct {
	driver.Driver
	before atomic.Pointer[func() error]
}

func (o *openings) Open(name string) (driver.Conn, error) {
	if before := o.before.Load(); before != nil {
		if err := (*before)(); err != nil {
			return nil, err
		}
	}
	return o.Driver.Open(name)
}

// openWatched opens two stores on one file, the first through openings.
func openWatched(t *testing.T) (watched, other *outbox.Store, opening *openings) {
	t.Helper()
	plain, err := sql.Open("libsql", ":memory:")
	require.NoError(t, err)
	require.NoError(t, plain.Close())
	opening = &openings{Driver: plain.Driver()}
	driverName := "openings-" + uuid.NewString()
	sql.Register(driverName, opening)
	name := "file:" + filepath.Join(t.TempDir(), "outbox.db")
	watched, err = outbox.Open(t.Context(), driverName, name, nil)
	require.NoError(t, err)
	other, err = outbox.Open(t.Context(), "libsql", name, nil)
	require.NoError(t, err)
	return watched, other, opening
}

func TestRowStagedElsewhereWhileTheWatchBeginsIsNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watched, other, opening := openWatched(t)
		b := &bench{t: t, store: watched}
		defer func() {
			b.end()
			require.NoError(t, watched.Close())
			require.NoError(t, other.Close())
		}()
		workflow := uuid.New()
		var begun atomic.Bool
		stage := func() error { // the next connection is the watch's
			if begun.Swap(true) {
				return nil
			}
			_, err := other.Append(t.Context(), outbox.Row{WorkflowID: workflow, ActivityType: "test", VisibleAfter: time.Now().Add(-time.Hour)})
			return err
		}
		opening.before.Store(&stage)
		b.run(nothing, dispatch.Options{PollInterval: time.Hour})
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, begun.Load())
		b.requireStatus(outbox.Done, outbox.DispatchKey(workflow, 0))
	})
}

func TestWatchThatCannotBeginIsTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watched, other, opening := openWatched(t)
		b := &bench{t: t, store: watched}
		defer func() {
			b.end()
			require.NoError(t, watched.Close())
			require.NoError(t, other.Close())
		}()
		refuse := func() error { return errors.New("no more files") }
		opening.before.Store(&refuse)
		var seen recorder
		b.run(nothing, dispatch.Options{PollInterval: time.Hour, Observer: seen.observer()})
		time.Sleep(10 * time.Second)
		opening.before.Store(nil)
		time.Sleep(10 * time.Second)
		seen.mu.Lock()
		tries := seen.errors["watch"]
		seen.mu.Unlock()
		require.InDelta(t, 10, tries, 2, "once a second")
		workflow := uuid.New()
		_, err := other.Append(t.Context(), outbox.Row{WorkflowID: workflow, ActivityType: "test"})
		require.NoError(t, err)
		time.Sleep(time.Second)
		synctest.Wait()
		b.requireStatus(outbox.Done, outbox.DispatchKey(workflow, 0))
	})
}
