package dispatch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/outbox"
	"example.com/outbox/dispatch"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// logged collects what is logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(l, nil)) }

type line struct {
	Msg, Operation, Kind string
	LeftOut              int `json:"left_out"`
}

// of returns the lines about an operation.
func (l *logged) of(t testing.TB, operation string) (lines []line) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for text := range strings.Lines(l.text.String()) {
		var one line
		require.NoError(t, json.Unmarshal([]byte(text), &one))
		if one.Operation == operation {
			lines = append(lines, one)
		}
	}
	return lines
}

func TestTroubleThatRepeatsIsLoggedAtGrowingIntervalsWithACount(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		exec := func(statement string) {
			require.NoError(t, b.store.Update(t.Context(), func(ctx context.Context, tx outbox.Tx) error {
				_, err := tx.ExecContext(ctx, statement)
				return err
			}))
		}
		exec(`CREATE TRIGGER broken BEFORE UPDATE ON outbox WHEN NEW.status = 'done' BEGIN SELECT RAISE(ABORT, 'broken'); END`)
		b.append(32, nil)
		var log logged
		var seen recorder
		b.run(nothing, dispatch.Options{Observer: seen.observer(), Logger: log.logger()})
		time.Sleep(8 * time.Second)
		require.LessOrEqual(t, len(log.of(t, "settle")), 4, "1, 2 and 4 s apart")
		time.Sleep(3 * time.Minute)
		exec(`DROP TRIGGER broken`)
		time.Sleep(time.Minute)
		b.end()
		lines := log.of(t, "settle")
		require.LessOrEqual(t, len(lines), 20)
		told := len(lines)
		for _, line := range lines {
			told += line.LeftOut
		}
		if lines[len(lines)-1].Kind != "" {
			told-- // the last line of all has a count alone
		}
		require.Equal(t, seen.errors["settle"], told, "every error is a line or counted")
		require.Greater(t, told, 500)
	})
}

func TestEachKindOfTroubleIsLoggedAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.append(1, nil)
		var log logged
		kinds := []error{outbox.ErrFull, outbox.ErrBusy, errors.New("of no kind"), context.DeadlineExceeded}
		n := 0
		b.run(nothing, dispatch.Options{Logger: log.logger(), HeldContext: func(context.Context) ([]uuid.UUID, error) {
			if n++; n <= len(kinds) {
				return nil, kinds[n-1]
			}
			return nil, nil
		}})
		time.Sleep(time.Minute)
		require.Len(t, log.of(t, "held"), len(kinds))
	})
}

func TestTroubleThatComesBackAfterALongQuietIsLoggedAsAtFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var log logged
		start := time.Now()
		b.run(nothing, dispatch.Options{Logger: log.logger(), HeldContext: func(context.Context) ([]uuid.UUID, error) {
			if passed := time.Since(start); passed < time.Hour || passed > 2*time.Hour {
				return nil, errTest
			}
			return nil, nil
		}})
		time.Sleep(2 * time.Hour)
		before := len(log.of(t, "held"))
		time.Sleep(4 * time.Second)
		require.GreaterOrEqual(t, len(log.of(t, "held")), before+2)
	})
}
