package outbox

import (
	"context"
	"database/sql"
	"iter"
)

// query runs a statement that returns rows and calls scan for each. Errors of
// a statement may show only while its rows are read, or after them.
func query(ctx context.Context, tx Tx, text string, args []any, scan func(*sql.Rows) error) error {
	rows, err := tx.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// countChanged runs an UPDATE and returns how many rows it changed. Returning
// each of them costs a fifth more than asking SQLite, whose answer is right on a
// database that Open set up; what other targets report as affected differs.
func (s *Store) countChanged(ctx context.Context, tx Tx, update string, args ...any) (int, error) {
	if s.deaf() {
		return countRows(ctx, tx, update+" RETURNING 1", args...)
	}
	result, err := tx.ExecContext(ctx, update, args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// countRows runs a statement and returns how many rows it returned.
func countRows(ctx context.Context, tx Tx, text string, args ...any) (n int, err error) {
	err = query(ctx, tx, text, args, func(*sql.Rows) error {
		n++
		return nil
	})
	return n, err
}

// anyRow reports whether a query returns a row.
func anyRow(ctx context.Context, tx Tx, text string, args ...any) (bool, error) {
	n, err := countRows(ctx, tx, text, args...)
	return n > 0, err
}

func queryInts(ctx context.Context, tx Tx, text string, args ...any) (list []int64, err error) {
	err = query(ctx, tx, text, args, func(rows *sql.Rows) error {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return err
		}
		list = append(list, n)
		return nil
	})
	return list, err
}

// queryTexts runs a query for one text, which it must cast to a blob to keep
// drivers from reading an instant into it.
func queryTexts(ctx context.Context, tx Tx, text string, args ...any) (list []string, err error) {
	err = query(ctx, tx, text, args, func(rows *sql.Rows) error {
		var raw sql.RawBytes
		if err := rows.Scan(&raw); err != nil {
			return err
		}
		list = append(list, string(raw))
		return nil
	})
	return list, err
}

// argumentBatches yields list in batches that fit one argument of a statement:
// one, but for tens of thousands of values or very long ones.
func argumentBatches[T any](list []T, sizeOf func(T) int) iter.Seq[[]T] {
	const most = 1 << 20
	return func(yield func([]T) bool) {
		for len(list) > 0 {
			n, size := 0, 0
			for n < len(list) && (n == 0 || size+sizeOf(list[n]) <= most) {
				size += sizeOf(list[n])
				n++
			}
			if !yield(list[:n]) {
				return
			}
			list = list[n:]
		}
	}
}
