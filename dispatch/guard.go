package dispatch

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
)

// catch calls f and stores what it returns in err: a *PanicError for a panic, and
// for runtime.Goexit too, which goes on once catch has stored it. All code that is
// not this package's is called through catch or caught.
func catch(function string, err *error, f func() error) {
	returned := false
	defer func() {
		if !returned {
			*err = &PanicError{Value: recover(), Stack: debug.Stack(), Function: function}
		}
	}()
	*err = f()
	returned = true
}

// caught calls f and returns its error, or an error about its panic, whose own
// methods do not panic.
func caught(function string, f func() error) (err error) {
	catch(function, &err, f)
	if panicked, ok := err.(*PanicError); ok {
		return judge(panicked).err
	}
	return err
}

// guard calls the functions of Options. What they panic with is logged, and what
// they return then is what Options says.
type guard struct{ trouble *troubles }

// call reports whether f, the named function of Options, returned.
func (g guard) call(function string, f func()) bool {
	err := caught("Options."+function, func() error { f(); return nil })
	if err != nil {
		g.trouble.warn(function, err)
	}
	return err == nil
}

// options returns options whose functions can be called and do not panic, nor
// return errors that do. Held and HeldContext are one.
func (g guard) options(o Options, store *outbox.Store) Options {
	o.Now = g.now(o.Now, store)
	o.Backoff = g.backoff(o.Backoff)
	o.HeldContext = g.held(o.HeldContext, o.Held)
	o.Observer = g.observer(o.Observer.withDefaults())
	if limit := o.MaxPerNamespace; limit != nil {
		o.MaxPerNamespace = func(namespace string) (rows int) {
			g.call("MaxPerNamespace", func() { rows = max(limit(namespace), 0) })
			return rows
		}
	}
	if terminal := o.Terminal; terminal != nil {
		o.Terminal = func(ctx context.Context, workflow uuid.UUID) (ended bool, err error) {
			err = ask("Terminal", func() (err error) { ended, err = terminal(ctx, workflow); return err })
			return ended && err == nil, err
		}
	}
	return o
}

func (g guard) now(now func() time.Time, store *outbox.Store) func() time.Time {
	if now == nil {
		now = store.Now
	}
	return func() (at time.Time) {
		if g.call("Now", func() { at = now() }) || g.call("Now", func() { at = store.Now() }) {
			return at
		}
		return time.Now()
	}
}

func (g guard) backoff(backoff func(uint32) time.Duration) func(uint32) time.Duration {
	usual := Exponential(time.Second, time.Hour)
	if backoff == nil {
		return usual
	}
	return func(attempt uint32) (pause time.Duration) {
		if !g.call("Backoff", func() { pause = backoff(attempt) }) {
			pause = usual(attempt)
		}
		return pause
	}
}

func (g guard) held(fallible func(context.Context) ([]uuid.UUID, error), simple func() []uuid.UUID) func(context.Context) ([]uuid.UUID, error) {
	return func(ctx context.Context) (held []uuid.UUID, err error) {
		if fallible != nil {
			err = ask("HeldContext", func() (err error) { held, err = fallible(ctx); return err })
		}
		if simple != nil && err == nil {
			err = ask("Held", func() error {
				held = append(held[:len(held):len(held)], simple()...)
				return nil
			})
		}
		return held, err
	}
}

func (g guard) observer(o Observer) Observer {
	return Observer{
		Claimed: func(rows []outbox.Row) {
			g.call("Observer.Claimed", func() { o.Claimed(rows) })
		},
		Started: func(ctx context.Context, row outbox.Row) context.Context {
			var started context.Context
			g.call("Observer.Started", func() { started = o.Started(ctx, row) })
			if started == nil {
				return ctx
			}
			return started
		},
		Settled: func(ctx context.Context, row outbox.Row, outcome Outcome, took time.Duration, err error) {
			g.call("Observer.Settled", func() { o.Settled(ctx, row, outcome, took, err) })
		},
		Recovered: func(row outbox.Row, outcome Outcome) {
			g.call("Observer.Recovered", func() { o.Recovered(row, outcome) })
		},
		StoreError: func(operation string, err error) {
			g.call("Observer.StoreError", func() { o.StoreError(operation, err) })
		},
	}
}

// askError is an error of HeldContext or Terminal: one that is outbox.ErrClosed
// is of some other Store.
type askError struct{ err error }

func (e *askError) Error() string { return e.err.Error() }
func (e *askError) Unwrap() error { return e.err }

// ask calls a function of Options that may fail.
func ask(function string, f func() error) error {
	if err := caught("Options."+function, f); err != nil {
		return &askError{judge(err).err}
	}
	return nil
}

// guardedHandler is a log handler whose panics are of no effect.
type guardedHandler struct{ slog.Handler }

func (h guardedHandler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	_ = caught("Options.Logger", func() error { enabled = h.Handler.Enabled(ctx, level); return nil })
	return enabled
}

func (h guardedHandler) Handle(ctx context.Context, record slog.Record) error {
	return caught("Options.Logger", func() error { return h.Handler.Handle(ctx, record) })
}
