package outbox

import (
	"slices"
	"strconv"
	"strings"

	"example.com/outbox/internal/engine"
)

// stagedColumns are the columns that a staged row fills.
var stagedColumns = slices.DeleteFunc(slices.Clone(columns), func(c column) bool { return c.write == nil })

var insertInto = func() string {
	var names []string
	for _, column := range stagedColumns {
		names = append(names, column.name)
	}
	return "INSERT INTO main.outbox (" + strings.Join(names, ", ") + ") "
}()

// insertStatement returns an INSERT of rows, to which a conflict clause may be
// added. A driver charges for each value bound and SQLite for each that is
// parsed, so what all rows have in common is written once, as it is for most
// columns of a fan-out:
//
//	INSERT INTO outbox (…) SELECT column1, ?, column2, … FROM (VALUES (?, ?), (?, ?), …) WHERE TRUE
//
// That a WHERE stands before a conflict clause is SQLite's rule for a SELECT.
// One row alone is cheaper as VALUES, and where statements are kept, with all of
// its values bound, so that its text is always the same.
func insertStatement(rows []stagedRow, now string, bound bool) (string, []any) {
	list := values{now: now, bound: bound && len(rows) == 1}
	list.sql.WriteString(insertInto)
	if len(rows) == 1 {
		list.sql.WriteString("VALUES (")
		list.row(stagedColumns, &rows[0])
		list.sql.WriteByte(')')
		return list.sql.String(), list.args
	}
	list.sql.WriteString("SELECT ")
	var varying []column
	for i, column := range stagedColumns {
		if i > 0 {
			list.sql.WriteByte(',')
		}
		if column.shared(rows) {
			column.write(&list, &rows[0])
			continue
		}
		varying = append(varying, column)
		list.sql.WriteString("column" + strconv.Itoa(len(varying)))
	}
	list.sql.WriteString(" FROM (VALUES ")
	for i := range rows {
		if i > 0 {
			list.sql.WriteByte(',')
		}
		list.sql.WriteByte('(')
		list.row(varying, &rows[i])
		list.sql.WriteByte(')')
	}
	list.sql.WriteString(") WHERE TRUE")
	return list.sql.String(), list.args
}

// row is a row's values of columns.
func (v *values) row(columns []column, r *stagedRow) {
	for i, column := range columns {
		if i > 0 {
			v.sql.WriteByte(',')
		}
		column.write(v, r)
	}
}

// shared reports whether all rows have the same value.
func (c column) shared(rows []stagedRow) bool {
	for i := range rows[1:] {
		if !c.same(&rows[0], &rows[i+1]) {
			return false
		}
	}
	return true
}

// A statement takes this many rows or bytes of payload, whichever comes first:
// parsing costs more with more rows, a call of the driver with fewer.
const (
	rowsPerStatement  = 100
	bytesPerStatement = 32 << 20
)

// statementBatches parts rows into batches that fit one statement.
func statementBatches(rows []stagedRow) (batches [][]stagedRow) {
	for len(rows) > 0 {
		n, size := 0, 0
		for n < len(rows) && n < rowsPerStatement && (n == 0 || size+len(rows[n].Input.Data) <= bytesPerStatement) {
			size += len(rows[n].Input.Data)
			n++
		}
		batches = append(batches, rows[:n])
		rows = rows[n:]
	}
	return batches
}

// insertPayloads returns the statement that stores the large payloads of the
// rows that the INSERT just before has inserted, if there are any. A payload that a
// row left behind when it was replaced without its triggers running is overwritten.
func insertPayloads(rows []stagedRow, fresh freshRows) []engine.Statement {
	var statement strings.Builder
	var args []any
	for i := range rows {
		if !rows[i].large() {
			continue
		}
		if len(args) == 0 {
			statement.WriteString(fresh.with + "INSERT INTO main.outbox_payload (id, data) SELECT outbox.id, given.column2 FROM " + fresh.from + "(VALUES ")
		} else {
			statement.WriteByte(',')
		}
		statement.WriteString("(?,?)")
		args = append(args, rows[i].DispatchKey, rows[i].Input.Data)
	}
	if len(args) == 0 {
		return nil
	}
	statement.WriteString(") AS given CROSS JOIN main.outbox INDEXED BY outbox_key ON outbox.dispatch_key = given.column1 WHERE " +
		fresh.where + " ON CONFLICT (id) DO UPDATE SET data = excluded.data")
	return []engine.Statement{{Query: statement.String(), Args: args}}
}

// freshRows is how the rows that a statement has inserted are told from those
// that were there.
type freshRows struct{ with, from, where string }

var (
	// justInserted are the rows of an INSERT that changes no others. The ids of
	// one statement follow each other. They are materialized because
	// last_insert_rowid() changes while payloads are inserted.
	justInserted = freshRows{
		with:  `WITH before (newest) AS MATERIALIZED (SELECT last_insert_rowid() - changes() WHERE changes() > 0) `,
		from:  `before CROSS JOIN `,
		where: `outbox.id > before.newest`,
	}

	// unfenced are the rows of a Rearm that were not known, since the fence of
	// the others grows.
	unfenced = freshRows{where: `outbox.fence = 0`}
)

// insertPayloadsByID returns the statement that stores the large payloads of
// the rows with an id.
func insertPayloadsByID(rows []stagedRow, ids map[string]int64) []engine.Statement {
	var statement strings.Builder
	var args []any
	for i := range rows {
		id, ok := ids[rows[i].DispatchKey]
		if !ok || !rows[i].large() {
			continue
		}
		if len(args) == 0 {
			statement.WriteString("INSERT INTO main.outbox_payload (id, data) VALUES ")
		} else {
			statement.WriteByte(',')
		}
		statement.WriteString("(" + strconv.FormatInt(id, 10) + ",?)")
		args = append(args, rows[i].Input.Data)
	}
	if len(args) == 0 {
		return nil
	}
	statement.WriteString(" ON CONFLICT (id) DO UPDATE SET data = excluded.data")
	return []engine.Statement{{Query: statement.String(), Args: args}}
}

func keysOf(rows []stagedRow) []string {
	keys := make([]string, len(rows))
	for i := range rows {
		keys[i] = rows[i].DispatchKey
	}
	return keys
}
