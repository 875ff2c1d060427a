package outbox

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"
)

//go:embed schema.sql
var schema string

// schemaVersion is the version that schema.sql writes.
const schemaVersion = 1

// Schema returns the statements that Migrate runs on an empty database, for
// hosts that run their own migrations. Each may be run again. They are parted
// by a semicolon and an empty line.
func Schema() string { return schema }

// schemaStatements returns the statements of schema.sql one by one: a driver
// may run the first of several and drop the rest without a word.
func schemaStatements() []string {
	return strings.Split(strings.TrimSuffix(strings.TrimSpace(schema), ";"), ";\n\n")
}

// Migrate makes the tables, or brings those of an older version or of the
// engine that the store grew from up to date. It may be run by several
// processes at once and does nothing if there is nothing to do.
//
// Rows that could never be claimed afterwards, because their status or an
// instant is none, become dead letters with the reason as their last error.
// Views, indexes and triggers of the host are kept.
//
// It returns ErrForeignTable or ErrNewerSchema, with nothing changed, if the
// database is not the store's to use. If the process dies, the database is
// migrated or as it was.
func (s *Store) Migrate(ctx context.Context) error {
	have, err := look(ctx, s, "migrate", func(tx Tx) (schemaState, error) {
		return inspect(ctx, tx)
	})
	if err != nil || have == schemaCurrent {
		return err
	}
	return s.writeSchema(ctx, "migrate", func(tx Tx, now string) error {
		have, err := inspect(ctx, tx) // again: another process may have been first
		if err != nil {
			return err
		}
		switch have {
		case schemaCurrent:
			return nil
		case schemaOld:
			return rebuild(ctx, tx, now)
		default:
			return createSchema(ctx, tx)
		}
	})
}

func createSchema(ctx context.Context, tx Tx) error {
	return execAll(ctx, tx, schemaStatements())
}

