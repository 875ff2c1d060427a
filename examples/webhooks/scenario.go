package main

import (
	"hash/fnv"
	"net/http"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
)

// Times are short, so that a run takes seconds. Real leases are minutes.
const (
	lease      = 500 * time.Millisecond // a claim that is older was lost with its claimer
	leaseCheck = 50 * time.Millisecond  // how often those are looked for
	holdFor    = 750 * time.Millisecond // how long the held workflow stays on hold
	patience   = time.Second            // how long a delivery may take

	firstBackoff   = 80 * time.Millisecond // after an attempt that failed, and twice as long after each that follows
	longestBackoff = time.Second
)

const (
	concurrency = 8  // deliveries that a dispatcher makes at once
	maxAttempts = 5  // dispatches of a row before it is a dead letter
	pageSize    = 50 // rows taken from the store at once
)

// subscriber gets a copy of every delivery. Which one a row is for is told by
// its ordinal, the index in subscribers; the scope is its route.
type subscriber struct {
	name  string
	scope outbox.Scope
}

var subscribers = [...]subscriber{
	{"audit", outbox.Scope{Namespace: "internal", TaskQueue: "bulk"}},
	{"search", outbox.Scope{Namespace: "internal", TaskQueue: "express", Node: "indexer-1"}}, // its index is on that node
	{"chat", outbox.Scope{Namespace: "partners", TaskQueue: "express"}},
	{"legacy", outbox.Scope{Namespace: "partners", TaskQueue: "bulk"}},
}

// The subscribers with a part of their own.
const (
	toSearch = 1
	toChat   = 2
)

// roles are the deliveries that something special happens to.
type roles struct {
	held  uuid.UUID // a workflow that is on hold for a while
	stops uuid.UUID // a workflow that is stopped once its first row is delivered
	hangs string    // the dispatch key that the receiver hangs on
	away  string    // the dispatch key whose first claimer comes back too late
}

// castRoles gives the roles to the first deliveries, as far as there are any.
func castRoles(deliveries []delivery) roles {
	var roles roles
	for i, delivery := range deliveries {
		switch i {
		case 0:
			roles.held = delivery.workflow
		case 1:
			roles.stops = delivery.workflow
		case 2:
			roles.hangs = outbox.DispatchKey(delivery.workflow, toChat)
		case 3:
			roles.away = outbox.DispatchKey(delivery.workflow, toChat)
		}
	}
	return roles
}

// troubleWith is what a receiver has against a request that it has got n times
// before: the status it answers with, or 0 if nothing.
func troubleWith(subscriber, event, key string, n int) int {
	if subscriber == "legacy" {
		switch event {
		case "fork", "star", "watch":
			return http.StatusGone // for good: no retry will help
		}
	}
	hash := fnv.New32a()
	hash.Write([]byte(key))
	switch lot := hash.Sum32() % 20; {
	case lot == 0 && n == 1:
		return http.StatusTooManyRequests // and one in twenty again, told when to come back
	case lot < 4 && n < 1:
		return http.StatusServiceUnavailable // one key in five
	}
	return 0
}
