package dispatch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
)

// claimed is what a claim found.
type claimed struct {
	rows    []outbox.Row
	more    bool // there may be more that can be claimed now
	limited bool // there may be more once a row of the namespace is settled
}

// claim claims as many rows as are free to be started. Beside an error it may
// return rows too.
func (r *run) claim(ctx context.Context, free int) (claimed, error) {
	held, err := r.held(ctx)
	if err != nil {
		return claimed{}, fmt.Errorf("which workflows are held: %w", err)
	}
	if r.opts.Scopes == nil && !r.opts.AllRoutes {
		rows, err := r.store.ClaimExcluding(ctx, free, held...)
		return claimed{rows: rows, more: len(rows) == free}, err
	}
	return r.claimInTurn(ctx, free, held)
}

// held asks which workflows are held.
func (r *run) held(ctx context.Context) (held []uuid.UUID, err error) {
	if r.opts.HeldContext != nil {
		if held, err = r.opts.HeldContext(ctx); err != nil {
			return nil, err
		}
	}
	if r.opts.Held != nil {
		held = slices.Concat(held, r.opts.Held())
	}
	return held, nil
}

// rotation goes round the routes, and goes on where it stopped.
type rotation struct {
	scopes []outbox.Scope
	next   int
}

// claimInTurn takes a fair share of each route, going on where the last call
// stopped, until enough rows are claimed or it has been round all of them.
func (r *run) claimInTurn(ctx context.Context, free int, held []uuid.UUID) (found claimed, err error) {
	allowances := allowances{run: r}
	left, round := free, false
	for left > 0 {
		if r.routes.next >= len(r.routes.scopes) {
			if round {
				return found, nil // there is nothing more than it met
			}
			if err := r.startRound(ctx); err != nil || len(r.routes.scopes) == 0 {
				return found, err
			}
			round = true
		}
		scope := r.routes.scopes[r.routes.next]
		allowed, err := allowances.of(ctx, scope.Namespace, left)
		if err != nil {
			return found, err
		}
		share := min(max(1, free/len(r.routes.scopes)), left)
		if allowed < share {
			found.limited = true
		}
		if limit := min(share, allowed); limit > 0 {
			rows, err := r.store.ClaimScopedExcluding(ctx, scope, limit, held...)
			if err != nil {
				return found, err
			}
			found.rows = append(found.rows, rows...)
			found.more = found.more || len(rows) == share
			allowances.take(scope.Namespace, len(rows))
			left -= len(rows)
		}
		r.routes.next++
	}
	found.more = true
	return found, nil
}

// startRound makes the list of routes anew.
func (r *run) startRound(ctx context.Context) error {
	r.routes.next = 0
	if r.opts.Scopes != nil {
		r.routes.scopes = r.opts.Scopes
		return nil
	}
	routes, err := r.store.PendingRoutes(ctx)
	if err == nil && len(routes) == 0 {
		// On an embedded replica that is what the local file knows. Any call
		// that looks for work asks the primary and brings the file up to date;
		// this one finds none, as nothing has been claimed since before 1970.
		if _, err = r.store.RearmStale(ctx, time.Unix(0, 0), time.Time{}, 1); err == nil {
			routes, err = r.store.PendingRoutes(ctx)
		}
	}
	if err != nil {
		return err
	}
	r.routes.scopes = r.routes.scopes[:0]
	for _, route := range routes {
		if route.Node != "" && route.Node != r.opts.Node {
			continue
		}
		route.Node = r.opts.Node // which admits unpinned rows as well
		if n := len(r.routes.scopes); n == 0 || r.routes.scopes[n-1] != route {
			r.routes.scopes = append(r.routes.scopes, route)
		}
	}
	return nil
}

// allowances are how many rows more may be claimed of each namespace, counted
// for those that are next in turn.
type allowances struct {
	*run
	left map[string]int
}

func (a *allowances) of(ctx context.Context, namespace string, wanted int) (int, error) {
	if a.opts.MaxPerNamespace == nil {
		return wanted, nil
	}
	if left, ok := a.left[namespace]; ok {
		return left, nil
	}
	const fewest = 16 // namespaces counted in one query
	var names []string
	next := a.routes.scopes[a.routes.next:]
	for _, scope := range next[:min(max(wanted, fewest), len(next))] {
		if _, ok := a.left[scope.Namespace]; !ok && !slices.Contains(names, scope.Namespace) {
			names = append(names, scope.Namespace)
		}
	}
	counts, err := a.store.CountClaimedByNamespace(ctx, names...)
	if err != nil {
		return 0, err
	}
	if a.left == nil {
		a.left = make(map[string]int, len(counts))
	}
	for name, n := range counts {
		a.left[name] = int(max(int64(max(a.opts.MaxPerNamespace(name), 0))-n, 0))
	}
	return a.left[namespace], nil
}

func (a *allowances) take(namespace string, rows int) {
	if a.left != nil {
		a.left[namespace] -= rows
	}
}
