// Package sqldtest holds the tests that need a real libSQL server: conformance
// over HTTP and over embedded replicas, round trips, faults and several nodes.
//
// They are left out of a plain go test. To run them, name the server's program:
//
//	OUTBOX_SQLD=/path/to/sqld go test -tags sqld ./sqldtest
//
// make sqld installs one and runs them, and so does CI, which fails without.
package sqldtest
