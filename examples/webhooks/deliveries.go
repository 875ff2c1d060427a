package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/google/uuid"
)

// sample is real webhooks of GitHub's; their licence lies beside them.
//
//go:embed sample/github-webhooks.jsonl
var sample []byte

// delivery is one webhook, which is one workflow.
type delivery struct {
	Event      string          `json:"event"`
	Action     string          `json:"action"`
	Repository string          `json:"repository"`
	Payload    json.RawMessage `json:"payload"` // to be passed on to the byte

	workflow uuid.UUID
}

// readDeliveries reads the file of that name, or the sample if it has none.
func readDeliveries(name string) ([]delivery, error) {
	if name == "" {
		return decodeDeliveries(bytes.NewReader(sample))
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	deliveries, err := decodeDeliveries(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return deliveries, nil
}

func decodeDeliveries(r io.Reader) ([]delivery, error) {
	var deliveries []delivery
	for decoder := json.NewDecoder(r); ; {
		var next delivery
		err := decoder.Decode(&next)
		switch {
		case errors.Is(err, io.EOF) && len(deliveries) == 0:
			return nil, errors.New("there are no deliveries in it")
		case errors.Is(err, io.EOF):
			return deliveries, nil
		case err != nil:
			return nil, fmt.Errorf("delivery %d: %w", len(deliveries)+1, err)
		case next.Event == "" || len(next.Payload) == 0:
			return nil, fmt.Errorf("delivery %d has no event or no payload", len(deliveries)+1)
		}
		next.workflow = workflowID(len(deliveries), next)
		deliveries = append(deliveries, next)
	}
}

// workflowID derives an id from what is delivered, so that a run after a crash
// gives the same id to the same delivery: then its dispatch keys are the same
// too, and the store passes over what it holds. A sender that numbers its
// deliveries gives a better one. The position tells equal deliveries apart.
func workflowID(position int, d delivery) uuid.UUID {
	return uuid.NewSHA1(uuid.NameSpaceURL, fmt.Appendf(nil, "webhook %d %s %s", position, d.Event, d.Payload))
}
