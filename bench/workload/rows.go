package workload

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/google/uuid"
)

// source makes rows.
type source struct {
	keys       Keys
	payloads   [][]byte
	namespaces []string
	at         time.Time // when all are due; zero: when they are staged
	next       int
}

func newSource(spec Spec) (*source, error) {
	s := &source{keys: spec.Keys, namespaces: []string{"default"}}
	if spec.Namespaces > 0 {
		s.namespaces = make([]string, spec.Namespaces)
		for i := range s.namespaces {
			s.namespaces[i] = fmt.Sprintf("tenant-%04d", i)
		}
	}
	if spec.OneInstant {
		s.at = time.Now()
	}
	if spec.Deliveries == "" {
		s.payloads = [][]byte{payload(spec.Size)}
		return s, nil
	}
	content, err := os.ReadFile(spec.Deliveries)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, len(content))
	for lines.Scan() {
		s.payloads = append(s.payloads, bytes.Clone(lines.Bytes()))
	}
	if len(s.payloads) == 0 {
		return nil, fmt.Errorf("%s has no lines", spec.Deliveries)
	}
	return s, lines.Err()
}

// payload is a JSON document of so many bytes.
func payload(size int) []byte {
	const frame = `{"data":""}`
	return fmt.Appendf(nil, `{"data":"%s"}`, bytes.Repeat([]byte("x"), max(size-len(frame), 0)))
}

// batch returns n rows of a new workflow, or of one each.
func (s *source) batch(n int, delay time.Duration) []Row {
	workflow := uuid.New()
	rows := make([]Row, n)
	for i := range rows {
		ordinal := i
		if s.keys == Single {
			workflow, ordinal = uuid.New(), 0
		}
		rows[i] = Row{
			Key:       s.key(workflow, ordinal),
			Workflow:  workflow,
			Ordinal:   ordinal,
			Delay:     delay,
			Payload:   s.payloads[s.next%len(s.payloads)],
			Namespace: s.namespaces[rand.IntN(len(s.namespaces))],
			At:        s.at,
		}
		s.next++
	}
	return rows
}

func (s *source) key(workflow uuid.UUID, ordinal int) string {
	switch s.keys {
	case Random:
		return uuid.NewString()
	case Timed:
		return uuid.Must(uuid.NewV7()).String()
	}
	return fmt.Sprintf("%s:%d", workflow, ordinal)
}

// bytesOf is how many bytes the payloads of rows n to m have.
func (s *source) bytesOf(n, m int) int64 {
	var sum int64
	for i := n; i < m; i++ {
		sum += int64(len(s.payloads[i%len(s.payloads)]))
	}
	return sum
}
