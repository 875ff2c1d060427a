package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
)

// insertNew stores rows none of which is known, as it is most often: without a
// conflict clause and without returning anything an INSERT costs a third less.
// It reports false, with nothing stored, if a key is taken, and for large
// payloads, which need the ids. Not for servers: a second try would cost requests.
// Rows that are known although the statement did not fail were dropped by a
// trigger of the host's.
func insertNew(ctx context.Context, tx Tx, now string, rows []stagedRow) (stored bool, known []string, err error) {
	for i := range rows {
		if rows[i].large() {
			return false, nil, nil
		}
	}
	statement, args := insertStatement(rows, now)
	result, err := tx.ExecContext(ctx, statement, args...)
	if isTaken(err) {
		return false, nil, nil
	}
	if err != nil {
		return false, nil, err
	}
	n, err := result.RowsAffected()
	if err != nil || n == int64(len(rows)) {
		return true, nil, err
	}
	newest := int64(math.MaxInt64) // of the rows that were there before
	if n > 0 {
		last, err := result.LastInsertId() // ids of one statement follow each other
		if err != nil {
			return false, nil, err
		}
		newest = last - n
	}
	keys := make([]string, len(rows))
	for i := range rows {
		keys[i] = rows[i].DispatchKey
	}
	known, err = queryTexts(ctx, tx, keysThatWereThere, encodeJSON(keys), newest)
	if err == nil && len(known)+int(n) < len(keys) {
		err = errNotStored
	}
	return true, known, err
}

// errNotStored is for what a trigger of the host's drops without a word.
var errNotStored = errors.New("a row was not stored, though its key is free")

const keysThatWereThere = `SELECT CAST(given.value AS BLOB) FROM json_each(?1) AS given CROSS JOIN outbox INDEXED BY outbox_key
ON outbox.dispatch_key = given.value WHERE outbox.id <= ?2 ORDER BY given.key`

// checkKnown makes sure that rows which were passed over are there: a trigger of
// the host's may also drop a row without a word.
func checkKnown(ctx context.Context, tx Tx, keys []string) error {
	for batch := range argumentBatches(keys, func(key string) int { return len(key) }) {
		n, err := countRows(ctx, tx, keysThatAreThere, encodeJSON(batch))
		if err == nil && n < len(batch) {
			err = errNotStored
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const keysThatAreThere = `SELECT 1 FROM json_each(?1) AS given CROSS JOIN outbox INDEXED BY outbox_key
ON outbox.dispatch_key = given.value`

const (
	// Only a taken key is passed over; any other constraint is an error,
	// which INSERT OR IGNORE would swallow.
	onConflictKeep = ` ON CONFLICT (dispatch_key) DO NOTHING`

	// A new row has fence 0 here, so the fence tells it from one rearmed.
	onConflictRearm = ` ON CONFLICT (dispatch_key) DO UPDATE SET status = 'pending', visible_after = excluded.visible_after,
	claimed_at = NULL, last_error = NULL, finished_at = NULL, fence = ` + reopenedFence

	returningKeys = ` RETURNING id, CAST(dispatch_key AS BLOB), fence IS 0`
)

// insertRows stores rows, but for large payloads, and returns the ids of those
// that are new, by key, and how many were stored or changed.
func insertRows(ctx context.Context, tx Tx, now string, rows []stagedRow, onConflict string) (inserted map[string]int64, touched int, err error) {
	statement, args := insertStatement(rows, now)
	inserted = make(map[string]int64, len(rows))
	err = query(ctx, tx, statement+onConflict+returningKeys, args, func(returned *sql.Rows) error {
		var (
			id       int64
			key      []byte
			unfenced bool
		)
		if err := returned.Scan(&id, &key, &unfenced); err != nil {
			return err
		}
		touched++
		if onConflict == onConflictKeep || unfenced {
			inserted[string(key)] = id
		}
		return nil
	})
	return inserted, touched, err
}

func (r *stagedRow) large() bool { return len(r.Input.Data) > inlineLimit }

// insertPayloads stores the large payloads of the rows that are new. What is
// left of a row that was replaced behind the triggers' back is overwritten.
func insertPayloads(ctx context.Context, tx Tx, rows []stagedRow, inserted map[string]int64) error {
	var (
		statement strings.Builder
		args      []any
	)
	for i := range rows {
		id, ok := inserted[rows[i].DispatchKey]
		if !ok || !rows[i].large() {
			continue
		}
		if len(args) == 0 {
			statement.WriteString("INSERT INTO outbox_payload (id, data) VALUES ")
		} else {
			statement.WriteByte(',')
		}
		fmt.Fprintf(&statement, "(%d,?)", id)
		args = append(args, rows[i].Input.Data)
	}
	if len(args) == 0 {
		return nil
	}
	statement.WriteString(" ON CONFLICT (id) DO UPDATE SET data = excluded.data")
	_, err := tx.ExecContext(ctx, statement.String(), args...)
	return err
}
