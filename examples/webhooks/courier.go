package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/google/uuid"
)

// courier delivers claimed rows.
type courier struct {
	store    *outbox.Store
	url      string
	client   *http.Client
	stops    uuid.UUID // the workflow to be stopped after its first delivery
	progress *progress
}

func newCourier(store *outbox.Store, url string, stops uuid.UUID, progress *progress) *courier {
	transport := &http.Transport{MaxIdleConnsPerHost: 2 * concurrency}
	return &courier{
		store:    store,
		url:      url,
		client:   &http.Client{Transport: transport},
		stops:    stops,
		progress: progress,
	}
}

// Close closes the connections that are kept for reuse.
func (c *courier) Close() { c.client.CloseIdleConnections() }

// deliver handles a row; its error says what is to become of it. A request that
// hangs ends with ctx and is retried like one that failed. If the claim has been
// lost, what it returns no longer counts.
func (c *courier) deliver(ctx context.Context, row outbox.Row) error {
	err := c.post(ctx, row)
	var refusal *statusError
	switch {
	case err == nil:
		return c.complete(ctx, row)
	case errors.As(err, &refusal) && refusal.permanent():
		return dispatch.Permanent(err)
	case errors.As(err, &refusal) && refusal.retryAfter > 0:
		return dispatch.RetryAfter(refusal.retryAfter, err)
	}
	return err
}

// complete records that a row was delivered, in the outbox and in the history.
// If that stops the workflow, its other rows are cancelled in the same
// transaction: no crash can come between. The Dispatcher completes the row once
// more, which changes nothing.
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
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return &statusError{
		status:     response.StatusCode,
		text:       strings.TrimSpace(string(text)),
		retryAfter: time.Duration(seconds) * time.Second,
	}
}

// statusError is an answer other than success.
type statusError struct {
	status     int
	text       string
	retryAfter time.Duration // when the receiver wants to be asked again; zero: it does not say
}

func (e *statusError) Error() string {
	return fmt.Sprintf("answered %d %s: %s", e.status, http.StatusText(e.status), e.text)
}

// permanent reports whether asking again is no use.
func (e *statusError) permanent() bool {
	return e.status/100 == 4 && e.status != http.StatusTooManyRequests && e.status != http.StatusRequestTimeout && !e.late()
}

// late reports whether a later claim of the row was delivered before this one.
func (e *statusError) late() bool { return e.status == http.StatusConflict }
