package outbox

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"example.com/outbox/internal/engine"
)

//go:embed schema.sql
var schema string

// schemaVersion is the version that schema.sql writes.
const schemaVersion = 1

// Schema returns the statements that Migrate runs on an empty database, for
// programs that run their own migrations. Each may be run again. They are
// separated by a semicolon and an empty line.
func Schema() string { return schema }

// schemaStatements returns the statements of schema.sql one by one: a driver
// may run the first of several and drop the rest without a word.
func schemaStatements() []string {
	return strings.Split(strings.TrimSuffix(strings.TrimSpace(schema), ";"), ";\n\n")
}

// superseded are indexes of earlier states of this schema, which others replace.
var superseded = []string{"outbox_live", "outbox_claimed", "outbox_claimed_namespace"}

func createSchema(ctx context.Context, tx engine.Tx) error {
	if err := execAll(ctx, tx, schemaStatements()); err != nil {
		return err
	}
	for _, index := range superseded {
		if _, err := tx.ExecContext(ctx, `DROP INDEX IF EXISTS main.`+index); err != nil {
			return err
		}
	}
	return nil
}

func execAll(ctx context.Context, tx engine.Tx, statements []string) error {
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
	schemaLegacy                        // a table to be rebuilt
	schemaCurrent
)

// tableColumn is a column that a table has, with its declared type.
type tableColumn struct{ name, kind string }

// isAmong reports whether a table has a column of that name with a type of that
// kind.
func (want tableColumn) isAmong(have []tableColumn) bool {
	return slices.ContainsFunc(have, func(have tableColumn) bool {
		return have.name == want.name && strings.Contains(have.kind, want.kind)
	})
}

func areAmong(wanted, have []tableColumn) bool {
	return !slices.ContainsFunc(wanted, func(want tableColumn) bool { return !want.isAmong(have) })
}

// columnsUpTo returns the columns that tables of an age have.
func columnsUpTo(newest age) (list []tableColumn) {
	for _, column := range columns {
		if column.age <= newest {
			list = append(list, tableColumn{column.name, column.kind})
		}
	}
	return list
}

// schemaObject is a table, index or trigger.
type schemaObject struct{ kind, name, table string }

// schemaObjects returns what schema.sql creates, which it says in the form
// CREATE … IF NOT EXISTS name [… ON table].
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
func inspect(ctx context.Context, tx engine.Tx) (schemaState, error) {
	found := make(map[string]schemaObject)
	listed, err := engine.Texts(ctx, tx, `SELECT CAST(lower(type) || char(0) || lower(name) || char(0) || lower(tbl_name) AS BLOB)
FROM main.sqlite_master WHERE lower(name) LIKE 'outbox%'`)
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
		if !areAmong([]tableColumn{{"version", "int"}}, columns) {
			return 0, fmt.Errorf("%w: outbox_schema has other columns", ErrForeignTable)
		}
		if err := tx.QueryRowContext(ctx, `SELECT ifnull(max(version), 0) FROM main.outbox_schema`).Scan(&version); err != nil {
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
	if len(payload) > 0 && !areAmong([]tableColumn{{"id", "int"}, {"data", "blob"}}, payload) {
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
	for _, index := range superseded {
		if found[index].kind == "index" {
			state = schemaIncomplete
		}
	}
	switch {
	case len(columns) == 0:
		return schemaIncomplete, nil
	case areAmong(columnsUpTo(ours), columns):
		if version < schemaVersion {
			return schemaIncomplete, nil
		}
		return state, nil
	case isLegacy(columns):
		if _, ok := found["outbox_migrating"]; ok {
			return 0, fmt.Errorf("%w: outbox_migrating", ErrForeignTable)
		}
		return schemaLegacy, nil
	}
	return 0, fmt.Errorf("%w: outbox has other columns", ErrForeignTable)
}

// isLegacy reports whether columns are those of a legacy table. Some may be
// missing, but none unknown: what the store does not know would be lost.
func isLegacy(have []tableColumn) bool {
	known := columnsUpTo(laterLegacy)
	return areAmong(columnsUpTo(legacy), have) && !slices.ContainsFunc(have, func(have tableColumn) bool {
		return !slices.ContainsFunc(known, func(want tableColumn) bool { return want.name == have.name })
	})
}

// columnsOf returns the columns of a table in lower case, or none.
func columnsOf(ctx context.Context, tx engine.Tx, table string) ([]tableColumn, error) {
	listed, err := engine.Texts(ctx, tx, `SELECT CAST(lower(name) || char(0) || lower(type) AS BLOB)
FROM pragma_table_info('`+table+`', 'main') ORDER BY cid`)
	var columns []tableColumn
	for _, text := range listed {
		name, kind, _ := strings.Cut(text, "\x00")
		columns = append(columns, tableColumn{name, kind})
	}
	return columns, err
}
