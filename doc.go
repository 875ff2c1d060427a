// Package outbox is a durable outbox over SQLite and libSQL, for programs that
// must not lose a dispatch between deciding on it and handing it over.
//
// A workflow engine that records "activity scheduled" and then tells a worker
// loses work if it dies in between. With an outbox it stages the dispatch in
// the transaction of its own history; loops then claim the rows that are due,
// hand them to workers and settle them. The guarantee:
//
// A row that was appended is dispatched at least once, is held by one claimer
// at a time, and never comes back once it is settled, whatever process dies
// when.
//
// It is not exactly-once: a worker may finish its work and die before it says
// so, and then the row is dispatched again. Make the work idempotent, with the
// dispatch key as the idempotency key. Nor is there an order between rows: a
// claim takes the earliest due rows first, but several claimers run at once.
//
// # Using it
//
// [Open] opens a database by driver and data source name: in memory, a file, or
// a libSQL server. [New] takes a *sql.DB that you have opened. The package imports
// no driver; import yours, as with database/sql. For servers that is package
// hrana of this module.
//
// Rows are staged with [Store.Append], or with [Store.AppendTx] inside
// [Store.Update] or a transaction of your own. They are claimed with
// [Store.Claim] and its variants: of one [Scope], or passing over the rows of
// held workflows. They are settled with [Store.Complete], [Store.Fail] or
// [Store.Cancel], or made pending again with [Store.Retry]. Claims whose holder
// died come back through [Store.RearmStale]; a holder that takes long calls
// [Store.Extend] before its claim goes stale.
//
// # The life of a row
//
// A row is pending, claimed, done, failed or cancelled. Pending and claimed rows
// are live, the others settled. Settled rows change through [Store.Rearm] and
// [Store.Requeue] alone, and stay until [Store.Purge] deletes them.
//
// Every claim of a row has a fence, a number that grows each time the row is
// claimed or reopened and never repeats. A [Ref] with the fence of its claim
// applies while the row is live and its fence unchanged. Once another has claimed
// the row, or it was reopened or settled otherwise, the ref is lost: the call
// stores the other refs and returns a [ClaimLostError]. A call may be repeated
// after a lost answer: a row that this claim has brought to the state asked for
// stays there, and that is a success. A worker whose claim went stale can still
// complete its row as long as nobody else has claimed it.
//
// A Ref with fence 0 is for a caller that knows only the key. It applies to any
// live row, and is a silent no-op on a settled row or none.
//
// # Transactions, contexts, locks
//
// Every writing call is stored whole or not at all, in an IMMEDIATE transaction.
// Calls that goroutines make at once share a transaction where the database allows
// it (a local one, or a server over package hrana), and appends and completions
// among them a statement; each has its own outcome. Goroutines of one Store are
// served in the order they came. Other processes are waited for until the context
// ends or Options.BusyTimeout is over.
//
// With nothing to do (no rows, no refs, limit 0) a call does nothing. A claim
// that finds nothing due writes nothing and takes no lock, so polling is cheap.
// (Over go-libsql on a server the first such claim after one that found rows does
// take it, for a moment.) A loop need not poll often: [Store.NextVisibleAfter] tells how
// long it may sleep, and [Store.Subscribe] and [Store.Watch] when there may be
// rows sooner. Package dispatch is such a loop.
//
// In WAL mode, reads take no lock that a writer would wait for. On an embedded
// replica they read the local file and may lag behind the primary. Claims do not:
// one that finds nothing has asked the primary.
//
// # Errors
//
// Errors are told apart with [errors.Is]. A call that returns one has stored
// nothing, except for [ErrClaimLost] and [ErrReferenced] (what can be done for the
// other refs or rows is stored) and [ErrCommitUnknown] (the call is stored whole or
// not at all).
//
// Any call that needs the database may return the error of its context, and these,
// which the documentation of a method calls the errors of the database:
//
//   - [ErrBusy], [ErrUnavailable], [ErrCorrupt]: the database cannot be used now,
//     or at all;
//   - [ErrTooLarge]: a value or an answer is larger than the database allows;
//   - [ErrClosed]: after Close;
//   - [ErrInUpdate]: the call has no Tx, but is made inside an Update;
//   - [ErrFull], [ErrReadOnly], [ErrRolledBack], [ErrCommitUnknown]: only calls
//     that write;
//   - an [InvalidError], if Options.Now returns a year outside 0000 to 9999;
//   - an error of the driver that has none of these meanings, such as that of a
//     constraint or a trigger of yours.
//
// A method with a Tx returns them too, and an [InvalidError] for a Tx that is nil
// or a *sql.DB; ErrInUpdate never, and ErrCommitUnknown only on a *sql.Conn on
// which no transaction was begun. What a method returns beyond these, it says.
//
// # Instants
//
// The "now" of a write is read from Options.Now after the write lock is held, so
// that a lease does not start before the wait. (A claim also reads it before, to
// see whether anything is due. Over package hrana it is read before the request is
// sent, so a lease may be short by as long as the request takes.) Clocks may differ between nodes and step back: a
// row may then be claimed sooner or later, but none is lost and no fence repeats.
// Instants are kept to the nanosecond and come back in UTC.
//
// # On disk
//
// The store is a table that any SQLite shell can read; schema.sql describes it
// and [Schema] returns it. Payloads of more than 1 KiB lie in a table beside it,
// so that no transition rewrites them. Legacy files are migrated in place, see
// [Store.Migrate]. A purged key may be appended again, and its fence starts again:
// how long settled rows are kept is the horizon of idempotency and of fencing.
package outbox
