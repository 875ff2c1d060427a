package outbox

import (
	"context"
	"fmt"
	"strings"
	"time"

	"example.com/outbox/internal/engine"
)

// Purge deletes up to limit settled rows that finished strictly before the
// given instant, the oldest first, with their payloads, and returns how many.
// Limit 0 does nothing; a negative one, or an instant outside the years 0000 to
// 9999, is an ErrInvalid.
//
// A row that a foreign key of another table refers to stays: Purge deletes the
// others, says how many, and returns a ReferencedError with the keys of up to
// limit of those that had to stay. (Foreign keys with ON DELETE CASCADE, SET NULL
// or SET DEFAULT keep no row.) The other errors are those of the database.
//
// A purged key can be appended again and its fence starts again, so what is kept
// is the horizon of idempotency and of fencing: keep rows for longer than a
// duplicate or a late claimer may take to show up.
//
// If the process dies, all of the rows are gone or none.
func (s *Store) Purge(ctx context.Context, finishedBefore time.Time, limit int) (purged int, err error) {
	if err := checkLimit(limit); err != nil {
		return 0, err
	}
	before, err := requireInstant("finishedBefore", finishedBefore)
	if err != nil || limit == 0 {
		return 0, err
	}
	purging := &purging{before: before, limit: limit, query: fmt.Sprintf(purgeFinished, "")}
	err = s.write(ctx, alone, false, purging.call())
	if !engine.IsReferenced(err) {
		return purging.purged(err)
	}
	referred, err := engine.Read(ctx, s.db, "purge", func(tx engine.Tx) (string, error) { return references(ctx, tx) })
	if err != nil {
		return 0, err
	}
	purging.query = fmt.Sprintf(purgeFinished, " AND NOT ("+referred+")")
	if purged, err = purging.purged(s.write(ctx, alone, false, purging.call())); err != nil {
		return purged, err
	}
	keys, err := engine.Read(ctx, s.db, "purge", func(tx engine.Tx) ([]string, error) {
		return engine.Texts(ctx, tx, fmt.Sprintf(keptFinished, referred), before, limit)
	})
	if err == nil && len(keys) > 0 {
		err = &ReferencedError{DispatchKeys: keys}
	}
	return purged, err
}

const (
	// purgeFinished may pass over some rows; it walks those that finished first.
	purgeFinished = `DELETE FROM main.outbox WHERE id IN (
	SELECT id FROM main.outbox INDEXED BY outbox_finished WHERE finished_at < ?1%s ORDER BY finished_at LIMIT ?2)`

	keptFinished = `SELECT CAST(dispatch_key AS BLOB) FROM main.outbox INDEXED BY outbox_finished
WHERE finished_at < ?1 AND (%s) ORDER BY finished_at LIMIT ?2`
)

// purging is the work of a Purge.
type purging struct {
	before string
	limit  int
	query  string
	count  int // the outcome
}

func (p *purging) purged(err error) (int, error) {
	if err != nil {
		return 0, err
	}
	return p.count, nil
}

// purgePage bounds what one statement of a Purge collects in memory.
const purgePage = 1000

func (p *purging) call() *engine.Call {
	return &engine.Call{
		Op: "purge", Weight: p.limit, Whole: p.limit > purgePage,
		Plan: func(_ string, can engine.Abilities) []engine.Statement {
			p.count = 0
			return []engine.Statement{p.page(can)}
		},
		Then: func(ctx context.Context, tx engine.Tx, _ string) error {
			for pages := 1; p.count < p.limit && p.count == pages*purgePage; pages++ {
				if err := engine.Run(ctx, tx, p.page(engine.Abilities{})); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (p *purging) page(can engine.Abilities) engine.Statement {
	return counted(engine.Statement{Query: p.query, Args: []any{p.before, min(p.limit-p.count, purgePage)}}, &p.count, can)
}

// foreignKeys are those of other tables that keep a row from being deleted, as
// table, number of the key, column of it and column of table outbox.
const foreignKeys = `SELECT CAST(child.name || char(0) || key.id || char(0) || key."from" || char(0) || ifnull(key."to", 'id') AS BLOB)
FROM main.sqlite_master AS child, pragma_foreign_key_list(child.name) AS key
WHERE child.type = 'table' AND lower(key."table") = 'outbox' AND key.on_delete IN ('NO ACTION', 'RESTRICT')
ORDER BY child.name, key.id, key.seq`

// references returns the condition of a row of table outbox that a foreign key
// of another table refers to.
func references(ctx context.Context, tx engine.Tx) (string, error) {
	parts, err := engine.Texts(ctx, tx, foreignKeys)
	if err != nil {
		return "", err
	}
	var conditions []string
	last := ""
	for _, part := range parts {
		fields := strings.Split(part, "\x00")
		if len(fields) != 4 {
			continue // of a table that SQL could not name
		}
		match := "child." + quoteName(fields[2]) + " = outbox." + quoteName(fields[3])
		if key := fields[0] + "\x00" + fields[1]; key == last {
			conditions[len(conditions)-1] += " AND " + match
		} else {
			conditions = append(conditions, "SELECT 1 FROM main."+quoteName(fields[0])+" AS child WHERE "+match)
			last = key
		}
	}
	if len(conditions) == 0 {
		return "FALSE", nil
	}
	return "EXISTS (" + strings.Join(conditions, ") OR EXISTS (") + ")", nil
}

// quoteName writes the name of a table or column into a statement.
func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
