package dispatch

import (
	"context"
	"fmt"
	"slices"

	"example.com/outbox"
	"github.com/google/uuid"
)

// claimed is what a claim found.
type claimed struct {
	tasks   []*task
	more    bool // there may be more that can be claimed now
	limited bool // there may be more once a row of the namespace is settled
}

// claim claims as many rows as there are free handlers. Beside an error it may
// find rows too.
func (r *run) claim(ctx context.Context, free int, found *claimed) error {
	held, err := r.opts.HeldContext(ctx)
	if err != nil {
		return fmt.Errorf("which workflows are held: %w", err)
	}
	if r.opts.Scopes != nil || r.opts.AllRoutes {
		return r.claimInTurn(ctx, free, held, found)
	}
	n, err := r.take(found, func() ([]outbox.Row, error) { return r.store.ClaimExcluding(ctx, free, held...) })
	found.more = n == free
	return err
}

// take makes tasks of the rows of a claim, and returns how many there are.
func (r *run) take(found *claimed, claim func() ([]outbox.Row, error)) (int, error) {
	r.leases.claiming.RLock()
	defer r.leases.claiming.RUnlock()
	rows, err := claim()
	found.tasks = append(found.tasks, r.hold(rows)...)
	return len(rows), err
}

// rotation is a round of the routes, and how far it has come.
type rotation struct {
	scopes []outbox.Scope
	next   int
}

// claimInTurn takes a fair share of each route, going on where the last call
// stopped, until enough rows are claimed or it has been round all of them.
func (r *run) claimInTurn(ctx context.Context, free int, held []uuid.UUID, found *claimed) error {
	allowances := allowances{run: r}
	left, round := free, false
	for left > 0 {
		if r.routes.next >= len(r.routes.scopes) {
			if round {
				return nil // there is nothing more than it met
			}
			if err := r.startRound(ctx); err != nil || len(r.routes.scopes) == 0 {
				return err
			}
			round = true
		}
		scope := r.routes.scopes[r.routes.next]
		allowed, err := allowances.of(ctx, scope.Namespace, left)
		if err != nil {
			return err
		}
		share := min(max(1, free/len(r.routes.scopes)), left)
		if allowed < share {
			found.limited = true
		}
		if limit := min(share, allowed); limit > 0 {
			n, err := r.take(found, func() ([]outbox.Row, error) {
				return r.store.ClaimScopedExcluding(ctx, scope, limit, held...)
			})
			if err != nil {
				return err
			}
			found.more = found.more || n == share
			allowances.take(scope.Namespace, n)
			left -= n
		}
		r.routes.next++
	}
	found.more = true
	return nil
}

// startRound makes the list of routes for the next round.
func (r *run) startRound(ctx context.Context) error {
	r.routes.next = 0
	if r.opts.Scopes != nil {
		r.routes.scopes = r.opts.Scopes
		return nil
	}
	routes, err := r.store.PendingRoutes(ctx)
	if err == nil && len(routes) == 0 {
		// An embedded replica may lag: rows may not be in its file yet.
		if err = r.refresh(ctx); err == nil {
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

// allowances are how many more rows of each namespace may be claimed, counted for
// those that are next in turn.
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
		a.left[name] = int(max(int64(a.opts.MaxPerNamespace(name))-n, 0))
	}
	return a.left[namespace], nil
}

func (a *allowances) take(namespace string, rows int) {
	if a.left != nil {
		a.left[namespace] -= rows
	}
}
