package outbox

// selection is what a claim may take: a query for the ids of pending rows in
// claiming order. ?1 is now, ?2 the limit, ?3 and ?4 where to start; args are
// what follows.
type selection struct {
	query string
	args  []any
	first position
}

// position is a place in claiming order; zero is before all rows.
type position struct{ visibleAfter, dispatchKey string }

func (chosen selection) bind(now string, limit int) []any {
	return append([]any{now, limit, chosen.first.visibleAfter, chosen.first.dispatchKey}, chosen.args...)
}

// The selections walk their index from its first due row to the limit. A scoped
// one has an arm for unpinned rows and an arm for those of the node, so that it
// never steps over rows that it may not take; what is sorted are the two arms,
// each no longer than the limit.
const (
	selectDue = `SELECT id FROM main.outbox INDEXED BY outbox_due WHERE ` + pendingAndDue
	notHeld   = ` AND workflow_id NOT IN (SELECT value FROM json_each(?5))`
	inOrder   = ` ORDER BY visible_after, dispatch_key LIMIT ?2`

	pendingAndDue = `status = 'pending' AND visible_after <= ?1 AND (visible_after, dispatch_key) >= (?3, ?4)`

	scopedFrom = `SELECT id, visible_after, dispatch_key FROM main.outbox INDEXED BY outbox_route
	WHERE ` + pendingAndDue + ` AND namespace = ?5 AND task_queue = ?6 AND node `
	scopedNotHeld = ` AND workflow_id NOT IN (SELECT value FROM json_each(?8))`

	selectScoped = `SELECT id FROM (
	SELECT * FROM (` + scopedFrom + `IS NULL` + inOrder + `) UNION ALL
	SELECT * FROM (` + scopedFrom + `= ?7` + inOrder + `))` + inOrder

	selectScopedNotHeld = `SELECT id FROM (
	SELECT * FROM (` + scopedFrom + `IS NULL` + scopedNotHeld + inOrder + `) UNION ALL
	SELECT * FROM (` + scopedFrom + `= ?7` + scopedNotHeld + inOrder + `))` + inOrder
)
