package outbox

import (
	"context"
	"slices"
	"strings"
)

// deadLetterDamaged finds the undecodable rows that are next in line, in ever
// larger steps, until it meets one that can be decoded: a claim that found its
// way to the good ones a few rows at a time would take too long for a server.
func deadLetterDamaged(ctx context.Context, tx Tx, now string, chosen selection) (dead []storedRow, err error) {
	const first, most = 100, 10_000
	for step := first; ; step = min(2*step, most) {
		_, bad, err := decodedRows(ctx, tx, `SELECT `+returnedRow+` FROM outbox WHERE id IN (`+chosen.query+`)`,
			chosen.bind(now, step))
		if err != nil {
			return nil, err
		}
		if err := deadLetterRows(ctx, tx, now, bad); err != nil {
			return nil, err
		}
		dead = append(dead, bad...)
		if len(bad) < step {
			return dead, nil
		}
	}
}

// setDeadLetters makes dead letters, each with its reason. A fence that could
// grow no further has become a REAL; it is set back.
const setDeadLetters = `UPDATE outbox SET status = 'failed', claimed_at = NULL, finished_at = ?1, last_error = bad.reason,
	fence = CASE WHEN typeof(fence) = 'integer' AND fence >= 0 THEN fence ELSE 9223372036854775807 END
FROM (SELECT value ->> 0 AS id, value ->> 1 AS reason FROM json_each(?2)) AS bad
WHERE outbox.id = bad.id`

func deadLetterRows(ctx context.Context, tx Tx, now string, rows []storedRow) error {
	for chunk := range slices.Chunk(rows, idsPerStatement) {
		reasons := make([][2]any, len(chunk))
		for i, row := range chunk {
			reasons[i] = [2]any{row.ID, row.defectText()}
		}
		if _, err := tx.ExecContext(ctx, setDeadLetters, now, encodeJSON(reasons)); err != nil {
			return err
		}
	}
	return nil
}

// defectText is the reason for a dead letter, short enough for many at once.
func (r *storedRow) defectText() string {
	const most = 500
	text := cleanText(r.defect.Error())
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
