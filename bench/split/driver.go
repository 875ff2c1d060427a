package split

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"time"
)

// recorder adds up what time a driver takes, by statement.
type recorder struct {
	mu    sync.Mutex
	times map[string]*statement // by text
}

// statement is what was seen of one.
type statement struct {
	text string
	args []driver.NamedValue
	rows int
	took time.Duration
}

func (r *recorder) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times = make(map[string]*statement)
}

func (r *recorder) seen() (all []statement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.times {
		all = append(all, *s)
	}
	return all
}

// during measures a call of the driver that belongs to a statement.
func (r *recorder) during(text string, args []driver.NamedValue, rows int, call func() error) error {
	start := time.Now()
	err := call()
	took := time.Since(start)
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.times[text]
	if s == nil {
		if r.times == nil {
			r.times = make(map[string]*statement)
		}
		s = &statement{text: text}
		r.times[text] = s
	}
	s.took += took
	if args != nil {
		s.args = args
	}
	if err == nil {
		s.rows += rows
	}
	return err
}

// timedDriver passes everything on and has it recorded.
type timedDriver struct {
	driver.Driver
	recorder *recorder
}

// wrap registers a driver that records, over one that is registered.
func wrap(registered, name string) (*recorder, error) {
	db, err := sql.Open(registered, "file::memory:")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	r := new(recorder)
	sql.Register(name, timedDriver{db.Driver(), r})
	return r, nil
}

func (d timedDriver) Open(name string) (driver.Conn, error) {
	conn, err := d.Driver.Open(name)
	if err != nil {
		return nil, err
	}
	return &timedConn{conn, d.recorder}, nil
}

type timedConn struct {
	driver.Conn
	recorder *recorder
}

func (c *timedConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (rows driver.Rows, err error) {
	queryer, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	err = c.recorder.during(text, args, 0, func() (err error) {
		rows, err = queryer.QueryContext(ctx, text, args)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &timedRows{rows, c.recorder, text}, nil
}

func (c *timedConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (result driver.Result, err error) {
	execer, ok := c.Conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	err = c.recorder.during(text, args, 0, func() (err error) {
		result, err = execer.ExecContext(ctx, text, args)
		return err
	})
	return result, err
}

func (c *timedConn) PrepareContext(ctx context.Context, text string) (stmt driver.Stmt, err error) {
	err = c.recorder.during(text, nil, 0, func() (err error) {
		if preparer, ok := c.Conn.(driver.ConnPrepareContext); ok {
			stmt, err = preparer.PrepareContext(ctx, text)
		} else {
			stmt, err = c.Prepare(text)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &timedStmt{stmt, c.recorder, text}, nil
}

func (c *timedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if beginner, ok := c.Conn.(driver.ConnBeginTx); ok {
		return beginner.BeginTx(ctx, opts)
	}
	return nil, errors.New("split: the driver has no BeginTx")
}

func (c *timedConn) ResetSession(ctx context.Context) error {
	if resetter, ok := c.Conn.(driver.SessionResetter); ok {
		return resetter.ResetSession(ctx)
	}
	return nil
}

func (c *timedConn) IsValid() bool {
	validator, ok := c.Conn.(driver.Validator)
	return !ok || validator.IsValid()
}

func (c *timedConn) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return driver.ErrSkip
}

type timedStmt struct {
	driver.Stmt
	recorder *recorder
	text     string
}

func (s *timedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (rows driver.Rows, err error) {
	queryer, ok := s.Stmt.(driver.StmtQueryContext)
	if !ok {
		return nil, errors.New("split: the driver's statements take no context")
	}
	err = s.recorder.during(s.text, args, 0, func() (err error) {
		rows, err = queryer.QueryContext(ctx, args)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &timedRows{rows, s.recorder, s.text}, nil
}

func (s *timedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (result driver.Result, err error) {
	execer, ok := s.Stmt.(driver.StmtExecContext)
	if !ok {
		return nil, errors.New("split: the driver's statements take no context")
	}
	err = s.recorder.during(s.text, args, 0, func() (err error) {
		result, err = execer.ExecContext(ctx, args)
		return err
	})
	return result, err
}

type timedRows struct {
	driver.Rows
	recorder *recorder
	text     string
}

func (r *timedRows) Next(dest []driver.Value) error {
	return r.recorder.during(r.text, nil, 1, func() error { return r.Rows.Next(dest) })
}

func (r *timedRows) Close() error {
	return r.recorder.during(r.text, nil, 0, r.Rows.Close)
}
