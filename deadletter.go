package outbox

import (
	"context"
	"slices"
	"strings"

	"example.com/outbox/internal/engine"
)

// deadLetterDamaged finds the undecodable rows that are next in line, in ever
// larger steps, until it meets one that can be decoded: a claim that found its
// way to the good ones a few rows at a time would take too long for a server.
func deadLetterDamaged(ctx context.Context, tx engine.Tx, now string, chosen selection) (dead []storedRow, err error) {
	const first, most = 100, 10_000
	for step := first; ; step = min(2*step, most) {
		rows, err := queryRows(ctx, tx, `SELECT `+returnedRow+` FROM main.outbox WHERE id IN (`+chosen.query+`)`, chosen.bind(now, step)...)
		if err != nil {
			return nil, err
		}
		_, bad, err := sortOut(ctx, tx, rows)
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

// makeDeadLetters makes dead letters of live rows, each with its reason.
const makeDeadLetters = `UPDATE main.outbox SET ` + setDeadLetter + `
FROM (SELECT value ->> 0 AS id, value ->> 1 AS reason FROM json_each(?2)) AS bad
WHERE outbox.id = bad.id AND outbox.status IN ` + liveStatus

func deadLetterRows(ctx context.Context, tx engine.Tx, now string, rows []storedRow) error {
	for chunk := range slices.Chunk(rows, idsPerStatement) {
		reasons := make([][2]any, len(chunk))
		for i, row := range chunk {
			reasons[i] = [2]any{row.ID, row.defectText()}
		}
		if _, err := tx.ExecContext(ctx, makeDeadLetters, now, encodeJSON(reasons)); err != nil {
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
