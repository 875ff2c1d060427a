package dispatch

import (
	"math"
	"math/rand/v2"
	"time"
)

// Limit is a MaxPerNamespace that is the same for all namespaces.
func Limit(rows int) func(namespace string) int {
	return func(string) int { return rows }
}

// Exponential is a Backoff that starts at first, doubles with each attempt up to
// longest, and is shortened at random by up to half, so that rows that failed
// together do not come back together. A duration that is not positive counts as
// a nanosecond.
func Exponential(first, longest time.Duration) func(attempt uint32) time.Duration {
	first, longest = max(first, 1), max(longest, 1)
	return func(attempt uint32) time.Duration {
		pause := longest
		if attempt < 63 && first <= math.MaxInt64>>attempt {
			pause = min(first<<attempt, longest)
		}
		return pause - rand.N(pause/2+1)
	}
}
