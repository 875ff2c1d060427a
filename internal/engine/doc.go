// Package engine runs the statements of a store in transactions. It knows
// databases, and nothing of rows.
//
// A [DB] is opened by [Open], or taken over with [Over]. A writing call is a
// [Call]: the statements that it begins with, and what it does once they have
// answered. [DB.Write] runs it in an IMMEDIATE transaction of its own or shared
// with calls that other goroutines make at the same time, and on a server that
// takes batches in one request; [DB.WriteIn] runs it in a transaction of the
// caller's. [DB.Update] runs a function in a transaction. [DB.Read] and [DB.Look]
// read.
//
// What a database can do is in [Abilities]. What drivers say when they fail is
// told apart in texts.go and nowhere else.
//
// The files build on each other in one direction: see docs/architecture.md.
package engine
