// Package plain is the SQL that one would write by hand: one table with the
// columns of the outbox, a unique key, and an index for each question that is
// asked. The hand-written programs share it, the one in C too.
package plain

// The tables and indexes.
const (
	Table = `CREATE TABLE outbox (
	dispatch_key TEXT NOT NULL UNIQUE,
	workflow_id TEXT NOT NULL,
	ordinal INTEGER NOT NULL,
	activity_type TEXT NOT NULL,
	input BLOB,
	status TEXT NOT NULL,
	attempt INTEGER NOT NULL,
	visible_after TEXT NOT NULL,
	claimed_at TEXT,
	run_id TEXT,
	namespace TEXT NOT NULL,
	task_queue TEXT NOT NULL,
	node TEXT,
	id INTEGER PRIMARY KEY,
	content_type TEXT,
	fence INTEGER NOT NULL,
	last_error TEXT,
	created_at TEXT NOT NULL,
	finished_at TEXT
)`
	PendingIndex = `CREATE INDEX outbox_pending ON outbox (visible_after) WHERE status = 'pending'`
	ClaimedIndex = `CREATE INDEX outbox_claimed ON outbox (claimed_at) WHERE status = 'claimed'`
)

// The statements. Live is asked outside of what is measured.
const (
	// Insert takes key, workflow, ordinal, type, payload, visible after,
	// namespace, task queue, content type, created at.
	Insert = `INSERT INTO outbox (dispatch_key, workflow_id, ordinal, activity_type, input, status, attempt,
	visible_after, namespace, task_queue, content_type, fence, created_at)
VALUES (?, ?, ?, ?, ?, 'pending', 0, ?, ?, ?, ?, 0, ?) ON CONFLICT (dispatch_key) DO NOTHING`

	// Claim takes now and a limit.
	Claim = `UPDATE outbox SET status = 'claimed', claimed_at = ?1, fence = fence + 1
WHERE id IN (SELECT id FROM outbox WHERE status = 'pending' AND visible_after <= ?1 ORDER BY visible_after LIMIT ?2)
RETURNING id, dispatch_key, workflow_id, ordinal, activity_type, input, attempt, visible_after, namespace,
	task_queue, content_type, fence, created_at`

	// Complete takes now, an id and a fence.
	Complete = `UPDATE outbox SET status = 'done', claimed_at = NULL, finished_at = ?
WHERE id = ? AND fence = ? AND status = 'claimed'`

	Live = `SELECT count(*) FROM outbox WHERE status IN ('pending', 'claimed')`
)

// What all rows have in common, and how instants are written.
const (
	ActivityType = "activity"
	Route        = "default"
	ContentType  = "application/json"
	Instant      = "2006-01-02T15:04:05.000000000Z"
)
