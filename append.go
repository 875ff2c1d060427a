package outbox

import (
	"context"
	"errors"
	"math"

	"example.com/outbox/internal/engine"
)

// Append stages rows and returns the keys of those it passed over because a
// row with that key exists, whatever its state: each once, in the order given.
// The same key twice in one call is stored once. With nothing to stage it does
// nothing.
//
// It fills in zero fields: DispatchKey from WorkflowID and Ordinal, Namespace
// and TaskQueue with DefaultRoute, Status with Pending, VisibleAfter and
// CreatedAt with now, FinishedAt of a settled row with now. A row may come
// claimed (with ClaimedAt or without) and starts with fence 1 then; or settled,
// to be imported. ID and Fence are given by the store; FinishedAt of a live row is
// ignored, and LastError is cut to 8 KiB.
//
// It returns an InvalidError, with nothing stored, if a row's text is not valid
// UTF-8 or holds a NUL, its activity type is empty, its workflow id nil, its
// ordinal beyond 2^63-1, its status unknown, its ClaimedAt set without status
// Claimed, or an instant outside the years 0000 to 9999. It returns ErrTooLarge
// for a payload of more than about a gigabyte (on a server: 4.99 MB), or texts
// of more than 512 KiB in one row. Its other errors are those of the database.
//
// If the process dies, all rows of the call are stored or none.
func (s *Store) Append(ctx context.Context, rows ...Row) (duplicates []string, err error) {
	return s.append(ctx, alone, rows)
}

// AppendTx is Append within the caller's transaction: the rows are staged when
// that commits. If it fails, with the errors of Append, the transaction is as it
// was before the call.
func (s *Store) AppendTx(ctx context.Context, tx Tx, rows ...Row) (duplicates []string, err error) {
	return s.append(ctx, inside(tx), rows)
}

func (s *Store) append(ctx context.Context, at place, rows []Row) (duplicates []string, err error) {
	staged, err := prepareRows(rows)
	if err != nil || len(staged) == 0 {
		return nil, err
	}
	work := &appending{rows: staged}
	if err := s.write(ctx, at, true, work.call()); err != nil {
		return nil, err
	}
	return work.duplicates, nil
}

// appending is the work of an Append.
type appending struct {
	rows       []stagedRow
	batches    []*appendBatch
	duplicates []string // the outcome
}

func (a *appending) call() *engine.Call {
	return &engine.Call{
		Op: "append", Weight: weightOf(a.rows), Plan: a.plan, Then: a.conclude,
		Kind: "append", Join: joinAppends, Of: a,
	}
}

// joinAppends makes one Append of several. The first to bring a key stores it; to
// those after it that key is a duplicate.
func joinAppends(calls []*engine.Call) *engine.Call {
	joined := &appending{}
	first := make(map[string]*appending)
	for _, call := range calls {
		work := call.Of.(*appending)
		for _, row := range work.rows {
			if first[row.DispatchKey] == nil {
				first[row.DispatchKey] = work
				joined.rows = append(joined.rows, row)
			}
		}
	}
	call := joined.call()
	call.Then = func(ctx context.Context, tx engine.Tx, now string) error {
		if err := joined.conclude(ctx, tx, now); err != nil {
			return err
		}
		for _, key := range joined.duplicates {
			first[key] = nil // it was there before all of them
		}
		for _, call := range calls {
			work := call.Of.(*appending)
			work.duplicates = nil
			for i := range work.rows {
				if key := work.rows[i].DispatchKey; first[key] != work {
					work.duplicates = append(work.duplicates, key)
				}
			}
		}
		return nil
	}
	return call
}

// plan has a statement or two for every hundred rows.
func (a *appending) plan(now string, can engine.Abilities) []engine.Statement {
	a.batches, a.duplicates = nil, nil
	var statements []engine.Statement
	for _, rows := range statementBatches(a.rows) {
		batch := &appendBatch{rows: rows}
		a.batches = append(a.batches, batch)
		statements = append(statements, batch.plan(now, can)...)
	}
	return statements
}

// conclude learns which keys were taken.
func (a *appending) conclude(ctx context.Context, tx engine.Tx, _ string) error {
	for _, batch := range a.batches {
		taken, err := batch.taken(ctx, tx)
		if err != nil {
			return err
		}
		a.duplicates = append(a.duplicates, taken...)
	}
	return nil
}

// appendBatch is as many rows as go into one INSERT.
type appendBatch struct {
	rows     []stagedRow
	inserted map[string]int64 // ids by key, if rows may have been passed over
	dropped  bool             // the INSERT succeeded, but stored fewer rows than it has
	stored   int              // how many it has stored then
	newest   int64            // the id of the newest row that was there before
	unsure   bool             // rows that were passed over may have been dropped
	unstored bool             // large payloads are still to be stored
}

