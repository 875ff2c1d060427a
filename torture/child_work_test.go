package torture_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
)

// job is what a working child is told in its arguments.
type job struct {
	File      string
	How       setting
	Seed      uint64
	Workers   int
	Deadlines float64 // the share of calls that have little time
}

// workUntilToldToStop makes calls from several goroutines until its input ends,
// or it is killed.
func workUntilToldToStop(args []string, in *bufio.Scanner, out io.Writer) error {
	var told job
	if err := json.Unmarshal([]byte(args[0]), &told); err != nil {
		return err
	}
	store, closeAll, err := openFile(context.Background(), told.How, told.File)
	if err != nil {
		return err
	}
	var (
		all     sync.WaitGroup
		mu      sync.Mutex
		stopped atomic.Bool
	)
	report := func(c call) {
		line, err := json.Marshal(c)
		if err != nil {
			panic(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if _, err := out.Write(append(line, '\n')); err != nil { // at once: the pipe outlives this process
			panic(err)
		}
	}
	for i := range told.Workers {
		w := &worker{
			store: store, report: report, seed: told.Seed, number: i, deadlines: told.Deadlines,
			rand: rand.New(rand.NewPCG(told.Seed, uint64(i))),
		}
		all.Go(func() {
			for !stopped.Load() {
				w.step()
			}
		})
	}
	for in.Scan() {
		continue
	}
	stopped.Store(true)
	all.Wait()
	return closeAll()
}

// worker is a goroutine of a working child. All do the same, at random.
type worker struct {
	store     *outbox.Store
	rand      *rand.Rand
	report    func(call)
	seed      uint64 // of its process
	number    int
	made      int         // calls
	deadlines float64     // see job
	workflows []uuid.UUID // staged, and not settled by this worker
}

// do makes a call and reports it before and after.
func (w *worker) do(c call, hurry bool, fn func(ctx context.Context, c *call) error) call {
	w.made++
	c.ID = fmt.Sprintf("%x.%d.%d", w.seed, w.number, w.made)
	c.Worker = w.number
	w.report(c)
	ctx := context.Background()
	if hurry && w.rand.Float64() < w.deadlines {
		short, cancel := context.WithTimeout(ctx, time.Duration(w.rand.IntN(20_000))*time.Microsecond)
		defer cancel()
		ctx = short
	}
	c.answer(fn(ctx, &c))
	w.report(c)
	return c
}

func (w *worker) step() {
	switch n := w.rand.IntN(20); {
	case n < 4:
		w.stage(appending)
	case n < 7:
		w.stage(staging)
	case n < 8 && len(w.workflows) > 0:
		w.settle()
	default:
		w.claim()
	}
}

// stage stages a few rows of a new workflow.
func (w *worker) stage(how kind) {
	c := call{Kind: how, Workflow: uuid.New()}
	var rows []outbox.Row
	for i := range 1 + w.rand.IntN(8) {
		key := outbox.DispatchKey(c.Workflow, uint64(i))
		c.Keys = append(c.Keys, key)
		rows = append(rows, outbox.Row{WorkflowID: c.Workflow, Ordinal: uint64(i), ActivityType: "ship", Input: payloadOf(key)})
	}
	c = w.do(c, true, func(ctx context.Context, c *call) error {
		if how == appending {
			return w.append(w.store.Append(ctx, rows...))
		}
		return w.store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
			for _, key := range c.Keys {
				if err := insertEvent(ctx, tx, stagedEvent(key), c.ID); err != nil {
					return err
				}
			}
			// In two calls, which must not come apart.
			if err := w.append(w.store.AppendTx(ctx, tx, rows[:1]...)); err != nil {
				return err
			}
			return w.append(w.store.AppendTx(ctx, tx, rows[1:]...))
		})
	})
	if c.Outcome == stored {
		w.workflows = append(w.workflows, c.Workflow)
	}
}

// append is the error of an Append of new rows.
func (w *worker) append(duplicates []string, err error) error {
	if err == nil && len(duplicates) > 0 {
		err = fmt.Errorf("new rows were duplicates: %q", duplicates)
	}
	return err
}

