// Package torture holds tests that are too long, or too wild, for the package
// itself. It is a module of its own, so that nobody who imports outbox inherits
// what they need.
//
// # The model
//
// TestModel makes random sequences of calls, on several stores over one database
// with clocks that jump, with transactions that fail and databases that crash in
// between, and compares every answer, and the whole table after every step, with
// a model: the contract of the store in plain Go. model_calls_test.go has the
// calls that it makes.
//
//	model_test.go          the model: what writes make of the rows
//	model_values_test.go   what rows and arguments it accepts, and what it stores of them
//	model_reads_test.go    what the reads answer
//	model_machine_test.go  the sequences: stores, clocks, and the comparison
//	model_calls_test.go    each call, on a store and on the model
//	model_tx_test.go       calls inside transactions, and how those end
//	model_inputs_test.go   nasty arguments
//	model_compare_test.go  how answers are compared and shown
//	model_targets_test.go  databases in memory and on files, and their crashes
//	model_sqld_test.go     a libSQL server
//
// A plain go test runs thousands of steps. On a server each takes longer, so
// that fewer sequences do:
//
//	GOWORK=off go test .
//	GOWORK=off OUTBOX_SQLD=/path/to/sqld go test -tags sqld -run TestModelOnServer -rapid.checks 20 .
//
// The flags of [pgregory.net/rapid] make it run for hours. -rapid.checks is how
// many sequences each target gets (100), -rapid.steps how many steps a sequence
// has between two crashes, on average (30; there are two crashes):
//
//	GOWORK=off go test -run TestModel -timeout 0 -rapid.checks 100000 .
//
// A sequence that fails is shrunk to a short one. The test prints it, with the
// seed that finds it again (-rapid.seed), and keeps it in testdata/rapid, where
// the next run tries it first.
package torture
