package engine

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"
)

// Abilities is what a database can do, where that changes how calls work. The zero
// value is a database of which nothing is known.
type Abilities struct {
	// Prompt: a call of the driver ends soon after its context, or is short. If
	// not, the driver is left behind when the context ends.
	Prompt bool

	// Share: goroutines may share a commit, since none of them would have to
	// wait for long for what another has begun.
	Share bool

	// Counts: the driver tells how many rows a statement changed.
	Counts bool

	// SecondTry: a statement that fails costs little, so that the cheap one
	// that mostly works may be tried first.
	SecondTry bool

	// Look: asking whether there is something to do costs little beside doing
	// it.
	Look bool

	// Lags: a plain read may miss what was committed before, as on an embedded
	// replica, whereas a transaction does not.
	Lags bool

	// Keeps: statements are compiled once for each connection, so that one whose
	// text is always the same costs less than one with values in its text.
	Keeps bool

	// Batch: several statements can be sent in one request.
	Batch bool
}

// What Open makes of a data source name.
var (
	localAbilities  = Abilities{Prompt: true, Share: true, Counts: true, SecondTry: true, Look: true}
	serverAbilities = Abilities{}
	batchAbilities  = Abilities{Prompt: true, Share: true, Counts: true, Batch: true}
	unknown         = Abilities{Look: true, Lags: true}
)

// longestWait is the longest busy timeout of a program's own connections with
// which its calls may still share commits.
const longestWait = time.Minute

// findOut looks at a connection that the program's pool has opened. The error is
// nil only if the answer holds for good.
func findOut(ctx context.Context, conn *sql.Conn) (Abilities, error) {
	if takesBatches(conn) {
		return batchAbilities, nil
	}
	waits, err := Ints(ctx, conn, "PRAGMA busy_timeout")
	if err != nil {
		return unknown, err
	}
	if len(waits) != 1 {
		return unknown, nil
	}
	// A server tells its timeout, but does not let it be set; nor does a replica.
	err = Query(ctx, conn, fmt.Sprintf("PRAGMA busy_timeout = %d", waits[0]), nil, func(Row) error { return nil })
	if says(err, "unsupported statement", "not authorized") {
		return unknown, nil
	}
	if err != nil {
		return unknown, err
	}
	found := localAbilities
	found.Prompt = false // the program may have its connections wait longer later
	// Outside WAL a reader holds a COMMIT up, which a call that shares it could
	// not leave.
	mode, err := Texts(ctx, conn, "PRAGMA main.journal_mode")
	if err != nil {
		return unknown, err
	}
	found.Share = slices.Equal(mode, []string{"wal"}) && time.Duration(waits[0])*time.Millisecond <= longestWait
	return found, nil
}
