package engine

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"example.com/outbox/sqlbatch"
)

// errApart is for calls that failed together and are to be sent one by one.
var errApart = errors.New("outbox: to be sent apart")

// unit is a call of a request: that of a job, or that of several which were
// joined.
type unit struct {
	call       *Call
	jobs       []*job
	statements []Statement
	now        string
	concluded  bool // there is nothing left to do
	apart      bool // its jobs failed together, and are to be run one by one
}

// unitsOf joins the calls of jobs that can be joined.
func unitsOf(group []*job) (units []*unit) {
	for len(group) > 0 {
		calls := joinable(group)
		u := &unit{call: group[0].call, jobs: group[:max(len(calls), 1)]}
		if len(calls) > 1 {
			u.call = calls[0].Join(calls)
		}
		units = append(units, u)
		group = group[len(u.jobs):]
	}
	return units
}

// settle gives all jobs of a unit an outcome.
func (u *unit) settle(err error) {
	for _, j := range u.jobs {
		j.err = err
	}
}

// protect runs what is a job's own, which must not end the goroutine of another.
func (u *unit) protect(fn func() error) error { return u.jobs[0].protect(fn) }

// request is a batch that runs units in a transaction of its own:
//
//	the looks of units that may have nothing to do
//	BEGIN IMMEDIATE       if a unit has something to do; the server's clock before it and after
//	the statements of the units, each after the one before; with several units
//	each is in a savepoint, which is undone if one of its statements fails
//	COMMIT                if all went well, or was undone
//	ROLLBACK              if a transaction is open still
type request struct {
	units []*unit
	steps []sqlbatch.Step

	called, begin, begun, commit int
	places                       []place
}

// place says which steps belong to a unit.
type place struct {
	look        int // its look; -1: none
	savepoint   int // -1: none
	first, last int // its statements; last may be before first
	release     int
	undone      int // the RELEASE after ROLLBACK TO
}

func newRequest(units []*unit) *request {
	return &request{units: units, places: make([]place, len(units))}
}

// shared reports whether several jobs are in it.
func (r *request) shared() bool { return len(r.units) > 1 || len(r.units[0].jobs) > 1 }

func (r *request) add(query string, args []any, condition sqlbatch.Condition) int {
	r.steps = append(r.steps, sqlbatch.Step{Query: query, Args: args, If: condition})
	return len(r.steps) - 1
}

var open = sqlbatch.Not(sqlbatch.Autocommit())

// plan writes the steps, each unit with a now of its own.
func (r *request) plan(db *DB) error {
	r.steps = nil
	var needed []sqlbatch.Condition
	for i, u := range r.units {
		err := u.protect(func() (err error) {
			if u.now, err = db.config.Now(); err != nil {
				return err
			}
			u.statements = u.call.Plan(u.now, batchAbilities)
			r.places[i].look = -1
			if u.call.Idle != nil {
				idle := u.call.Idle(u.now)
				r.places[i].look = r.add(idle.Query, idle.Args, sqlbatch.Condition{})
				needed = append(needed, sqlbatch.OK(r.places[i].look))
			}
			return nil
		})
		if err != nil {
			if r.shared() {
				u.jobs[0].panicked = nil
				return errApart // one by one, only its own call fails
			}
			return err
		}
	}
	var wanted sqlbatch.Condition
	if len(needed) == len(r.units) {
		wanted = sqlbatch.Or(needed...)
	}
	r.called = r.add(serverClock, nil, wanted)
	r.begin = r.add(immediate, nil, wanted)
	r.begun = r.add(serverClock, nil, sqlbatch.OK(r.begin))
	done := []sqlbatch.Condition{sqlbatch.OK(r.begin), open}
	for i := range r.units {
		done = append(done, r.addUnit(i))
	}
	r.commit = r.add("COMMIT", nil, sqlbatch.And(done...))
	r.add("ROLLBACK", nil, sqlbatch.And(sqlbatch.OK(r.begin), open))
	return nil
}

