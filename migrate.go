package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"example.com/outbox/internal/engine"
)

// Migrate makes the tables, or completes them, or rebuilds a legacy one. It may
// be run by several processes at once and does nothing if there is nothing to do.
//
// A legacy table is one named outbox with the first thirteen columns of
// schema.sql, of which claimed_at, run_id, namespace, task_queue and node may be
// missing or NULL, and with payloads in JSON envelopes. Its live rows that could
// never be claimed, because their status or an instant is invalid or a required
// column is NULL, become dead letters with the reason as their last error; its
// settled rows get the present as their FinishedAt. Your views, indexes and triggers on it are kept. It is
// refused if it has other columns, a key more than once, or a foreign key to it
// that names no column.
//
// It returns ErrForeignTable or ErrNewerSchema, with nothing changed, if the
// database is not the store's to use; its other errors are those of the database.
// If the process dies, the database is migrated or as it was.
func (s *Store) Migrate(ctx context.Context) error {
	have, err := engine.Look(ctx, s.db, "migrate", func(tx engine.Tx) (schemaState, error) {
		return inspect(ctx, tx)
	})
	if err != nil || have == schemaCurrent {
		return err
	}
	return s.db.Rewrite(ctx, "migrate", func(tx engine.Tx, now string) error {
		have, err := inspect(ctx, tx) // again: another process may have been first
		if err != nil {
			return err
		}
		switch have {
		case schemaCurrent:
			return nil
		case schemaLegacy:
			return rebuild(ctx, tx, now)
		default:
			return createSchema(ctx, tx)
		}
	})
}

// rebuild turns a legacy table into the present one. A primary key cannot be
// added to a table, so its rows are copied aside, the table is dropped and made
// again: a renamed table would drag the program's views along with it.
func rebuild(ctx context.Context, tx engine.Tx, now string) error {
	if err := refuseUnsuitable(ctx, tx); err != nil {
		return err
	}
	kept, err := hostObjects(ctx, tx)
	if err != nil {
		return err
	}
	unique, err := uniqueIndexes(ctx, tx)
	if err != nil {
		return err
	}
	kept = append(unique, kept...)
	columns, err := columnsOf(ctx, tx, "outbox")
	if err != nil {
		return err
	}
	order := "rowid"
	if rowless, err := engine.Count(ctx, tx, withoutRowID); err != nil {
		return err
	} else if rowless > 0 {
		order = "workflow_id, ordinal"
	}
	if err := execAll(ctx, tx, []string{copyAside(columns, order), `DROP TABLE main.outbox`}); err != nil {
		return err
	}
	if err := repairCopy(ctx, tx, now); err != nil {
		return err
	}
	if err := createSchema(ctx, tx); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, copyBack, now); err != nil {
		return err
	}
	if err := execAll(ctx, tx, []string{moveLargePayloads, clearMovedPayloads, `DROP TABLE main.outbox_migrating`}); err != nil {
		return err
	}
	err = execAll(ctx, tx, kept)
	if engine.IsTaken(err) {
		return fmt.Errorf("%w: an index of the host's cannot be made anew: %w", ErrForeignTable, err)
	}
	return err
}

// refuseUnsuitable refuses a legacy table that cannot be rebuilt: with keys
// stored twice, or with a foreign key to it that names no column and would come
// to mean another.
func refuseUnsuitable(ctx context.Context, tx engine.Tx) error {
	repeated, err := engine.Count(ctx, tx, `SELECT 1 FROM main.outbox GROUP BY dispatch_key HAVING count(dispatch_key) > 1 LIMIT 1`)
	if err != nil {
		return err
	}
	if repeated > 0 {
		return fmt.Errorf("%w: outbox has a dispatch_key more than once", ErrForeignTable)
	}
	implicit, err := engine.Texts(ctx, tx, `SELECT CAST(child.name AS BLOB)
FROM sqlite_master AS child, pragma_foreign_key_list(child.name) AS key
WHERE child.type = 'table' AND lower(key."table") = 'outbox' AND key."to" IS NULL`)
	if err != nil {
		return err
	}
	if len(implicit) > 0 {
		return fmt.Errorf("%w: table %q refers to outbox without naming the column dispatch_key", ErrForeignTable, implicit[0])
	}
	return nil
}

