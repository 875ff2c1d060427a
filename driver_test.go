package outbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// fault is what may befall a call of the driver.
type fault string

const (
	none          fault = ""
	refused       fault = "refused"        // the call fails
	disowned      fault = "disowned"       // it fails with driver.ErrBadConn
	answerless    fault = "answerless"     // its answer is lost: it is done, and fails
	overtaken     fault = "overtaken"      // the context of the operation ends while it is under way
	panicking     fault = "panicking"      // it panics
	panickingLate fault = "panicking late" // it is done, and panics
)

var faults = []fault{refused, disowned, answerless, overtaken, panicking, panickingLate}

var errTold = errors.New("told to fail")

// recorder is a connector that notes every statement sent through it, and does a
// fault to one call of the driver if it is told to.
type recorder struct {
	driver.Connector
	deep bool // calls that get, read and close things count as well as statements

	mu       sync.Mutex
	seen     map[string][]driver.NamedValue
	fault    fault
	overtake context.CancelFunc // for overtaken
	left     int                // calls up to the one that meets the fault; 0: none; -1: it has
	opened   int                // connections

	forbidden string // statements that start so are not authorized

	parks  bool // connections are kept instead of closed, and used again
	parked []driver.Conn
}

// arm makes the n-th call from now on meet a fault, or none for 0. It reports
// whether the one asked for before has been met.
func (r *recorder) arm(n int, fault fault, overtake context.CancelFunc) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	met := r.left < 0
	r.left, r.fault, r.overtake = n, fault, overtake
	return met
}

// disarm is arm for no fault.
func (r *recorder) disarm() bool { return r.arm(0, none, nil) }

// next returns the fault that the next call meets, if it does.
func (r *recorder) next() fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left <= 0 {
		return none
	}
	if r.left--; r.left > 0 {
		return none
	}
	r.left = -1
	if r.fault == overtaken {
		r.overtake()
	}
	return r.fault
}

// through makes a call of the driver, or does to it what it is told to. What a
// call has got is dropped if its answer is lost.
func (r *recorder) through(call func() error, drop func()) error {
	met := r.next()
	switch met {
	case none, overtaken:
		return call()
	case refused:
		return errTold
	case disowned:
		return driver.ErrBadConn
	case panicking:
		panic(errTold)
	}
	if err := call(); err == nil {
		drop()
	}
	if met == panickingLate {
		panic(errTold)
	}
	return errTold
}

// deepThrough is through for what is not a statement.
func (r *recorder) deepThrough(call func() error, drop func()) error {
	if !r.deep {
		return call()
	}
	return r.through(call, drop)
}

func keep() {}

// closeThrough closes something, whatever fault that meets.
func (r *recorder) closeThrough(call func() error) error {
	var once sync.Once
	var err error
	closing := func() error { once.Do(func() { err = call() }); return err }
	defer closing()
	return r.deepThrough(closing, keep)
}

func (r *recorder) Connect(ctx context.Context) (driver.Conn, error) {
	var conn driver.Conn
	err := r.deepThrough(func() (err error) {
		conn, err = r.connect(ctx)
		return err
	}, func() { r.disconnect(conn) })
	if err != nil {
		return nil, err
	}
	return &recordedConn{conn, r}, nil
}

func (r *recorder) connect(ctx context.Context) (driver.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened++
	if last := len(r.parked) - 1; last >= 0 {
		conn := r.parked[last]
		r.parked = r.parked[:last]
		return conn, nil
	}
	return r.Connector.Connect(ctx)
}

func (r *recorder) disconnect(conn driver.Conn) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened--
	if !r.parks {
		return conn.Close()
	}
	_, _ = conn.(driver.ExecerContext).ExecContext(context.Background(), "ROLLBACK", nil) // as closing does
	r.parked = append(r.parked, conn)
	return nil
}

// connections returns how many are open.
func (r *recorder) connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.opened
}

// statement notes a statement and runs it.
func (r *recorder) statement(query string, args []driver.NamedValue, run func() error, drop func()) error {
	r.mu.Lock()
	r.seen[query] = args
	r.mu.Unlock()
	if r.forbidden != "" && strings.HasPrefix(query, r.forbidden) {
		return errors.New("not authorized")
	}
	return r.through(run, drop)
}

// sent reports whether a statement that starts so was sent since the last forget.
func (r *recorder) sent(start string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for query := range r.seen {
		if strings.HasPrefix(query, start) {
			return true
		}
	}
	return false
}

func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.seen)
}

func (r *recorder) Driver() driver.Driver { return recordedDriver{r} }

// recordedDriver is a driver whose connections are those of a recorder.
type recordedDriver struct{ recorder *recorder }

func (d recordedDriver) Open(string) (driver.Conn, error) { return nil, errors.New("no connector") }

func (d recordedDriver) OpenConnector(name string) (driver.Connector, error) {
	if d.recorder.Connector != nil {
		return d.recorder, nil
	}
	plain, err := sql.Open("libsql", name)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	d.recorder.Connector, err = plain.Driver().(driver.DriverContext).OpenConnector(name)
	return d.recorder, err
}

type recordedConn struct {
	driver.Conn
	recorder *recorder
}

func (c *recordedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (result driver.Result, err error) {
	err = c.recorder.statement(query, args, func() (err error) {
		result, err = c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
		return err
	}, keep)
	return result, err
}

func (c *recordedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	err = c.recorder.statement(query, args, func() (err error) {
		rows, err = c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
		return err
	}, func() { rows.Close() })
	return &recordedRows{rows, c.recorder}, err
}

func (c *recordedConn) Prepare(query string) (statement driver.Stmt, err error) {
	err = c.recorder.deepThrough(func() (err error) {
		statement, err = c.Conn.Prepare(query)
		return err
	}, func() { statement.Close() })
	return statement, err
}

func (c *recordedConn) Close() error {
	return c.recorder.closeThrough(func() error { return c.recorder.disconnect(c.Conn) })
}

type recordedRows struct {
	driver.Rows
	recorder *recorder
}

func (r *recordedRows) Next(values []driver.Value) error {
	return r.recorder.deepThrough(func() error { return r.Rows.Next(values) }, keep)
}

func (r *recordedRows) Close() error { return r.recorder.closeThrough(r.Rows.Close) }

// registerRecorded returns the name of a driver whose connections are those of a
// recorder. It stays registered.
func registerRecorded(recorded *recorder) string {
	recorded.seen = map[string][]driver.NamedValue{}
	name := "recorded-" + uuid.NewString()
	sql.Register(name, recordedDriver{recorded})
	return name
}

// openRecorded returns a pool over a new file that notes its statements.
func openRecorded(t *testing.T) (*sql.DB, *recorder) {
	t.Helper()
	return openRecordedFile(t, filepath.Join(t.TempDir(), "recorded.db"))
}

func openRecordedFile(t *testing.T, file string) (*sql.DB, *recorder) {
	t.Helper()
	name := "file:" + file
	plain, err := sql.Open("libsql", name)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, plain.Close()) })
	connector, err := plain.Driver().(driver.DriverContext).OpenConnector(name)
	require.NoError(t, err)
	recorded := &recorder{Connector: connector, seen: map[string][]driver.NamedValue{}}
	db := sql.OpenDB(recorded)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db, recorded
}

// heedful is a connector whose connections refuse statements once their context
// has ended, as some drivers do.
type heedful struct{ driver.Connector }

func (h heedful) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := h.Connector.Connect(ctx)
	return &heedfulConn{conn}, err
}

type heedfulConn struct{ driver.Conn }

func (c *heedfulConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *heedfulConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}
