package outboxtest

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"example.com/outbox"
	"github.com/stretchr/testify/require"
)

// check is a named CHECK of schema.sql: what of a row in some state it lets SQL
// set, and what not.
type check struct {
	constraint string
	states     []checkedState
}

type checkedState struct {
	of               []outbox.Status
	allowed, refused []string
}

var (
	anyState = []outbox.Status{outbox.Pending, outbox.Claimed, outbox.Done, outbox.Failed, outbox.Cancelled}
	settled  = []outbox.Status{outbox.Done, outbox.Failed, outbox.Cancelled}
	live     = []outbox.Status{outbox.Pending, outbox.Claimed}
)

const someInstant = `'2024-01-01T00:00:00.000000000Z'`

var checks = []check{
	{"outbox_status_is_known", []checkedState{
		{live, []string{`status = 'claimed'`}, nil},
		{[]outbox.Status{outbox.Pending}, []string{`status = 'pending'`}, nil},
		{settled, []string{`status = 'done'`, `status = 'failed'`, `status = 'cancelled'`}, []string{
			`status = 'paused'`, `status = ''`, `status = 'Done'`, `status = ' done'`, `status = CAST('done' AS BLOB)`, `status = 1`,
		}},
	}},
	{"outbox_node_is_not_empty", []checkedState{
		{anyState, []string{`node = NULL`, `node = 'n1'`, `node = ' '`}, []string{`node = ''`}},
	}},
	{"outbox_only_a_claim_has_claimed_at", []checkedState{
		{[]outbox.Status{outbox.Claimed}, []string{`claimed_at = visible_after`, `claimed_at = NULL`}, []string{`status = 'pending', claimed_at = visible_after`}},
		{[]outbox.Status{outbox.Pending, outbox.Done, outbox.Failed, outbox.Cancelled}, []string{`claimed_at = NULL`}, []string{`claimed_at = visible_after`}},
	}},
	{"outbox_settled_is_finished", []checkedState{
		{live, []string{`finished_at = NULL`, `status = 'done', claimed_at = NULL, finished_at = visible_after`}, []string{
			`finished_at = visible_after`, `claimed_at = NULL, status = 'done'`, `claimed_at = NULL, status = 'failed'`, `claimed_at = NULL, status = 'cancelled'`,
		}},
		{settled, []string{`finished_at = visible_after`, `status = 'pending', finished_at = NULL`}, []string{
			`finished_at = NULL`, `status = 'pending'`, `status = 'claimed'`,
		}},
	}},
	{"outbox_visible_after_is_an_instant", []checkedState{{anyState, instants("visible_after"), shapeless("visible_after")}}},
	{"outbox_claimed_at_is_an_instant", []checkedState{{[]outbox.Status{outbox.Claimed}, instants("claimed_at"), shapeless("claimed_at")}}},
	{"outbox_created_at_is_an_instant", []checkedState{{anyState, instants("created_at"), shapeless("created_at")}}},
	{"outbox_finished_at_is_an_instant", []checkedState{{settled, instants("finished_at"), shapeless("finished_at")}}},
}

func instants(column string) (sets []string) {
	for _, at := range []string{someInstant, `'0000-01-01T00:00:00.000000000Z'`, `'9999-12-31T23:59:59.999999999Z'`} {
		sets = append(sets, column+" = "+at)
	}
	return sets
}

func shapeless(column string) (sets []string) {
	for _, at := range []string{
		`''`, `'tomorrow'`, `'2024-01-01'`, `'2024-01-01T00:00:00Z'`, `'2024-01-01T00:00:00.000Z'`, `'2024-01-01T00:00:00.0000000000Z'`,
		`'2024-01-01 00:00:00.000000000Z'`, `'2024-01-01T00:00:00.000000000z'`, `'2024-01-01T00:00:00.000000000+00:00'`,
		`' 024-01-01T00:00:00.000000000Z'`, `'-024-01-01T00:00:00.000000000Z'`, `'2024-01-01T00:00:00.000000000Z '`,
		`'T2024-01-01T00:00:00.00000000Z'`, `CAST(` + someInstant + ` AS BLOB)`, `20240101`, `1e300`,
	} {
		sets = append(sets, column+" = "+at)
	}
	return sets
}

// set tries to set something of the row, and undoes it.
func (s *suite) set(key, set string) (err error) {
	s.t.Helper()
	require.ErrorIs(s.t, s.Update(s.ctx, func(ctx context.Context, tx outbox.Tx) error {
		_, err = tx.ExecContext(ctx, `UPDATE outbox SET `+set+` WHERE dispatch_key = ?`, key)
		return errBoom
	}), errBoom)
	return err
}

var schemaRules = append(checkRules(),
	rule{"every named constraint of the schema is among these", func(s *suite) {
		var named, shown []string
		for _, match := range regexp.MustCompile(`CONSTRAINT (\w+)`).FindAllStringSubmatch(outbox.Schema(), -1) {
			named = append(named, match[1])
		}
		for _, check := range checks {
			shown = append(shown, check.constraint)
		}
		slices.Sort(named)
		slices.Sort(shown)
		require.Equal(s.t, named, shown)
	}},
	rule{"the schema forbids a row without what every row has", func(s *suite) {
		s.stageN(1)
		for _, column := range []string{
			"dispatch_key", "workflow_id", "ordinal", "activity_type", "status", "attempt", "visible_after", "namespace", "task_queue", "fence", "created_at",
		} {
			require.ErrorContains(s.t, s.set(s.key(0), column+` = NULL`), "outbox."+column, column)
		}
		for _, column := range []string{"claimed_at", "run_id", "node", "content_type", "last_error", "finished_at"} {
			require.NoError(s.t, s.set(s.key(0), column+` = NULL`), column)
		}
	}},
	rule{"a key is unique, and a payload has its row and goes with it", func(s *suite) {
		large := s.row(1)
		large.Input.Data = []byte(strings.Repeat("x", 5000))
		s.stage(s.row(0), large)
		require.ErrorContains(s.t, s.set(s.key(0), `dispatch_key = '`+s.key(1)+`'`), "UNIQUE")
		require.ErrorContains(s.t, s.tryExec(`DELETE FROM outbox_payload`), "a payload is deleted with its row")
		s.exec(`UPDATE outbox SET id = 77 WHERE ordinal = 1`)
		require.Equal(s.t, large.Input, s.get(s.key(1)).Input)
		s.exec(`UPDATE outbox SET input = x'00' WHERE ordinal = 1`)
		require.Zero(s.t, s.count(`SELECT count(*) FROM outbox_payload`))
		s.exec(`DELETE FROM outbox`)
		require.Empty(s.t, s.rows())
	}},
)

// checkRules has a rule a constraint.
func checkRules() (rules []rule) {
	for _, check := range checks {
		rules = append(rules, rule{check.constraint, func(s *suite) {
			keys := make(map[outbox.Status]string)
			for i, status := range anyState {
				row := s.row(i)
				row.Status = status
				if status == outbox.Claimed {
					row.ClaimedAt = s.clock.Now()
				}
				s.stage(row)
				keys[status] = s.key(i)
			}
			for _, state := range check.states {
				for _, status := range state.of {
					for _, set := range state.allowed {
						require.NoError(s.t, s.set(keys[status], set), "%s row: %s", status, set)
					}
					for _, set := range state.refused {
						require.ErrorContains(s.t, s.set(keys[status], set), check.constraint, "%s row: %s", status, set)
					}
				}
			}
		}})
	}
	return rules
}
