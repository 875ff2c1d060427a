package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"example.com/outbox"
)

// troubles logs errors that may come by the thousand: the first of a kind at
// once, and then one at intervals that double as long as there are more.
type troubles struct {
	logger *slog.Logger

	mu    sync.Mutex
	kinds map[troubleKind]*recurrence
}

func newTroubles(logger *slog.Logger) *troubles {
	return &troubles{logger: logger, kinds: make(map[troubleKind]*recurrence)}
}

// troubleKind is what makes two errors the same to a reader of the log.
type troubleKind struct{ operation, kind string }

type recurrence struct {
	last     time.Time // that one was logged
	interval time.Duration
	leftOut  int // since
}

// Between two lines of a kind.
const (
	shortestSilence = time.Second
	longestSilence  = 10 * time.Minute
)

// warn logs an error of an operation, unless one of its kind was logged lately.
func (t *troubles) warn(operation string, err error) {
	leftOut, logged := t.admit(troubleKind{operation, kindOf(err)})
	if !logged {
		return
	}
	t.logger.Warn("dispatch: trouble", "operation", operation, "error", err, "left_out", leftOut)
}

// admit reports whether an error of this kind is to be logged, and how many were
// left out before it.
func (t *troubles) admit(kind troubleKind) (leftOut int, logged bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	r := t.kinds[kind]
	if r == nil {
		r = &recurrence{}
		t.kinds[kind] = r
	}
	quiet := now.Sub(r.last)
	if quiet < r.interval {
		r.leftOut++
		return 0, false
	}
	if quiet > 2*r.interval {
		r.interval = 0 // it was over
	}
	r.interval = min(max(2*r.interval, shortestSilence), longestSilence)
	leftOut, r.last, r.leftOut = r.leftOut, now, 0
	return leftOut, true
}

// flush logs how many were left out of each kind since its last line.
func (t *troubles) flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for kind, r := range t.kinds {
		if r.leftOut > 0 {
			t.logger.Warn("dispatch: more of the same trouble", "operation", kind.operation, "kind", kind.kind, "left_out", r.leftOut)
		}
	}
	clear(t.kinds)
}

// kindOf names the kind of an error: what this module says that it means, or else
// its innermost type. There are few, whatever the texts.
func kindOf(err error) string {
	for _, kind := range []error{
		outbox.ErrBusy, outbox.ErrFull, outbox.ErrUnavailable, outbox.ErrReadOnly, outbox.ErrCorrupt, outbox.ErrClosed,
		outbox.ErrCommitUnknown, outbox.ErrRolledBack, outbox.ErrTooLarge, outbox.ErrInvalid, outbox.ErrNotFound,
		context.DeadlineExceeded, context.Canceled,
	} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return fmt.Sprintf("%T", err)
		}
		err = inner
	}
}

// pauses are the waits between tries at something that fails.
type pauses struct{ first, longest, next time.Duration }

// wait waits longer each time, but not for longer than ctx lasts.
func (p *pauses) wait(ctx context.Context) {
	p.next = min(max(2*p.next, p.first), p.longest)
	timer := time.NewTimer(p.next/2 + rand.N(p.next/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// over makes the next wait the first.
func (p *pauses) over() { p.next = 0 }