// addUnit adds the steps of a unit and returns the condition under which the
// transaction may be committed after it.
func (r *request) addUnit(i int) sqlbatch.Condition {
	u, at := r.units[i], &r.places[i]
	before := []sqlbatch.Condition{sqlbatch.OK(r.begin), open}
	if at.look >= 0 {
		before = append(before, sqlbatch.OK(at.look))
	}
	started := sqlbatch.And(before...)
	previous := started
	at.savepoint = -1
	if len(r.units) > 1 {
		at.savepoint = r.add("SAVEPOINT outbox_call", nil, started)
		previous = sqlbatch.OK(at.savepoint)
	}
	at.first = len(r.steps)
	for _, statement := range u.statements {
		previous = sqlbatch.OK(r.add(statement.Query, statement.Args, previous))
	}
	at.last = len(r.steps) - 1
	if at.savepoint < 0 {
		return previous
	}
	at.release = r.add("RELEASE outbox_call", nil, previous)
	back := r.add("ROLLBACK TO outbox_call", nil,
		sqlbatch.And(sqlbatch.OK(at.savepoint), sqlbatch.Not(sqlbatch.OK(at.release)), open))
	at.undone = r.add("RELEASE outbox_call", nil, sqlbatch.OK(back))
	return sqlbatch.Or(sqlbatch.OK(at.release), sqlbatch.OK(at.undone), sqlbatch.Not(sqlbatch.OK(at.savepoint)))
}

// waited returns how long BEGIN has waited for the lock.
func (r *request) waited(results []sqlbatch.Result) time.Duration {
	return between(results[r.called].Rows, results[r.begun].Rows)
}

// read takes the results to the units. Its error is for all of them.
func (r *request) read(results []sqlbatch.Result) error {
	begin, commit := results[r.begin], results[r.commit]
	if begin.Err != nil {
		return begin.Err
	}
	if !begin.Ran { // nobody has anything to do
		for i, u := range r.units {
			u.concluded = true
			if err := results[r.places[i].look].Err; !isFail(err) {
				u.settle(err)
			}
		}
		return nil
	}
	if err := r.notCommitted(results, commit); err != nil {
		return err
	}
	for i, u := range r.units {
		at := r.places[i]
		if at.look >= 0 && results[at.look].Err != nil {
			u.concluded = true
			if err := results[at.look].Err; !isFail(err) {
				u.settle(err)
			}
			continue
		}
		if err := u.failure(results, at); err != nil {
			u.concluded, u.apart = true, len(u.jobs) > 1
			u.settle(err)
			continue
		}
		if err := u.protect(func() error { return u.feed(results[at.first : at.last+1]) }); err != nil {
			u.concluded = true
			u.settle(fmt.Errorf("%w: %w", ErrCommitUnknown, err))
		}
	}
	return nil
}

// notCommitted returns why the transaction was not committed, or nil if it was.
func (r *request) notCommitted(results []sqlbatch.Result, commit sqlbatch.Result) error {
	switch {
	case commit.Ran && commit.Err == nil:
		return nil
	case commit.Ran && isBusy(commit.Err):
		return commit.Err
	case commit.Ran && (isNoTransaction(commit.Err) || isTimedOut(commit.Err)):
		return fmt.Errorf("%w: %w", ErrRolledBack, commit.Err)
	case commit.Ran:
		if isFull(commit.Err) || IsReferenced(commit.Err) {
			return commit.Err
		}
		return fmt.Errorf("%w: %w", ErrCommitUnknown, commit.Err)
	case r.shared():
		return errApart
	}
	return cmp.Or(r.units[0].failure(results, r.places[0]), error(ErrRolledBack))
}

// failure returns the error of the first statement of a unit that failed.
func (u *unit) failure(results []sqlbatch.Result, at place) error {
	if at.savepoint >= 0 && results[at.savepoint].Err != nil {
		return results[at.savepoint].Err
	}
	for i, statement := range u.statements {
		err := results[at.first+i].Err
		switch {
		case err == nil:
		case statement.Means != nil && isFail(err):
			return statement.Means
		default:
			return err
		}
	}
	return nil
}

// feed tells the statements of a unit what became of them.
func (u *unit) feed(results []sqlbatch.Result) error {
	for i, statement := range u.statements {
		if !results[i].Ran {
			return errors.New("a statement was not run")
		}
		if statement.Row != nil {
			for _, row := range results[i].Rows {
				if err := statement.Row(batchRow(row)); err != nil {
					return err
				}
			}
		}
		if statement.Changed != nil {
			if err := statement.Changed(results[i].RowsAffected, results[i].LastInsertID); err != nil {
				return err
			}
		}
	}
	return nil
}

// tooLarge reports whether a call is too much for one request. A server bounds
// what it takes, and how long a transaction may last.
func (u *unit) tooLarge() bool {
	const mostBytes, mostStatements = 16 << 20, 64
	if u.call.Weight <= mostWeight {
		return false
	}
	size := 0
	statements := u.call.Plan("", batchAbilities)
	for _, statement := range statements {
		size += len(statement.Query)
		for _, arg := range statement.Args {
			switch arg := arg.(type) {
			case string:
				size += len(arg)
			case []byte:
				size += len(arg)
			}
		}
	}
	return size > mostBytes || len(statements) > mostStatements
}
