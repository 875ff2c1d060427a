package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/outbox"
	"github.com/stretchr/testify/require"
)

func TestCheckOfARow(t *testing.T) {
	settled := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	before, after := settled.Add(-time.Millisecond), settled.Add(time.Millisecond)
	done := outbox.Row{Status: outbox.Done, FinishedAt: settled}
	for _, test := range []struct {
		name     string
		row      outbox.Row
		receipts []receipt
		problem  string
	}{
		{"delivered", done, []receipt{{At: before, Status: 200}}, ""},
		{"delivered twice", done, []receipt{{At: before, Status: 200}, {At: before, Status: 200}}, ""},
		{"delivered after a failure", done, []receipt{{At: before, Status: 503}, {At: before, Status: 200}}, ""},
		{"never seen", done, nil, "never accepted"},
		{"never accepted", done, []receipt{{At: before, Status: 503}}, "never accepted"},
		{"seen after it was settled", done, []receipt{{At: before, Status: 200}, {At: after, Status: 200}}, "after it was settled"},
		{"refused after it was settled", done, []receipt{{At: before, Status: 200}, {At: after, Status: http.StatusConflict}}, ""},
		{"pending", outbox.Row{Status: outbox.Pending}, nil, "not settled"},
		{"claimed", outbox.Row{Status: outbox.Claimed}, []receipt{{At: before, Status: 200}}, "not settled"},
		{"dead", outbox.Row{Status: outbox.Failed, FinishedAt: settled, LastError: "gone"}, []receipt{{At: before, Status: 410}}, ""},
		{"dead without a reason", outbox.Row{Status: outbox.Failed, FinishedAt: settled}, nil, "without a reason"},
		{"cancelled", outbox.Row{Status: outbox.Cancelled, FinishedAt: settled}, nil, ""},
		{"cancelled but accepted", outbox.Row{Status: outbox.Cancelled, FinishedAt: settled}, []receipt{{At: before, Status: 200}}, "accepted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			problem := checkRow(test.row, test.receipts)
			if test.problem == "" {
				require.Empty(t, problem)
			} else {
				require.Contains(t, problem, test.problem)
			}
		})
	}
}

func TestReceiptsOutliveTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "receipts")
	first, err := openReceipts(path)
	require.NoError(t, err)
	accept := func([]receipt) int { return http.StatusOK }
	_, err = first.add("a", 1, accept)
	require.NoError(t, err)
	_, err = first.add("b", 1, accept)
	require.NoError(t, err)
	require.NoError(t, first.Close())

	// The process died before it had written all of the last line.
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data[:len(data)-5], 0o600))

	second, err := openReceipts(path)
	require.NoError(t, err)
	_, err = second.add("a", 2, func(earlier []receipt) int {
		require.Len(t, earlier, 1)
		return http.StatusOK
	})
	require.NoError(t, err)
	require.NoError(t, second.Close())

	third, err := openReceipts(path)
	require.NoError(t, err)
	defer third.Close()
	require.Len(t, third.all()["a"], 2)
	require.Empty(t, third.all()["b"])
}

func TestUnreadableDeliveriesAreRefused(t *testing.T) {
	for name, test := range map[string]struct{ input, problem string }{
		"none":       {"", "no deliveries"},
		"no JSON":    {`{"event":"a","payload":{}}` + "\nnonsense", "delivery 2"},
		"no event":   {`{"payload":{}}`, "delivery 1"},
		"no payload": {`{"event":"a"}`, "delivery 1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeDeliveries(strings.NewReader(test.input))
			require.ErrorContains(t, err, test.problem)
		})
	}
}
