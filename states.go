package outbox

// The states that the calls of this package change, and what they set. ?1 is the
// instant that a change writes.
const (
	liveStatus    = `('pending', 'claimed')`
	claimedStatus = `('claimed')`
	failedStatus  = `('failed')`

	setDone      = `status = 'done', claimed_at = NULL, finished_at = ?1`
	setCancelled = `status = 'cancelled', claimed_at = NULL, finished_at = ?1`
	setFailed    = `status = 'failed', claimed_at = NULL, finished_at = ?1, last_error = nullif(?3, '')`
	setRetried   = `status = 'pending', claimed_at = NULL, visible_after = ?1, attempt = ?3, last_error = nullif(?4, '')`
	setExtended  = `claimed_at = ?1`
	setReturned  = `status = 'pending', claimed_at = NULL, visible_after = ?3` // ?1 and ?2 choose the rows
	setRequeued  = `status = 'pending', visible_after = ?1, attempt = 0, last_error = NULL, finished_at = NULL, fence = ` + reopenedFence
	setRearmed   = `status = 'pending', visible_after = excluded.visible_after, claimed_at = NULL, last_error = NULL, finished_at = NULL, fence = ` + reopenedFence

	// A fence that is no integer stays as it is, to be found out when the row is
	// decoded.
	setClaimed = `status = 'claimed', claimed_at = ?1, fence = CASE typeof(fence) WHEN 'integer' THEN fence + 1 ELSE fence END`

	// A fence that could grow no further has become a REAL; it is set back.
	setDeadLetter = `status = 'failed', claimed_at = NULL, finished_at = ?1, last_error = bad.reason,
	fence = CASE WHEN typeof(fence) = 'integer' AND fence >= 0 THEN fence ELSE 9223372036854775807 END`

	// reopenedFence is the fence of a row that is reopened. One that cannot grow
	// further stays; the next claim makes its row a dead letter.
	reopenedFence = `CASE WHEN outbox.fence < 9223372036854775807 THEN outbox.fence + 1 ELSE outbox.fence END`
)

// change is a change of state that refs ask for.
type change struct {
	op   string
	set  string
	from string
	to   Status
}

var (
	complete = change{"complete", setDone, liveStatus, Done}
	cancel   = change{"cancel", setCancelled, liveStatus, Cancelled}
	fail     = change{"fail", setFailed, liveStatus, Failed}
	retry    = change{"retry", setRetried, liveStatus, Pending}
	extend   = change{"extend", setExtended, claimedStatus, Claimed}
)