const (
	// Only a taken key is passed over; any other constraint is an error,
	// which INSERT OR IGNORE would swallow.
	keepTaken = ` ON CONFLICT (dispatch_key) DO NOTHING RETURNING id, CAST(dispatch_key AS BLOB)`

	// noneDropped fails unless each row was inserted or has its key taken: a
	// trigger of the program's may drop one without a word. changes() is what
	// the INSERT before has inserted.
	noneDropped = `SELECT CASE WHEN changes() < ?1 AND ?1 > (SELECT count(*) FROM json_each(?2) AS given CROSS JOIN main.outbox INDEXED BY outbox_key
	ON outbox.dispatch_key = given.value) THEN ` + engine.Fail + ` END`

	keysThatAreThere = `SELECT given.key FROM json_each(?1) AS given CROSS JOIN main.outbox INDEXED BY outbox_key
ON outbox.dispatch_key = given.value WHERE outbox.id <= ?2 ORDER BY given.key`
)

// errNotStored is for what a trigger of the program's drops without a word.
var errNotStored = errors.New("a row was not stored, though its key is free")

// plan tries an INSERT without a conflict clause first, where a second try is
// cheap: none of the rows is known most of the time, and an INSERT that returns
// nothing costs a third less.
func (b *appendBatch) plan(now string, can engine.Abilities) []engine.Statement {
	insert, args := insertStatement(b.rows, now, can.Keeps)
	keep := []engine.Statement{{Query: insert + keepTaken, Args: args, Row: func(row engine.Row) error {
		var (
			id  int64
			key []byte
		)
		err := row.Scan(&id, &key)
		b.inserted[string(key)] = id
		return err
	}}}
	b.unsure = !can.Batch
	if can.Batch {
		keep = append(keep, engine.Statement{
			Query: noneDropped, Args: []any{len(b.rows), encodeJSON(keysOf(b.rows))},
			Row: func(engine.Row) error { return nil }, Means: errNotStored,
		})
	}
	statements := keep
	if !can.SecondTry {
		b.inserted = make(map[string]int64, len(b.rows))
	} else {
		statements = []engine.Statement{{Query: insert, Args: args,
			Changed: func(stored, lastInsertID int64) error {
				b.stored = int(stored)
				b.dropped = b.stored < len(b.rows)
				b.newest = math.MaxInt64
				if stored > 0 { // ids of one statement follow each other
					b.newest = lastInsertID - stored
				}
				return nil
			},
			Else: func(err error) []engine.Statement {
				if !engine.IsTaken(err) {
					return nil
				}
				b.inserted = make(map[string]int64, len(b.rows))
				return keep
			},
		}}
	}
	if b.unstored = !can.Counts; b.unstored {
		return statements
	}
	return append(statements, insertPayloads(b.rows, justInserted)...)
}

// taken returns the keys that were taken before, in the order given.
func (b *appendBatch) taken(ctx context.Context, tx engine.Tx) (keys []string, err error) {
	if b.inserted == nil && !b.dropped {
		return nil, nil
	}
	if b.dropped { // the keys that were there are those of older rows
		there, err := keysBefore(ctx, tx, keysOf(b.rows), b.newest)
		if err == nil && len(there)+b.stored < len(b.rows) {
			err = errNotStored
		}
		return there, err
	}
	if b.unstored {
		if err := engine.Run(ctx, tx, insertPayloadsByID(b.rows, b.inserted)...); err != nil {
			return nil, err
		}
	}
	for i := range b.rows {
		if _, ok := b.inserted[b.rows[i].DispatchKey]; !ok {
			keys = append(keys, b.rows[i].DispatchKey)
		}
	}
	if b.unsure && len(keys) > 0 {
		there, err := keysBefore(ctx, tx, keys, math.MaxInt64)
		if err == nil && len(there) < len(keys) {
			err = errNotStored
		}
		return keys, err
	}
	return keys, nil
}

// keysBefore returns those of keys that rows up to an id have, in the order given.
func keysBefore(ctx context.Context, tx engine.Tx, keys []string, newest int64) (there []string, err error) {
	for batch := range argumentBatches(keys, func(key string) int { return len(key) }) {
		positions, err := engine.Ints(ctx, tx, keysThatAreThere, encodeJSON(batch), newest)
		if err != nil {
			return nil, err
		}
		for _, position := range positions {
			there = append(there, batch[position])
		}
	}
	return there, nil
}