func insertEvent(ctx context.Context, tx outbox.Tx, event, call string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO history (event, call) VALUES (?, ?)", event, call)
	return err
}

// settle settles one of the workflows that this worker has staged.
func (w *worker) settle() {
	i := w.rand.IntN(len(w.workflows))
	workflow := w.workflows[i]
	w.workflows = append(w.workflows[:i], w.workflows[i+1:]...)
	w.do(call{Kind: settling, Workflow: workflow}, true, func(ctx context.Context, c *call) (err error) {
		c.Keys, err = w.store.SettleWorkflow(ctx, workflow)
		return err
	})
}

// claim claims a few rows and does something with them. A call that was refused
// is made again, with all the time it needs; what is unanswered is left to
// those who look later.
func (w *worker) claim() {
	c := w.do(call{Kind: claiming, Limit: 1 + w.rand.IntN(8)}, true, func(ctx context.Context, c *call) error {
		var (
			rows []outbox.Row
			err  error
		)
		switch w.rand.IntN(3) {
		case 0:
			rows, err = w.store.Claim(ctx, c.Limit)
		case 1:
			scope := outbox.Scope{Namespace: outbox.DefaultRoute, TaskQueue: outbox.DefaultRoute}
			rows, err = w.store.ClaimScoped(ctx, scope, c.Limit)
		default:
			rows, err = w.store.ClaimExcluding(ctx, c.Limit, uuid.New())
		}
		for _, row := range rows {
			c.Refs = append(c.Refs, row.Ref())
			c.Attempt = row.Attempt
		}
		return err
	})
	if len(c.Refs) == 0 {
		return
	}
	if w.rand.IntN(10) == 0 {
		w.transition(call{Kind: extending, Refs: c.Refs})
	}
	switch w.rand.IntN(8) {
	case 0, 1:
		for _, ref := range c.Refs {
			w.transition(call{Kind: retrying, Refs: []outbox.Ref{ref}, Attempt: c.Attempt + 1})
		}
	case 2:
		for _, ref := range c.Refs {
			failed := w.transition(call{Kind: failing, Refs: []outbox.Ref{ref}})
			if failed.Outcome == stored && len(failed.Lost) == 0 && w.rand.IntN(2) == 0 {
				w.transition(call{Kind: requeuing, Refs: []outbox.Ref{ref}})
			}
		}
	case 3, 4:
		if shipped := w.transition(call{Kind: shipping, Refs: c.Refs}); len(shipped.Lost) > 0 {
			w.transition(call{Kind: completed, Refs: c.Refs})
		}
	default:
		w.transition(call{Kind: completed, Refs: c.Refs})
	}
}

func (w *worker) transition(c call) call {
	change := func(ctx context.Context, c *call) error {
		switch c.Kind {
		case extending:
			return w.store.Extend(ctx, c.Refs...)
		case retrying:
			return w.store.Retry(ctx, c.Refs[0], c.Attempt, time.Time{}, io.ErrUnexpectedEOF)
		case failing:
			return w.store.Fail(ctx, c.Refs[0], io.ErrUnexpectedEOF)
		case requeuing:
			n, err := w.store.Requeue(ctx, c.Refs[0].DispatchKey)
			if err == nil && n != 1 {
				err = fmt.Errorf("%d rows were requeued", n)
			}
			return err
		case completed:
			return w.store.Complete(ctx, c.Refs...)
		}
		return w.store.Update(ctx, func(ctx context.Context, tx outbox.Tx) error {
			for _, ref := range c.Refs {
				if err := insertEvent(ctx, tx, shippedEvent(ref.DispatchKey), c.ID); err != nil {
					return err
				}
			}
			return w.store.CompleteTx(ctx, tx, c.Refs...)
		})
	}
	made := w.do(c, true, change)
	if made.Outcome == refused && made.Lost == nil && w.rand.IntN(2) == 0 {
		made = w.do(c, false, change)
	}
	return made
}
