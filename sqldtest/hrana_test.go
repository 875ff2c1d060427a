//go:build sqld

package sqldtest

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// soon is when a call has returned whose context has ended: within 100 ms or so,
// and on a busy machine somewhat later.
const soon = 500 * time.Millisecond

// The server may store it later, or may have noticed that nobody waits for it.
func TestACallGivenUpWhileItWaitsForTheLockIsUnknown(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	store, holder := openOver(t, "hrana", server.url(), nil), openOver(t, "hrana", server.url(), nil)
	staged := row(uuid.New(), 0)
	require.NoError(t, holder.Update(patiently(t), func(ctx context.Context, tx outbox.Tx) error {
		_, err := holder.AppendTx(ctx, tx, row(uuid.New(), 0))
		require.NoError(t, err, "the lock is held from here on")
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = store.Append(short, staged)
		ended, _ := short.Deadline()
		require.Less(t, time.Since(ended), soon)
		require.ErrorIs(t, err, outbox.ErrCommitUnknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(300 * time.Millisecond)
		return nil
	}))
	duplicates, err := store.Append(patiently(t), staged) // behind it in the server's queue
	require.NoError(t, err)
	t.Logf("stored later: %v", len(duplicates) == 1)
	if len(duplicates) > 0 {
		require.Equal(t, keysOf(staged), duplicates, "repeated, it finds itself")
	}
	requireStored(t, store, true, staged)
	outboxtest.RequireCounts(t, store, map[outbox.Status]int{outbox.Pending: 2})
	requireWorks(t, store)
}

// Calls that wait in the line of their own Store have not been sent, and those
// whose request is under way are unknown. Neither waits for the other.
func TestCallsBehindOneThatWaitsForTheLockLeaveInTime(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	store, holder := openOver(t, "hrana", server.url(), nil), openOver(t, "hrana", server.url(), nil)
	require.NoError(t, holder.Update(patiently(t), func(ctx context.Context, tx outbox.Tx) error {
		_, err := holder.AppendTx(ctx, tx, row(uuid.New(), 0))
		require.NoError(t, err)
		outcomes := make(chan error)
		for i := range 8 {
			go func() {
				short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				_, err := store.Append(short, row(uuid.New(), i))
				ended, _ := short.Deadline()
				assert.Less(t, time.Since(ended), soon)
				outcomes <- err
			}()
		}
		unknown := 0
		for range 8 {
			err := <-outcomes
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			if errors.Is(err, outbox.ErrCommitUnknown) {
				unknown++
			}
		}
		assert.NotZero(t, unknown)
		return nil
	}))
	requireWorks(t, store)
}

func TestAFrozenServerHoldsNoCallUp(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	store := openOver(t, "hrana", server.url(), nil)
	claimed := claimedRow(t, store)
	server.freeze()
	time.Sleep(10 * time.Millisecond) // the signal takes its time
	for range 2 {
		for name, call := range calls(store, claimed) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			start := time.Now()
			require.ErrorIs(t, call(ctx), context.DeadlineExceeded, name)
			require.Less(t, time.Since(start), 50*time.Millisecond+soon, name)
			cancel()
		}
	}
	server.thaw()
	requireWorks(t, store)
	require.NoError(t, store.Complete(patiently(t), claimed))
}

func TestAGatewayLeavesNobodyGuessingWhatItDid(t *testing.T) {
	t.Parallel()
	proxy := newProxy(t, startServer(t))
	store := openOver(t, "hrana", proxy.url(), nil)
	claimed := claimedRow(t, store)
	for status, refused := range map[int64]bool{200: false, 401: true, 403: true, 429: true, 500: false, 502: false, 503: false, 504: false} {
		proxy.status.Store(status)
		for name, call := range calls(store, claimed) {
			err := call(patiently(t))
			if errors.Is(err, outbox.ErrCommitUnknown) {
				require.False(t, refused, "%s, status %d: nothing was done", name, status)
			} else {
				require.ErrorIs(t, err, outbox.ErrUnavailable, "%s, status %d", name, status)
			}
		}
		proxy.status.Store(0)
		requireWorks(t, store)
	}
}

func TestAServerWhoseDiskIsFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("CI must run this: ", err)
		}
		t.Skip("no file system of a size can be mounted: ", err)
	}
	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	server := startServerIn(t, dir)
	store := openOver(t, "hrana", server.url(), nil)
	stored := 0
	var full error
	for full == nil {
		large := row(uuid.New(), 0)
		large.Input.Data = make([]byte, 500_000)
		if _, full = store.Append(patiently(t), large); full == nil {
			stored++
		}
		require.Less(t, stored, 100)
	}
	t.Logf("after %d rows: %v", stored, full)
	require.True(t, errors.Is(full, outbox.ErrFull) || typed(full), "%v", full)
	in, err := store.CountInFlight(patiently(t), outbox.DefaultRoute)
	require.NoError(t, err, "it can be read")
	require.GreaterOrEqual(t, in, int64(stored), "nothing is lost that was told to be stored")
	require.LessOrEqual(t, in, int64(stored+1))
	_, err = store.Claim(patiently(t), 1)
	require.True(t, err == nil || errors.Is(err, outbox.ErrFull) || typed(err), "%v", err)
}

func TestAServerThatRefusesATokenIsUnavailable(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte(base64.RawURLEncoding.EncodeToString(public)), 0o600))
	server := startServer(t, "--auth-jwt-key-file", file)
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"EdDSA","typ":"JWT"}`)) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(`{"exp":9999999999}`))
	token := text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(private, []byte(text)))
	store := openOver(t, "hrana", server.url()+"?authToken="+token, nil)
	requireWorks(t, store)
	wrong := strings.ToUpper(token)
	_, err = outbox.Open(t.Context(), "hrana", server.url()+"?authToken="+wrong, nil)
	require.ErrorIs(t, err, outbox.ErrUnavailable)
	require.NotContains(t, err.Error(), wrong)
}

func TestWhatGoroutinesAppendWhileAServerIsKilledIsThereOnce(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	store := openOver(t, "hrana", server.url(), nil)
	stop := make(chan struct{})
	keys := make(chan []string, 8)
	for range 8 {
		go func() {
			var mine []string
			defer func() { keys <- mine }()
			for {
				select {
				case <-stop:
					return
				default:
				}
				staged := row(uuid.New(), 0)
				for {
					_, err := store.Append(patiently(t), staged)
					if err == nil {
						break
					}
					if !assert.True(t, typed(err), "%v", err) {
						return
					}
					time.Sleep(time.Millisecond)
				}
				mine = append(mine, keysOf(staged)...)
			}
		}()
	}
	for range 5 {
		time.Sleep(300 * time.Millisecond)
		server.kill()
		server.start()
	}
	close(stop)
	acknowledged := 0
	for range 8 {
		acknowledged += len(<-keys)
	}
	outboxtest.RequireCounts(t, store, map[outbox.Status]int{outbox.Pending: acknowledged})
	requireWorks(t, store)
}
