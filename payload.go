package outbox

import (
	"context"
	"maps"
	"slices"

	"example.com/outbox/internal/engine"
)

// sortOut fetches the payloads that rows lack, and tells the rows that can be
// decoded from those that cannot.
func sortOut(ctx context.Context, tx engine.Tx, rows []storedRow) (good, bad []storedRow, err error) {
	if err := selectPayloads(ctx, tx, rows); err != nil {
		return nil, nil, err
	}
	for _, row := range rows {
		if row.check() != nil {
			bad = append(bad, row)
		} else {
			good = append(good, row)
		}
	}
	return good, bad, nil
}

// idsPerStatement bounds a list of ids.
const idsPerStatement = 1000

// payloadsByID returns payloads, by id, until they are more than a portion
// together. Those that are missing it leaves out.
const payloadsByID = `WITH size (id, bytes) AS (
	SELECT outbox.id, ifnull(length(input), length(data)) FROM main.outbox LEFT JOIN main.outbox_payload ON outbox_payload.id = outbox.id
	WHERE outbox.id IN (SELECT value FROM json_each(?1))
), place (id, before) AS (SELECT id, sum(bytes) OVER (ORDER BY id) - bytes FROM size WHERE bytes IS NOT NULL)
SELECT outbox.id, ` + payloadColumn + ` FROM place CROSS JOIN main.outbox ON outbox.id = place.id WHERE before < ?2`

// payloadPortion is about how many bytes of payloads are fetched at once: an
// answer of a server holds these and the largest payload.
const payloadPortion = 4 << 20

// selectPayloads fetches the payloads that RETURNING left out.
func selectPayloads(ctx context.Context, tx engine.Tx, rows []storedRow) error {
	unread := make(map[int64]*storedRow)
	for i := range rows {
		if rows[i].unread {
			unread[rows[i].ID] = &rows[i]
		}
	}
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(unread)), idsPerStatement) {
		for portion := -1; len(ids) > 0 && portion != 0; {
			portion = 0
			err := engine.Query(ctx, tx, payloadsByID, []any{encodeJSON(ids), payloadPortion}, func(found engine.Row) error {
				var (
					id   int64
					data []byte
				)
				if err := found.Scan(&id, &data); err != nil {
					return err
				}
				unread[id].setPayload(data)
				portion++
				return nil
			})
			if err != nil {
				return err
			}
			ids = slices.DeleteFunc(ids, func(id int64) bool { return !unread[id].unread })
		}
	}
	return nil
}
