package outbox

import "example.com/outbox/internal/engine"

// Waiting returns how many calls stand in line behind the one that writes.
func (s *Store) Waiting() int { return s.db.Waiting() }

// BatchStatements returns the statements that go to a server in batches.
func BatchStatements(rows ...Row) (statements []engine.Statement) {
	const now = "2024-01-01T00:00:00.000000000Z"
	staged, err := prepareRows(rows)
	if err != nil {
		panic(err)
	}
	selections := []selection{
		{query: selectDue + inOrder}, {query: selectDue + notHeld + inOrder, args: []any{"[]"}},
		{query: selectScoped, args: []any{"a", "b", "c"}}, {query: selectScopedNotHeld, args: []any{"a", "b", "c", "[]"}},
	}
	calls := []*engine.Call{(&appending{rows: staged}).call(), rearmStaleCall(now, now, 1, new([]storedRow))}
	for _, chosen := range selections {
		calls = append(calls, (&claiming{selection: chosen, limit: 1}).call())
	}
	for _, call := range calls {
		statements = append(statements, call.Plan(now, engine.Abilities{Prompt: true, Share: true, Counts: true, Batch: true})...)
		if call.Idle != nil {
			statements = append(statements, *call.Idle(now))
		}
	}
	return statements
}
