package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
)

// courier delivers claimed rows and settles them by the answer.
type courier struct {
	store    *outbox.Store
	url      string
	client   *http.Client
	stops    uuid.UUID // the workflow to be stopped after its first delivery
	progress *progress
}

func newCourier(store *outbox.Store, url string, stops uuid.UUID, progress *progress) *courier {
	transport := &http.Transport{MaxIdleConnsPerHost: 4 * batchSize}
	return &courier{
		store:    store,
		url:      url,
		client:   &http.Client{Transport: transport, Timeout: postTimeout},
		stops:    stops,
		progress: progress,
	}
}

// Close closes the connections that are kept for reuse.
func (c *courier) Close() { c.client.CloseIdleConnections() }

// deliver posts a row and settles it. It returns only errors of the store; a
// row that could not be settled stays claimed, until it is stale.
func (c *courier) deliver(ctx context.Context, row outbox.Row) error {
	answer := c.post(ctx, row)

	// What was answered is recorded even if ctx ended meanwhile: it saves
	// another delivery.
	err := c.settle(context.WithoutCancel(ctx), row, answer, ctx.Err() != nil)
	if errors.Is(err, outbox.ErrClaimLost) {
		// It took too long: the row was claimed again or is settled, and
		// this one's word about it no longer counts.
		c.progress.fenced(row)
		return nil
	}
	return err
}

// settle does what answer, the error of a post, asks for. Each transition names
// the claim by its fence, so that it applies to that claim or not at all.
func (c *courier) settle(ctx context.Context, row outbox.Row, answer error, interrupted bool) error {
	var refusal *statusError
	errors.As(answer, &refusal)
	switch {
	case answer == nil:
		return c.complete(ctx, row)
	case refusal != nil && refusal.status == http.StatusConflict:
		return outbox.ErrClaimLost // the receiver knows of a later claim
	case refusal == nil && interrupted:
		// Given back, to be taken up at once. That we stop is no failure of
		// the dispatch, so its attempt stays.
		return c.store.Retry(ctx, row.Ref(), row.Attempt, time.Time{}, answer)
	case refusal != nil && refusal.permanent(), row.Attempt+1 >= maxAttempts:
		if err := c.store.Fail(ctx, row.Ref(), answer); err != nil {
			return err
		}
		c.progress.dead(row, answer)
		return nil
	default:
		if err := c.store.Retry(ctx, row.Ref(), row.Attempt+1, time.Now().Add(backoff(row.Attempt)), answer); err != nil {
			return err
		}
		c.progress.retried()
		return nil
	}
}

// backoff doubles with each attempt, and varies, so that what failed together
// does not come back together.
func backoff(attempt uint32) time.Duration {
	const first = 40 * time.Millisecond
	pause := first << min(attempt, 10)
	return pause/2 + rand.N(pause)
}

// complete records that a row was delivered, in the outbox and in the history.
// If that stops the workflow, its other rows are cancelled in the same
// transaction: no crash can come between.
func (c *courier) complete(ctx context.Context, row outbox.Row) error {
	var cancelled []string
	err := c.store.Update(ctx, func(ctx context.Context, tx outbox.Tx) (err error) {
		if err := c.store.CompleteTx(ctx, tx, row.Ref()); err != nil {
			return err
		}
		if err := writeHistory(ctx, tx, row.WorkflowID, "delivered", subscribers[row.Ordinal].name); err != nil {
			return err
		}
		if row.WorkflowID != c.stops {
			return nil
		}
		if err := writeHistory(ctx, tx, row.WorkflowID, "stopped", ""); err != nil {
			return err
		}
		cancelled, err = c.store.SettleWorkflowTx(ctx, tx, row.WorkflowID)
		return err
	})
	if err != nil {
		return err
	}
	c.progress.delivered()
	if row.WorkflowID == c.stops {
		c.progress.cancelled(row.WorkflowID, len(cancelled))
	}
	return nil
}

// post sends a row to its subscriber. The dispatch key tells the receiver which
// requests are the same delivery, and the fence which of them is the latest.
func (c *courier) post(ctx context.Context, row outbox.Row) error {
	if row.Ordinal >= uint64(len(subscribers)) {
		return &statusError{status: http.StatusNotFound, text: "no such subscriber"}
	}
	url := c.url + "/" + subscribers[row.Ordinal].name
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(row.Input.Data))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", row.Input.ContentType)
	request.Header.Set("X-GitHub-Event", strings.TrimPrefix(row.ActivityType, activityPrefix))
	request.Header.Set("Idempotency-Key", row.DispatchKey)
	request.Header.Set("Outbox-Fence", strconv.FormatInt(row.Fence, 10))
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	// A body that was read to its end lets the connection be used again.
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	if err != nil {
		return err
	}
	if response.StatusCode/100 == 2 {
		return nil
	}
	return &statusError{response.StatusCode, strings.TrimSpace(string(text))}
}

// statusError is an answer other than success.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("answered %d %s: %s", e.status, http.StatusText(e.status), e.text)
}

// permanent reports whether asking again is no use.
func (e *statusError) permanent() bool {
	return e.status/100 == 4 && e.status != http.StatusTooManyRequests && e.status != http.StatusRequestTimeout
}
