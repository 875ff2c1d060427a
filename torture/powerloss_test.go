package torture_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/stretchr/testify/require"
)

// A power loss leaves a beginning of the log, with anything behind it: what was
// written but not synced may be there, or be partly there. It opens to the
// state after the last transaction that lies wholly in that beginning.
func TestPowerLossLeavesAWholeState(t *testing.T) {
	l := newLosing(t)
	cuts, states := 0, 0
	for range 3 {
		l.era(*frames)
		for _, cut := range l.cuts() {
			l.requireStateAfter(cut)
			cuts++
		}
		states += len(l.moments)
		l.checkpoint()
	}
	t.Logf("%d logs, damaged at every frame and in between, opened to one of %d states", cuts, states)
}

// A call that has returned has left its transaction whole in the files, without
// the shared memory beside them.
func TestPowerLossAfterACallLosesNothingOfIt(t *testing.T) {
	l := newLosing(t)
	for range 2 {
		l.era(500)
		final := l.wal
		for i, at := range l.moments {
			require.True(t, bytes.Equal(at.wal[:at.end], final[:at.end]), "what is committed is never written again")
			if i%10 == 0 {
				l.wal = at.wal
				l.requireState(at.wal, at.digest)
			}
		}
		l.wal = final
		l.checkpoint()
	}
}

// Half a checkpoint, with any of its pages written, is made up for by the log.
func TestPowerLossInACheckpointLosesNothing(t *testing.T) {
	l := newLosing(t)
	for range 2 {
		l.era(500)
		before, last := l.database, l.moments[len(l.moments)-1].digest
		l.checkpoint()
		after := l.read("")
		for range 20 {
			l.database = mixPages(l.rand, before, after)
			l.requireState(l.wal, last)
		}
	}
}

// mixPages is a database of which some pages have been written and others not.
func mixPages(random *rand.Rand, before, after []byte) []byte {
	const page = 4096
	mixed := bytes.Clone(after)
	for at := 0; at+page <= len(before); at += page {
		if random.IntN(2) == 0 {
			copy(mixed[at:at+page], before[at:])
		}
	}
	return mixed
}

// losing is a store whose files are copied while it works.
type losing struct {
	t     testing.TB
	rand  *rand.Rand
	file  string
	store *outbox.Store
	work  *worker

	database []byte   // at the start of the era: that between two checkpoints
	first    [32]byte // digest at its start
	moments  []moment // of the era, each after one transaction
	wal      walFile  // at its end
	previous walFile  // the log that this one overwrites
	shared   []byte   // the shared memory beside it
	copies   string   // a folder
}

// moment is when a transaction has just been committed.
type moment struct {
	end    int // of the log
	wal    walFile
	digest [32]byte
}

func newLosing(t testing.TB) *losing {
	l := &losing{t: t, rand: newRand(t), file: filepath.Join(t.TempDir(), "outbox.db"), copies: t.TempDir()}
	store, closeAll, err := openFile(context.Background(), walFull, l.file)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, closeAll()) })
	l.store = store
	l.work = &worker{store: store, rand: l.rand, report: l.see}
	l.checkpoint()
	return l
}

func (l *losing) read(suffix string) []byte {
	content, err := os.ReadFile(l.file + suffix)
	require.NoError(l.t, err)
	return content
}

// era makes transactions until the log has so many frames; with a thousand,
// SQLite would write it back by itself.
func (l *losing) era(frames int) {
	l.database, l.first, l.moments = l.read(""), digest(l.t, l.store), nil
	for l.wal = nil; len(l.wal.frames()) < frames; {
		l.work.step()
	}
	l.shared = l.read("-shm")
	require.True(l.t, bytes.Equal(l.database, l.read("")), "nothing was written back yet")
}

// see notes the state after a call, if it has stored anything.
func (l *losing) see(c call) {
	require.Empty(l.t, c.Problem)
	wal := readWAL(l.t, l.file)
	commits := wal.commits()
	if c.Outcome == unanswered || len(commits) == 0 || len(commits) == len(l.moments) || bytes.Equal(wal, l.previous) {
		return
	}
	require.Len(l.t, commits, len(l.moments)+1, "one call is one transaction")
	l.wal = wal
	l.moments = append(l.moments, moment{commits[len(commits)-1], wal, digest(l.t, l.store)})
}

