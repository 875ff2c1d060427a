package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"
)

// receipt is one request that the receiver got.
type receipt struct {
	Key    string    `json:"key"`
	Fence  int64     `json:"fence"`
	At     time.Time `json:"at"`
	Status int       `json:"status"` // what it was answered with
}

// accepted reports whether the receiver took the delivery.
func (r receipt) accepted() bool { return r.Status/100 == 2 }

// fenced reports whether it was refused because a later claim had come before.
func (r receipt) fenced() bool { return r.Status == http.StatusConflict }

// receipts is the receiver's memory: a file that it appends to before it
// answers. It is a file of its own, because the receiver is another party: were
// it in the outbox's database, the check at the end would compare the outbox
// with itself. What was written survives kill -9, as the receiver would survive
// the death of its sender; so the check covers the deliveries of all runs.
type receipts struct {
	mu    sync.Mutex // held while a receipt is decided on and written
	file  *os.File
	byKey map[string][]receipt // in the order they came
}

// openReceipts reads the receipts of earlier runs. A line that was not written
// to its end was not answered either, and is dropped.
func openReceipts(name string) (_ *receipts, err error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	data = data[:bytes.LastIndexByte(data, '\n')+1]
	if err := file.Truncate(int64(len(data))); err != nil {
		return nil, err
	}
	r := &receipts{file: file, byKey: make(map[string][]receipt)}
	for line := range bytes.Lines(data) {
		var receipt receipt
		if err := json.Unmarshal(line, &receipt); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		r.byKey[receipt.Key] = append(r.byKey[receipt.Key], receipt)
	}
	return r, nil
}

// add records a request. Its status is what decide says, given the requests of
// the same key that came before.
func (r *receipts) add(key string, fence int64, decide func(earlier []receipt) int) (receipt, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	added := receipt{Key: key, Fence: fence, At: time.Now().UTC(), Status: decide(r.byKey[key])}
	line, err := json.Marshal(added)
	if err != nil {
		return receipt{}, err
	}
	if _, err := r.file.Write(append(line, '\n')); err != nil {
		return receipt{}, err
	}
	r.byKey[key] = append(r.byKey[key], added)
	return added, nil
}

// all returns the receipts by key. There must be no requests any more.
func (r *receipts) all() map[string][]receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byKey
}

func (r *receipts) Close() error { return r.file.Close() }
