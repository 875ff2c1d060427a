package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// receiver is the subscribers' server: slow, now and then out of order, and
// careful. It tells repeated deliveries by their key, and refuses one that is
// behind a later claim of the same row by its fence. An outbox can promise at
// least once; with these two a receiver makes it once.
type receiver struct {
	receipts *receipts
	hangs    string // the key whose first request is never answered
	server   http.Server
	listener net.Listener
	served   chan error // the end of Serve
}

// stopTimeout is for requests that are still there when the receiver is stopped.
const stopTimeout = 10 * time.Second

// startReceiver starts a receiver on a free port of the loopback interface.
func startReceiver(receipts *receipts, hangs string) (*receiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start receiver: %w", err)
	}
	r := &receiver{
		receipts: receipts,
		hangs:    hangs,
		listener: listener,
		served:   make(chan error, 1),
	}
	r.server.Handler = r
	r.server.ReadHeaderTimeout = stopTimeout
	go func() { r.served <- r.server.Serve(listener) }()
	return r, nil
}

// URL is where it listens.
func (r *receiver) URL() string { return "http://" + r.listener.Addr().String() }

// Close stops the receiver and waits for the requests that it works on.
func (r *receiver) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err := r.server.Shutdown(ctx)
	if served := <-r.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("stop receiver: %w", err)
	}
	return nil
}

// ServeHTTP answers one delivery.
func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // the sender is gone, and nothing was received
	}
	key := request.Header.Get("Idempotency-Key")
	fence, err := strconv.ParseInt(request.Header.Get("Outbox-Fence"), 10, 64)
	if key == "" || err != nil || !json.Valid(body) {
		http.Error(w, "not a delivery", http.StatusBadRequest)
		return
	}
	subscriber := strings.TrimPrefix(request.URL.Path, "/")
	event := request.Header.Get("X-GitHub-Event")
	first := false
	receipt, err := r.receipts.add(key, fence, func(earlier []receipt) int {
		first = len(earlier) == 0
		for _, before := range earlier {
			if before.Fence > fence {
				return http.StatusConflict
			}
		}
		if trouble := troubleWith(subscriber, event, key, len(earlier)); trouble != 0 && key != r.hangs {
			return trouble
		}
		return http.StatusOK // again, if it was accepted before; but it does nothing again
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	switch {
	case key != r.hangs:
		sleep(request.Context(), 2*time.Millisecond+rand.N(8*time.Millisecond))
	case first:
		// It was accepted, but the sender does not learn of it and gives up.
		<-request.Context().Done()
	}
	switch receipt.Status {
	case http.StatusConflict:
		http.Error(w, "a later claim of this delivery was here before", receipt.Status)
	case http.StatusGone:
		http.Error(w, subscriber+" takes no "+event+" any more", receipt.Status)
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "1")
		http.Error(w, subscriber+" wants less at once", receipt.Status)
	case http.StatusServiceUnavailable:
		http.Error(w, subscriber+" is overloaded", receipt.Status)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
