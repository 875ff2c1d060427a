package outbox_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"example.com/outbox"
	"example.com/outbox/outboxtest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// workOnFile appends rows of its own, and completes what it can claim meanwhile.
func workOnFile(args []string, _ *bufio.Scanner, out io.Writer) error {
	ctx := context.Background()
	own, _ := strconv.Atoi(args[1])
	store, err := outbox.Open(ctx, "libsql", args[0], nil)
	if err != nil {
		return err
	}
	defer store.Close()
	const goroutines = 32
	problems := make(chan error, goroutines)
	var mu sync.Mutex
	for range goroutines {
		go func() {
			problems <- appendAndComplete(store, own/goroutines, func(row outbox.Row) {
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintln(out, row.DispatchKey, row.Fence)
			})
		}()
	}
	for range goroutines {
		err = errors.Join(err, <-problems)
	}
	return err
}

// appendAndComplete appends n rows of a workflow, one a call, and completes what
// it can claim in between.
func appendAndComplete(store *outbox.Store, n int, claimed func(outbox.Row)) error {
	ctx := context.Background()
	workflow := uuid.New()
	for i := range n {
		if _, err := store.Append(ctx, row(workflow, i)); err != nil {
			return err
		}
		rows, err := store.Claim(ctx, 3)
		if err != nil {
			return err
		}
		for _, row := range rows {
			claimed(row)
			if err := store.Complete(ctx, row.Ref()); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestProcessesShareAFileWithoutALockErrorAndEachRowOnce(t *testing.T) {
	const processes, own = 3, 320
	file := "file:" + filepath.Join(t.TempDir(), "outbox.db")
	store := open(t, file, nil)
	var workers []*child
	for range processes {
		workers = append(workers, startChild(t, "work", file, strconv.Itoa(own)))
	}
	handed := map[string]bool{}
	for _, worker := range workers {
		for worker.out.Scan() {
			require.False(t, handed[worker.out.Text()], "%s was handed out twice", worker.out.Text())
			handed[worker.out.Text()] = true
		}
		worker.finish()
	}
	ctx := context.Background()
	rest, err := store.Claim(ctx, 1<<20)
	require.NoError(t, err)
	require.Equal(t, processes*own, len(handed)+len(rest))
	for _, row := range rest {
		require.NoError(t, store.Complete(ctx, row.Ref()))
	}
	outboxtest.RequireCounts(t, store, map[outbox.Status]int{outbox.Done: processes * own})
	outboxtest.Check(t, store)
}

// stageUntilKilled appends pairs of rows and says so after each call.
func stageUntilKilled(args []string, _ *bufio.Scanner, out io.Writer) error {
	ctx := context.Background()
	store, err := outbox.Open(ctx, "libsql", args[0], nil)
	if err != nil {
		return err
	}
	workflow := uuid.MustParse(args[1])
	for i := 0; ; i += 2 {
		if _, err := store.Append(ctx, row(workflow, i), row(workflow, i+1)); err != nil {
			return err
		}
		fmt.Fprintln(out, i)
	}
}

func TestKilledProcessLosesNothingItAcknowledged(t *testing.T) {
	file := "file:" + filepath.Join(t.TempDir(), "outbox.db")
	ctx := context.Background()
	for round := range 10 {
		workflow := uuid.New()
		stager := startChild(t, "stage", file, workflow.String())
		last := ""
		for range 1 + round*7 {
			require.True(t, stager.out.Scan())
			last = stager.out.Text()
		}
		stager.kill()
		for stager.out.Scan() { // acknowledged, though not yet read
			last = stager.out.Text()
		}
		store := open(t, file, nil)
		rows, err := store.List(ctx, outbox.Filter{WorkflowID: uuid.NullUUID{UUID: workflow, Valid: true}})
		require.NoError(t, err)
		acknowledged, err := strconv.Atoi(last)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(rows), acknowledged+2)
		require.Zero(t, len(rows)%2, "a call is stored whole or not at all")
		outboxtest.Check(t, store)
		require.NoError(t, store.Close())
	}
}