// uniqueIndexes returns statements that make the unique constraints of an old
// table again, but for that of the key, as indexes. Foreign keys of the program may
// rest on them.
func uniqueIndexes(ctx context.Context, tx engine.Tx) ([]string, error) {
	lists, err := engine.Texts(ctx, tx, `SELECT CAST((SELECT group_concat(name, ', ') FROM pragma_index_info(list.name)) AS BLOB)
FROM pragma_index_list('outbox') AS list WHERE list.origin IN ('u', 'pk') ORDER BY seq DESC`)
	var statements []string
	for i, columns := range lists {
		if columns != "dispatch_key" {
			statements = append(statements, fmt.Sprintf("CREATE UNIQUE INDEX outbox_unique_%d ON outbox (%s)", i+1, columns))
		}
	}
	return statements, err
}

// hostObjects returns the statements that made the program's indexes and triggers
// on the table, which go with it. Indexes of constraints have none.
func hostObjects(ctx context.Context, tx engine.Tx) ([]string, error) {
	names := make([]string, 0, 8)
	for _, object := range schemaObjects() {
		names = append(names, object.name)
	}
	return engine.Texts(ctx, tx, `SELECT CAST(sql AS BLOB) FROM sqlite_master
WHERE lower(tbl_name) = 'outbox' AND type IN ('index', 'trigger') AND sql IS NOT NULL
	AND lower(name) NOT IN (SELECT value FROM json_each(?1)) ORDER BY rowid`, encodeJSON(names))
}

// copyAside copies a legacy table with the columns it has, in staging order.
func copyAside(columns []tableColumn, order string) string {
	orElse := func(name, expression, missing string) string {
		if (tableColumn{name, ""}).isAmong(columns) {
			return expression
		}
		return missing
	}
	return `CREATE TABLE main.outbox_migrating AS SELECT dispatch_key,
	CASE typeof(workflow_id) WHEN 'text' THEN lower(workflow_id) ELSE workflow_id END AS workflow_id,
	ordinal, activity_type, input, status, attempt, visible_after,
	` + orElse("claimed_at", "claimed_at", "NULL") + ` AS claimed_at,
	` + orElse("run_id", "run_id", "NULL") + ` AS run_id,
	` + orElse("namespace", "ifnull(namespace, 'default')", "'default'") + ` AS namespace,
	` + orElse("task_queue", "ifnull(task_queue, 'default')", "'default'") + ` AS task_queue,
	` + orElse("node", "nullif(node, '')", "NULL") + ` AS node,
	NULL AS last_error
FROM main.outbox ORDER BY ` + order
}

const (
	withoutRowID = `SELECT 1 FROM sqlite_master WHERE lower(name) = 'outbox' AND lower(sql) LIKE '%without%rowid%'`

	// wellFormed is the shape that the CHECKs of schema.sql ask of an instant.
	wellFormed = ` GLOB '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]Z'`

	knownStatus = `('pending', 'claimed', 'done', 'failed', 'cancelled')`

	copyBack = `INSERT INTO main.outbox (dispatch_key, workflow_id, ordinal, activity_type, input, status, attempt, visible_after,
	claimed_at, run_id, namespace, task_queue, node, fence, last_error, created_at, finished_at)
SELECT dispatch_key, workflow_id, ordinal, activity_type, ifnull(input, x''), status, attempt, visible_after,
	claimed_at, run_id, namespace, task_queue, node, status = 'claimed', last_error, ?1,
	CASE WHEN status IN ` + liveStatus + ` THEN NULL ELSE ?1 END
FROM main.outbox_migrating ORDER BY rowid`

	moveLargePayloads = `INSERT INTO main.outbox_payload (id, data)
SELECT id, CAST(input AS BLOB) FROM main.outbox WHERE length(input) > ` + inlineLimitSQL

	clearMovedPayloads = `UPDATE main.outbox SET input = NULL WHERE length(input) > ` + inlineLimitSQL
)

