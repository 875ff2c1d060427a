// Package hrana is a database/sql driver for libSQL servers (sqld, and services
// that speak its protocol) in pure Go. It needs nothing but the standard library,
// and builds with CGO_ENABLED=0.
//
//	db, err := sql.Open("hrana", "http://127.0.0.1:8080")
//
// Each statement is one request, with its arguments, and so is a whole transaction
// that is sent as a batch: see [Batches] below.
//
// # What it guarantees
//
// A request is sent once. It is sent again only where the server said that it did
// not know the stream, outside a transaction, or where net/http knows that nothing
// had been written: where nothing can have been done. No error makes database/sql
// send a statement again. Every failure says what became of it.
//
// A statement of a transaction of BeginTx never runs outside of it: once it has
// ended by an error, or its stream has died, everything else in it fails, COMMIT
// too. For one that was begun by a BEGIN of the caller's own on an *sql.Conn, the
// same holds if its stream has died; if an error may have ended it otherwise, ask
// InTransaction of [sqlbatch.Conn].
//
// Values arrive as they were stored: integers exactly, texts that look like dates
// as texts, an empty blob as []byte{}.
//
// # Data source names
//
//	http://host:port[/path]
//	https://host[:port][/path]
//	libsql://host[:port][/path]   the same as https; with tls=0, as http
//
// Parameters are authToken, the token that the server asks for; txlock, which is
// deferred or immediate (see [Options]); and tls, which is 0 or 1 and must agree
// with the scheme. Everything else is refused. [NewConnector] takes more options.
//
// The token is in no error, no log line, and nothing that package fmt prints; a
// data source name that cannot be parsed is not repeated in the error.
//
// # Connections and streams
//
// A connection of the pool is a stream of the server, opened by its first
// statement and kept from request to request by a baton. It is closed when the
// pool closes the connection, by a request that takes a second at most. Between
// requests it costs nothing but one of the streams that the server may have open
// at once (128 by default; more are refused with status 429, after a second).
//
// A server ends a stream that was idle for 10 seconds. Outside a transaction it is
// replaced in silence, and with it go what PRAGMA foreign_keys had set,
// last_insert_rowid() and changes(). Inside one, the statement fails with
// STREAM_EXPIRED, and after a restart of the server with STREAM_UNKNOWN; the
// transaction is rolled back, and the pool drops the connection.
//
// A connection that comes back to the pool inside a transaction is closed, which
// ends the transaction and frees its lock.
//
// # Transactions
//
// BeginTx sends BEGIN, or BEGIN IMMEDIATE if so asked, and takes no other isolation
// level than serializable, which is what SQLite has. A read-only one is refused, as
// the server enforces none. COMMIT waits as long as the context of BeginTx allows,
// as database/sql gives it no other, and ROLLBACK for 5 seconds.
//
// BEGIN IMMEDIATE waits on the server, for up to 5 seconds. If the other transaction
// has lasted that long by then, the server ends it: the next statement in it gets
// TRANSACTION_TIMEOUT. Now and then BEGIN gets SQLITE_BUSY at once; it did nothing.
// Many that wait there at the same time wear the server out (10 or more), so let
// few connections write: SetMaxOpenConns.
//
// # Batches
//
// A connection is a [sqlbatch.Conn]: it runs several statements, each under a
// condition, in one request, and puts a BEGIN in front of the next statement
// instead of spending a request on it. The package example shows one.
//
// # Arguments and results
//
// nil, bool (as 0 or 1), integers, floats, string, []byte, time.Time and
// driver.Valuer are taken, by position or as sql.Named values, but not both. A
// wrong number of them is an error. A time is written in UTC with nine digits of
// its second, 2006-01-02T15:04:05.000000000Z, so that the order of the texts is
// that of the instants; it is read as a text. Texts with a NUL in them or that are
// not UTF-8, and floats that are NaN or infinite, are refused with ARGS_INVALID.
//
// Results are int64, float64, string, []byte and nil. An infinity is read as NaN,
// since the server does not say which one it is. Rows arrive whole, with the
// answer: nothing is open on the server while they are read, but they must fit into
// what the server returns (10 MB; RESPONSE_TOO_LARGE otherwise) and into
// Options.MaxAnswer. A stored text that is not UTF-8 makes the server fail
// (SERVER_FAILED, status 500), and the stream with it; CAST(… AS BLOB) reads it.
//
// Exec and Query take one statement. Several in one text are refused with
// SQL_MANY_STATEMENTS, and nothing of them is done. Prepare sends nothing and finds
// no mistakes: it is a statement kept on this side.
//
// # Errors
//
// Every error of a call is an [*Error], with a code and one of three outcomes:
//
//   - NothingDone: certainly nothing of the request was executed, nor will be. The
//     server could not be reached, or the request did not get there whole, or it was
//     refused: status 401, 403, 404, 429 and their like, a redirect, arguments, syntax, a
//     stream or transaction that is gone. It may be sent again, if that was not the
//     end of a transaction.
//   - Lost: the request went out whole and no answer came that can be understood.
//     The connection was cut, the context ended, a gateway answered with 502, the
//     answer was too long or none. It may have been executed, as a whole or up to
//     some statement, or may be later: a batch that waited for the lock when its
//     context ended is stored once it gets it. The connection is past use, and
//     everything else on it fails with NothingDone.
//   - neither: the server has tried the statement, and this is its error.
//
// A COMMIT that is Lost may be stored or not; look. If it is NothingDone, it is not.
//
// A context that ends aborts the request at once. What the server does with it then
// is as for a cut connection. A transaction in which that happens cannot be ended
// from here: it keeps its lock for some 5 seconds while others wait for it, and for
// some 10 otherwise.
//
// These guarantees need a way to the server on which nobody sends a request twice:
// a proxy must be told not to repeat POST requests that it may have delivered.
//
// # Addresses
//
// Redirects are refused (REDIRECTED). Where the server asks for another address for
// the rest of a stream, by base_url, that is followed to the same scheme, host and
// port and to [Options].Origins, and ignored otherwise.
//
// A sqld with several databases (namespaces) chooses one by the first label of the
// host: http://tenant.db.example.com:8080.
package hrana
