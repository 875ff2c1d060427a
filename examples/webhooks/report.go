package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
)

// everyRow pages through the store. A page is read by the last row of the one
// before, so none is seen twice or missed, however many there are.
func everyRow(ctx context.Context, store *outbox.Store) iter.Seq2[outbox.Row, error] {
	return func(yield func(outbox.Row, error) bool) {
		filter := outbox.Filter{Limit: pageSize}
		for {
			page, err := store.List(ctx, filter)
			if err != nil {
				yield(outbox.Row{}, fmt.Errorf("list rows: %w", err))
				return
			}
			for _, row := range page {
				if !yield(row, nil) {
					return
				}
			}
			if len(page) < pageSize {
				return
			}
			filter.After = page[len(page)-1].ID
		}
	}
}

// audit counts the rows in the database, those of earlier runs too, and checks
// them one by one. What is wrong is returned in words.
func audit(ctx context.Context, store *outbox.Store, deliveries []delivery, receipts *receipts) (total figures, problems []string, err error) {
	received, delivered, err := readHistory(ctx, store)
	if err != nil {
		return figures{}, nil, err
	}
	seen := receipts.all()
	known := make(map[string]bool)
	rows := make(map[uuid.UUID]int)
	for row, err := range everyRow(ctx, store) {
		if err != nil {
			return figures{}, nil, err
		}
		total.count(row, seen[row.DispatchKey])
		known[row.DispatchKey] = true
		rows[row.WorkflowID]++
		if problem := checkRow(row, seen[row.DispatchKey]); problem != "" {
			problems = append(problems, fmt.Sprintf("%s (%s): %s", row.DispatchKey, nameOf(row), problem))
		}
	}
	for key := range seen {
		if !known[key] {
			problems = append(problems, fmt.Sprintf("%s: the receiver saw it, but there is no such row", key))
		}
	}
	for _, delivery := range deliveries {
		if !received[delivery.workflow] {
			problems = append(problems, fmt.Sprintf("workflow %s (%s): is not in the history", delivery.workflow, delivery.title()))
		}
	}
	for workflow := range received {
		if rows[workflow] != len(subscribers) {
			problems = append(problems, fmt.Sprintf("workflow %s: has %d rows, not %d", workflow, rows[workflow], len(subscribers)))
		}
		delete(rows, workflow)
	}
	for workflow := range rows {
		problems = append(problems, fmt.Sprintf("workflow %s: has rows, but is not in the history", workflow))
	}
	if delivered != total.delivered {
		problems = append(problems, fmt.Sprintf("the history tells of %d deliveries, the outbox of %d", delivered, total.delivered))
	}
	return total, problems, nil
}

func (f *figures) count(row outbox.Row, receipts []receipt) {
	f.staged++
	f.retried += int(row.Attempt)
	for i := range receipts {
		if receipts[i].accepted() {
			f.accepted++
		}
	}
	switch row.Status {
	case outbox.Done:
		f.delivered++
	case outbox.Failed:
		f.dead++
	case outbox.Cancelled:
		f.cancelled++
	}
}

// checkRow says what is wrong with a row, given what the receiver saw of it.
// That it saw a row more than once is not: the promise is at least once.
func checkRow(row outbox.Row, receipts []receipt) string {
	accepted := 0
	for _, receipt := range receipts {
		if receipt.accepted() {
			accepted++
		}
		// A request that was refused by its fence may have come at any time.
		if !receipt.fenced() && !row.FinishedAt.IsZero() && receipt.At.After(row.FinishedAt) {
			return fmt.Sprintf("the receiver saw it at %s, after it was settled at %s",
				receipt.At.Format(time.RFC3339Nano), row.FinishedAt.Format(time.RFC3339Nano))
		}
	}
	switch {
	case row.Status == outbox.Pending || row.Status == outbox.Claimed:
		return "is not settled but " + string(row.Status)
	case row.Status == outbox.Done && accepted == 0:
		return "is delivered, but the receiver never accepted it"
	case row.Status == outbox.Cancelled && accepted > 0:
		return "is cancelled, but the receiver accepted it"
	case row.Status == outbox.Failed && row.LastError == "":
		return "is a dead letter without a reason"
	}
	return ""
}

// checkHold looks whether a row of the workflow on hold got through since start.
func checkHold(receipts *receipts, held *hold, start time.Time) (problems []string) {
	for i := range subscribers {
		key := outbox.DispatchKey(held.workflow, uint64(i))
		for _, receipt := range receipts.all()[key] {
			if receipt.At.After(start) && receipt.At.Before(held.at) {
				problems = append(problems, key+": was delivered while its workflow was on hold")
			}
		}
	}
	return problems
}

// writeReport writes the table of this run beside that of the database, which
// counts what earlier runs did too. What a row does not remember is left out.
func writeReport(out io.Writer, run, total figures, took time.Duration) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "\n\tthis run\tdatabase\t\n")
	for _, line := range []struct {
		name       string
		run, total any
	}{
		{"staged", run.staged, total.staged},
		{"delivered", run.delivered, total.delivered},
		{"retried", run.retried, total.retried},
		{"re-armed", run.rearmed, "-"},
		{"fenced off", run.fenced, "-"},
		{"accepted by receiver", "-", total.accepted},
		{"dead", run.dead, total.dead},
		{"cancelled", run.cancelled, total.cancelled},
		{"deliveries per second", fmt.Sprintf("%.0f", float64(run.delivered)/took.Seconds()), "-"},
	} {
		fmt.Fprintf(table, "%s\t%v\t%v\t\n", line.name, line.run, line.total)
	}
	fmt.Fprintln(table)
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// checkError is a check that failed.
type checkError struct {
	problems []string
}

func (e *checkError) Error() string {
	const shown = 10
	var text strings.Builder
	fmt.Fprintf(&text, "check failed: %d problems", len(e.problems))
	for i, problem := range e.problems {
		if i == shown {
			fmt.Fprintf(&text, "\n  and %d more", len(e.problems)-shown)
			break
		}
		text.WriteString("\n  " + problem)
	}
	return text.String()
}