// repairCopy makes every copied row one that the present table can hold. Live
// rows that could never be claimed become dead letters with a reason.
func repairCopy(ctx context.Context, tx engine.Tx, now string) error {
	err := execAll(ctx, tx, []string{
		`UPDATE main.outbox_migrating SET status = 'failed',
	last_error = 'migration: unknown status ' || quote(status)
WHERE typeof(status) <> 'text' OR status NOT IN ` + knownStatus,

		`UPDATE main.outbox_migrating SET last_error = 'migration: a required column is NULL',
	status = CASE WHEN status IN ` + liveStatus + ` THEN 'failed' ELSE status END,
	dispatch_key = ifnull(dispatch_key, 'unknown:' || rowid || ':' || hex(randomblob(8))),
	workflow_id = ifnull(workflow_id, 'unknown:' || rowid), ordinal = ifnull(ordinal, -rowid), activity_type = ifnull(activity_type, ''), attempt = ifnull(attempt, -1)
WHERE dispatch_key IS NULL OR workflow_id IS NULL OR ordinal IS NULL OR activity_type IS NULL OR attempt IS NULL`,
	})
	if err != nil {
		return err
	}
	err = repairInstants(ctx, tx, "visible_after", "TRUE", func(id int64, text, repaired string) error {
		if repaired != "" {
			_, err := tx.ExecContext(ctx, `UPDATE main.outbox_migrating SET visible_after = ?1 WHERE rowid = ?2`, repaired, id)
			return err
		}
		_, err := tx.ExecContext(ctx, `UPDATE main.outbox_migrating SET visible_after = ?1,
	last_error = CASE WHEN status IN `+liveStatus+` THEN ?2 ELSE last_error END,
	status = CASE WHEN status IN `+liveStatus+` THEN 'failed' ELSE status END WHERE rowid = ?3`,
			now, cleanText(fmt.Sprintf("migration: visible_after %.100q is not an instant", text)), id)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE main.outbox_migrating SET claimed_at = NULL WHERE status <> 'claimed'`); err != nil {
		return err
	}
	// A claim of unknown age counts from now, so that it goes stale in the end.
	return repairInstants(ctx, tx, "claimed_at", "claimed_at IS NOT NULL", func(id int64, _, repaired string) error {
		if repaired == "" {
			repaired = now
		}
		_, err := tx.ExecContext(ctx, `UPDATE main.outbox_migrating SET claimed_at = ?1 WHERE rowid = ?2`, repaired, id)
		return err
	})
}

// repairInstants calls repair for each copied row whose instant is not in the
// stored form, with that instant in it if it is one in another.
func repairInstants(ctx context.Context, tx engine.Tx, column, where string, repair func(id int64, text, repaired string) error) error {
	const page = 1000
	malformed := `SELECT rowid, CAST(ifnull(` + column + `, '') AS BLOB) FROM main.outbox_migrating
WHERE rowid > ?1 AND (` + where + `) AND NOT (typeof(` + column + `) = 'text' AND ` + column + wellFormed + `
	AND ifnull(datetime(substr(` + column + `, 1, 19)) = replace(substr(` + column + `, 1, 19), 'T', ' '), FALSE)) ORDER BY rowid LIMIT ?2`
	type instant struct {
		id   int64
		text string
	}
	for last := int64(-1); ; {
		var found []instant
		err := engine.Query(ctx, tx, malformed, []any{last, page}, func(rows engine.Row) error {
			var one instant
			var raw sql.RawBytes
			if err := rows.Scan(&one.id, &raw); err != nil {
				return err
			}
			one.text = string(raw)
			found = append(found, one)
			return nil
		})
		if err != nil {
			return err
		}
		for _, one := range found {
			if err := repair(one.id, one.text, reformInstant(one.text)); err != nil {
				return err
			}
			last = one.id
		}
		if len(found) < page {
			return nil
		}
	}
}

// reformInstant returns an instant written in another way in the stored form,
// or "" if text is none.
func reformInstant(text string) string {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999"} {
		if at, err := time.Parse(layout, text); err == nil {
			if repaired, ok := encodeInstant(at); ok {
				return repaired
			}
		}
	}
	return ""
}