func execAll(ctx context.Context, tx Tx, statements []string) error {
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// schemaState is how far a database is migrated.
type schemaState int

const (
	schemaIncomplete schemaState = iota // nothing, or not all of it
	schemaOld                           // the table of the engine that the store grew from
	schemaCurrent
)

// column is a column of a table, with its declared type.
type column struct{ name, kind string }

// Columns of table outbox, in order.
var (
	requiredColumns = []column{
		{"dispatch_key", "text"}, {"workflow_id", "text"}, {"ordinal", "int"}, {"activity_type", "text"},
		{"input", "blob"}, {"status", "text"}, {"attempt", "int"}, {"visible_after", "text"},
	}
	laterColumns = []column{ // old files may lack them
		{"claimed_at", "text"}, {"run_id", "text"}, {"namespace", "text"}, {"task_queue", "text"}, {"node", "text"},
	}
	ownColumns = []column{
		{"id", "int"}, {"content_type", "text"}, {"fence", "int"}, {"last_error", "text"}, {"created_at", "text"}, {"finished_at", "text"},
	}
)

// isAmong reports whether one of columns has that name and a type of that kind.
func (want column) isAmong(columns []column) bool {
	return slices.ContainsFunc(columns, func(have column) bool {
		return have.name == want.name && strings.Contains(have.kind, want.kind)
	})
}

func areAmong(wanted, columns []column) bool {
	return !slices.ContainsFunc(wanted, func(want column) bool { return !want.isAmong(columns) })
}

// schemaObject is a table, index or trigger.
type schemaObject struct{ kind, name, table string }

// schemaObjects returns what schema.sql creates.
func schemaObjects() []schemaObject {
	var objects []schemaObject
	for _, statement := range schemaStatements() {
		var words []string
		for line := range strings.Lines(statement) {
			code, _, _ := strings.Cut(line, "--")
			words = append(words, strings.Fields(code)...)
		}
		at := slices.Index(words, "EXISTS")
		if words[0] != "CREATE" || at < 0 {
			continue
		}
		object := schemaObject{kind: strings.ToLower(words[at-3]), name: words[at+1], table: words[at+1]}
		if object.kind != "table" {
			object.table = words[at+1+slices.Index(words[at+1:], "ON")+1]
		}
		objects = append(objects, object)
	}
	return objects
}

// inspect tells how far a database is migrated, without changing it.
func inspect(ctx context.Context, tx Tx) (schemaState, error) {
	found := make(map[string]schemaObject)
	listed, err := queryTexts(ctx, tx, `SELECT CAST(lower(type) || char(0) || lower(name) || char(0) || lower(tbl_name) AS BLOB)
FROM sqlite_master WHERE lower(name) LIKE 'outbox%'`)
	if err != nil {
		return 0, err
	}
	for _, text := range listed {
		if fields := strings.Split(text, "\x00"); len(fields) == 3 {
			found[fields[1]] = schemaObject{fields[0], fields[1], fields[2]}
		}
	}

	// The version first: a newer one may look in any way.
	version := 0
	if object, ok := found["outbox_schema"]; ok && object.kind == "table" {
		columns, err := columnsOf(ctx, tx, "outbox_schema")
		if err != nil {
			return 0, err
		}
		if !areAmong([]column{{"version", "int"}}, columns) {
			return 0, fmt.Errorf("%w: outbox_schema has other columns", ErrForeignTable)
		}
		if err := tx.QueryRowContext(ctx, `SELECT ifnull(max(version), 0) FROM outbox_schema`).Scan(&version); err != nil {
			return 0, err
		}
	}
	if version > schemaVersion {
		return 0, fmt.Errorf("%w: version %d, this package knows %d", ErrNewerSchema, version, schemaVersion)
	}

	columns, err := columnsOf(ctx, tx, "outbox")
	if err != nil {
		return 0, err
	}
	payload, err := columnsOf(ctx, tx, "outbox_payload")
	if err != nil {
		return 0, err
	}
	if len(payload) > 0 && !areAmong([]column{{"id", "int"}, {"data", "blob"}}, payload) {
		return 0, fmt.Errorf("%w: outbox_payload has other columns", ErrForeignTable)
	}
	state := schemaCurrent
	for _, want := range schemaObjects() {
		have, ok := found[want.name]
		switch {
		case !ok:
			state = schemaIncomplete
		case have.kind != want.kind || have.table != want.table:
			return 0, fmt.Errorf("%w: %s %s", ErrForeignTable, have.kind, want.name)
		}
	}
	switch {
	case len(columns) == 0:
		return schemaIncomplete, nil
	case areAmong(slices.Concat(requiredColumns, laterColumns, ownColumns), columns):
		if version < schemaVersion {
			return schemaIncomplete, nil
		}
		return state, nil
	case isOld(columns):
		if _, ok := found["outbox_migrating"]; ok {
			return 0, fmt.Errorf("%w: outbox_migrating", ErrForeignTable)
		}
		return schemaOld, nil
	}
	return 0, fmt.Errorf("%w: outbox has other columns", ErrForeignTable)
}

// isOld reports whether columns are those of an old file. Some may be missing,
// but none unknown: what the store does not know would be lost.
func isOld(columns []column) bool {
	known := slices.Concat(requiredColumns, laterColumns)
	return areAmong(requiredColumns, columns) && !slices.ContainsFunc(columns, func(have column) bool {
		return !slices.ContainsFunc(known, func(want column) bool { return want.name == have.name })
	})
}

// columnsOf returns the columns of a table in lower case, or none.
func columnsOf(ctx context.Context, tx Tx, table string) ([]column, error) {
	listed, err := queryTexts(ctx, tx, `SELECT CAST(lower(name) || char(0) || lower(type) AS BLOB)
FROM pragma_table_info('`+table+`') ORDER BY cid`)
	var columns []column
	for _, text := range listed {
		name, kind, _ := strings.Cut(text, "\x00")
		columns = append(columns, column{name, kind})
	}
	return columns, err
}

// rebuild turns an old table into the present one. A primary key cannot be
// added to a table, so its rows are copied aside, the table is dropped and made
// anew: a renamed table would drag the host's views along with it.
func rebuild(ctx context.Context, tx Tx, now string) error {
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
	if rowless, err := anyRow(ctx, tx, withoutRowID); err != nil {
		return err
	} else if rowless {
		order = "workflow_id, ordinal"
	}
	if err := execAll(ctx, tx, []string{copyAside(columns, order), `DROP TABLE outbox`}); err != nil {
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
	return execAll(ctx, tx, slices.Concat([]string{moveLargePayloads, clearMovedPayloads, `DROP TABLE outbox_migrating`}, kept))
}

// refuseUnsuitable refuses an old table that cannot be made anew: with keys
// stored twice, or with a foreign key to it that names no column and would come
// to mean another.
func refuseUnsuitable(ctx context.Context, tx Tx) error {
	repeated, err := anyRow(ctx, tx, `SELECT 1 FROM outbox GROUP BY dispatch_key HAVING count(dispatch_key) > 1 LIMIT 1`)
	if err != nil {
		return err
	}
	if repeated {
		return fmt.Errorf("%w: outbox has a dispatch_key more than once", ErrForeignTable)
	}
	implicit, err := queryTexts(ctx, tx, `SELECT CAST(child.name AS BLOB)
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
// table anew, but for that of the key, as indexes. Foreign keys of the host may
// rest on them.
func uniqueIndexes(ctx context.Context, tx Tx) ([]string, error) {
	lists, err := queryTexts(ctx, tx, `SELECT CAST((SELECT group_concat(name, ', ') FROM pragma_index_info(list.name)) AS BLOB)
FROM pragma_index_list('outbox') AS list WHERE list.origin IN ('u', 'pk') ORDER BY seq DESC`)
	var statements []string
	for i, columns := range lists {
		if columns != "dispatch_key" {
			statements = append(statements, fmt.Sprintf("CREATE UNIQUE INDEX outbox_unique_%d ON outbox (%s)", i+1, columns))
		}
	}
	return statements, err
}

// hostObjects returns the statements that made the host's indexes and triggers
// on the table, which go with it. Indexes of constraints have none.
func hostObjects(ctx context.Context, tx Tx) ([]string, error) {
	names := make([]string, 0, 8)
	for _, object := range schemaObjects() {
		names = append(names, object.name)
	}
	return queryTexts(ctx, tx, `SELECT CAST(sql AS BLOB) FROM sqlite_master
WHERE lower(tbl_name) = 'outbox' AND type IN ('index', 'trigger') AND sql IS NOT NULL
	AND lower(name) NOT IN (SELECT value FROM json_each(?1)) ORDER BY rowid`, encodeJSON(names))
}

// copyAside copies an old table with the columns it has, in staging order.
func copyAside(columns []column, order string) string {
	column := func(name, expression string) string {
		if !(column{name, ""}).isAmong(columns) {
			return strings.ReplaceAll(expression, name, "NULL")
		}
		return expression
	}
	return `CREATE TABLE outbox_migrating AS SELECT dispatch_key,
	CASE typeof(workflow_id) WHEN 'text' THEN lower(workflow_id) ELSE workflow_id END AS workflow_id,
	ordinal, activity_type, input, status, attempt, visible_after,
	` + column("claimed_at", "claimed_at") + ` AS claimed_at,
	` + column("run_id", "run_id") + ` AS run_id,
	` + column("namespace", "ifnull(namespace, 'default')") + ` AS namespace,
	` + column("task_queue", "ifnull(task_queue, 'default')") + ` AS task_queue,
	` + column("node", "nullif(node, '')") + ` AS node,
	NULL AS last_error
FROM outbox ORDER BY ` + order
}

const (
	withoutRowID = `SELECT 1 FROM sqlite_master WHERE lower(name) = 'outbox' AND lower(sql) LIKE '%without%rowid%'`

	// wellFormed is the shape that the CHECKs of schema.sql ask of an instant.
	wellFormed = ` GLOB '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]Z'`

	knownStatus = `('pending', 'claimed', 'done', 'failed', 'cancelled')`

	copyBack = `INSERT INTO outbox (dispatch_key, workflow_id, ordinal, activity_type, input, status, attempt, visible_after,
	claimed_at, run_id, namespace, task_queue, node, fence, last_error, created_at, finished_at)
SELECT dispatch_key, workflow_id, ordinal, activity_type, input, status, attempt, visible_after,
	claimed_at, run_id, namespace, task_queue, node, status = 'claimed', last_error, ?1,
	CASE WHEN status IN ` + liveStatus + ` THEN NULL ELSE ?1 END
FROM outbox_migrating ORDER BY rowid`

	moveLargePayloads = `INSERT INTO outbox_payload (id, data)
SELECT id, CAST(input AS BLOB) FROM outbox WHERE length(input) > ` + inlineLimitSQL

	clearMovedPayloads = `UPDATE outbox SET input = NULL WHERE length(input) > ` + inlineLimitSQL
)

// repairCopy makes every copied row one that the present table can hold. Live
// rows that could never be claimed become dead letters with a reason.
func repairCopy(ctx context.Context, tx Tx, now string) error {
	err := execAll(ctx, tx, []string{
		`UPDATE outbox_migrating SET status = 'failed',
	last_error = 'migration: status ' || ifnull(quote(status), 'NULL') || ' is none'
WHERE typeof(status) <> 'text' OR status NOT IN ` + knownStatus,

		`UPDATE outbox_migrating SET status = 'failed', last_error = 'migration: a required column is NULL',
	dispatch_key = ifnull(dispatch_key, 'outbox:unknown:' || rowid), workflow_id = ifnull(workflow_id, ''),
	ordinal = ifnull(ordinal, -1), activity_type = ifnull(activity_type, ''), attempt = ifnull(attempt, -1)
WHERE dispatch_key IS NULL OR workflow_id IS NULL OR ordinal IS NULL OR activity_type IS NULL OR attempt IS NULL`,
	})
	if err != nil {
		return err
	}
	err = repairInstants(ctx, tx, "visible_after", "TRUE", func(id int64, text, repaired string) error {
		if repaired != "" {
			_, err := tx.ExecContext(ctx, `UPDATE outbox_migrating SET visible_after = ?1 WHERE rowid = ?2`, repaired, id)
			return err
		}
		_, err := tx.ExecContext(ctx, `UPDATE outbox_migrating SET visible_after = ?1,
	last_error = CASE WHEN status IN `+liveStatus+` THEN ?2 ELSE last_error END,
	status = CASE WHEN status IN `+liveStatus+` THEN 'failed' ELSE status END WHERE rowid = ?3`,
			now, cleanText(fmt.Sprintf("migration: visible_after %.100q is not an instant", text)), id)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE outbox_migrating SET claimed_at = NULL WHERE status <> 'claimed'`); err != nil {
		return err
	}
	// A claim of unknown age counts from now, so that it goes stale in the end.
	return repairInstants(ctx, tx, "claimed_at", "claimed_at IS NOT NULL", func(id int64, _, repaired string) error {
		if repaired == "" {
			repaired = now
		}
		_, err := tx.ExecContext(ctx, `UPDATE outbox_migrating SET claimed_at = ?1 WHERE rowid = ?2`, repaired, id)
		return err
	})
}

// repairInstants calls repair for each copied row whose instant is not in the
// stored form, with that instant in it if it is one in another.
func repairInstants(ctx context.Context, tx Tx, column, where string, repair func(id int64, text, repaired string) error) error {
	const page = 1000
	malformed := `SELECT rowid, CAST(ifnull(` + column + `, '') AS BLOB) FROM outbox_migrating
WHERE rowid > ?1 AND (` + where + `) AND NOT (typeof(` + column + `) = 'text' AND ` + column + wellFormed + `
	AND ifnull(` + strings.ReplaceAll(onCalendar, "visible_after", column) + `, FALSE)) ORDER BY rowid LIMIT ?2`
	type instant struct {
		id   int64
		text string
	}
	for last := int64(-1); ; {
		var found []instant
		err := query(ctx, tx, malformed, []any{last, page}, func(rows *sql.Rows) error {
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
