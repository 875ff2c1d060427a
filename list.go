package outbox

import (
	"context"
	"iter"
	"math"
	"strings"

	"example.com/outbox/internal/engine"
)

// List returns the rows that filter matches, ordered by ID, with their
// payloads. To page, ask for the rows after the last one seen. Dead letters are
// found through an index; any other filter walks the table from After on until
// Limit rows match. A row that cannot be decoded is shown as by Get. A negative
// limit, an unknown status or a namespace that no row can have is an ErrInvalid;
// the other errors are those of the database.
func (s *Store) List(ctx context.Context, filter Filter) ([]Row, error) {
	if err := checkFilter(filter); err != nil {
		return nil, err
	}
	if s.db.Can(ctx).Batch {
		return s.listInPages(ctx, filter)
	}
	text, args := listQuery(filter, selectedRow)
	found, err := engine.Read(ctx, s.db, "list", func(tx engine.Tx) ([]storedRow, error) {
		return queryRows(ctx, tx, text, args...)
	})
	if err != nil {
		return nil, err
	}
	return readableRows(found), nil
}

// listInPages is List where an answer comes whole, and a server bounds it: a few
// rows at a time, and their large payloads apart.
func (s *Store) listInPages(ctx context.Context, filter Filter) (list []Row, err error) {
	const most = 1000
	for limit := filter.Limit; ; {
		if filter.Limit = most; limit > 0 {
			filter.Limit = min(most, limit-len(list))
		}
		text, args := listQuery(filter, returnedRow)
		page, err := engine.Read(ctx, s.db, "list", func(tx engine.Tx) ([]storedRow, error) {
			rows, err := queryRows(ctx, tx, text, args...)
			if err != nil {
				return nil, err
			}
			return rows, selectPayloads(ctx, tx, rows)
		})
		if err != nil {
			return nil, err
		}
		list = append(list, readableRows(page)...)
		if len(page) < filter.Limit || len(list) == limit {
			return list, nil
		}
		filter.After = list[len(list)-1].ID
	}
}

// Rows yields the rows that List would return, reading a page at a time, so that
// any number can be walked; Filter.Limit bounds how many. Rows staged during the
// walk are among them, and a row is as it was when its page was read. An error, of
// those that List returns, ends the walk and comes with no row.
func (s *Store) Rows(ctx context.Context, filter Filter) iter.Seq2[Row, error] {
	const page = 100
	return func(yield func(Row, error) bool) {
		next := filter // each walk starts where the first did
		for left := filter.Limit; ; {
			next.Limit = page
			if filter.Limit != 0 {
				next.Limit = min(left, page) // a negative one is for List to refuse
			}
			rows, err := s.List(ctx, next)
			if err != nil {
				yield(Row{}, err)
				return
			}
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
				next.After = row.ID
			}
			if left -= len(rows); len(rows) < next.Limit || left == 0 {
				return
			}
		}
	}
}

// listQuery walks an index of ids, so that no page is sorted.
func listQuery(filter Filter, row string) (text string, args []any) {
	var query strings.Builder
	query.WriteString(`SELECT ` + row + ` FROM main.outbox `)
	if filter.Status == Failed {
		query.WriteString(`INDEXED BY outbox_failed WHERE status = 'failed' AND id > ?`)
	} else {
		query.WriteString(`NOT INDEXED WHERE id > ?`)
	}
	if filter.After != 0 {
		args = append(args, filter.After)
	} else {
		args = append(args, int64(math.MinInt64))
	}
	if filter.Status != "" && filter.Status != Failed {
		query.WriteString(` AND status = ?`)
		args = append(args, string(filter.Status))
	}
	if filter.Namespace != "" {
		query.WriteString(` AND namespace = ?`)
		args = append(args, filter.Namespace)
	}
	if filter.WorkflowID.Valid {
		query.WriteString(` AND workflow_id = ?`)
		args = append(args, filter.WorkflowID.UUID.String())
	}
	query.WriteString(` ORDER BY id`)
	if filter.Limit > 0 {
		query.WriteString(` LIMIT ?`)
		args = append(args, filter.Limit)
	}
	return query.String(), args
}