// checkpoint writes the log back, so that the next transaction overwrites it.
func (l *losing) checkpoint() {
	other, err := sql.Open("libsql", "file:"+l.file)
	require.NoError(l.t, err)
	defer other.Close()
	var busy, pages, moved int
	require.NoError(l.t, other.QueryRow("PRAGMA wal_checkpoint(RESTART)").Scan(&busy, &pages, &moved))
	require.Zero(l.t, busy)
	l.previous = readWAL(l.t, l.file)
}

// cuts are logs that a power loss may leave: cut or damaged at every frame, and
// at random within it.
func (l *losing) cuts() []walFile {
	var cuts []walFile
	frames := l.wal.frames()
	for i, at := range frames {
		cuts = append(cuts, l.damage(at))
		if i+1 < len(frames) {
			cuts = append(cuts, l.damage(at+1+l.rand.IntN(frames[i+1]-at-1)))
		}
	}
	for range 20 { // inside the header of the log
		cuts = append(cuts, l.damage(l.rand.IntN(walHeader)))
	}
	return cuts
}

// damage keeps the log up to a place.
func (l *losing) damage(at int) walFile {
	wal := bytes.Clone(l.wal)
	switch tail := wal[at:]; l.rand.IntN(5) {
	case 0: // it ends there
		wal = wal[:at]
	case 1: // it is longer, but holds nothing
		clear(tail)
	case 2: // or anything
		for i := range tail {
			tail[i] = byte(l.rand.Uint32())
		}
	case 3: // or what was there before
		clear(tail)
		if at < len(l.previous) {
			copy(tail, l.previous[at:])
		}
	default: // a sector was not written, while all behind it were
		clear(tail[:min(len(tail), 512)])
	}
	return wal
}

// requireStateAfter opens the files with a damaged log.
func (l *losing) requireStateAfter(wal walFile) {
	want, kept := l.first, firstDifference(wal, l.wal)
	for _, at := range l.moments {
		if at.end <= kept {
			want = at.digest
		}
	}
	l.requireState(wal, want)
}

// requireState opens copies of the files as the next process would.
func (l *losing) requireState(wal walFile, want [32]byte) {
	l.t.Helper()
	file := filepath.Join(l.copies, fmt.Sprintf("%d.db", l.rand.Uint64()))
	require.NoError(l.t, os.WriteFile(file, l.database, 0o600))
	require.NoError(l.t, os.WriteFile(file+"-wal", wal, 0o600))
	if l.rand.IntN(2) == 0 { // shared memory that is left over means nothing
		require.NoError(l.t, os.WriteFile(file+"-shm", l.shared, 0o600))
	}
	store, closeAll, err := openStore(context.Background(), walNormal, "file:"+file)
	require.NoError(l.t, err)
	require.Equal(l.t, want, digest(l.t, store), "%d bytes of %d are kept", firstDifference(wal, l.wal), len(l.wal))
	outboxtest.Check(l.t, store)
	require.NoError(l.t, closeAll())
	require.NoError(l.t, os.Remove(file))
	_ = os.Remove(file + "-wal") // closing does that in its own time
	_ = os.Remove(file + "-shm")
}

// digest is of all that a store and its host have stored.
func digest(t testing.TB, store *outbox.Store) [32]byte {
	t.Helper()
	all := sha256.New()
	rows, err := store.List(context.Background(), outbox.Filter{})
	require.NoError(t, err)
	for _, row := range rows {
		fmt.Fprintf(all, "%+v\n", row)
	}
	err = store.Update(context.Background(), func(ctx context.Context, tx outbox.Tx) error {
		events, err := tx.QueryContext(ctx, "SELECT event || call FROM history ORDER BY event")
		if err != nil {
			return err
		}
		for events.Next() {
			var event string
			if err := events.Scan(&event); err != nil {
				return err
			}
			fmt.Fprintln(all, event)
		}
		return events.Err()
	})
	require.NoError(t, err)
	return [32]byte(all.Sum(nil))
}
