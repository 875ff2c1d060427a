package torture

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"example.com/outbox"
	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// Values are drawn from small pools, so that they meet again: the same keys, in
// the same workflows, due at the same instants. Each is nasty in its own way.

var base = time.Date(2024, 2, 29, 12, 30, 15, 0, time.UTC)

// moment is an instant that shows itself by its place among the others.
type moment struct{ time.Time }

func (at moment) GoString() string { return at.Format(time.RFC3339Nano) }

// storable gives instants that can be stored, few enough to be equal often.
var storable = rapid.Custom(func(r *rapid.T) moment {
	switch rapid.IntRange(0, 23).Draw(r, "kind") {
	case 23:
		return moment{rapid.SampledFrom([]time.Time{
			time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
		}).Draw(r, "extreme")}
	case 20, 21, 22:
		return moment{}
	}
	offset := rapid.SampledFrom([]time.Duration{
		0, 1, -1, 500_000_000, 500_000_001, 700_000_000, 735_000_000, time.Second,
		time.Minute, -time.Minute, time.Hour, -time.Hour, 48 * time.Hour, -48 * time.Hour,
	}).Draw(r, "offset")
	zone := rapid.SampledFrom([]*time.Location{time.UTC, time.FixedZone("WIB", 7*3600), time.FixedZone("west", -11*3600)}).Draw(r, "zone")
	return moment{base.Add(offset).In(zone)}
})

var badInstants = []moment{
	{time.Date(-1, 12, 31, 23, 59, 59, 0, time.UTC)}, {time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)},
	{time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("west", -2*3600))}, {time.Date(0, 1, 1, 1, 0, 0, 0, time.FixedZone("east", 2*3600))},
}

// drawInstant gives an instant for an argument, once in a while a bad one.
func drawInstant(r *rapid.T, label string) time.Time {
	if rapid.IntRange(0, 29).Draw(r, "bad") == 29 {
		return rapid.SampledFrom(badInstants).Draw(r, label).Time
	}
	return storable.Draw(r, label).Time
}

var workflows = []uuid.UUID{
	uuid.MustParse("00000000-0000-0000-0000-000000000001"), uuid.MustParse("7f3e2a10-5b6c-4d7e-8f90-a1b2c3d4e5f6"),
	uuid.MustParse("ffffffff-ffff-ffff-ffff-ffffffffffff"), uuid.MustParse("20240101-0000-4000-8000-000000000000"),
}

// crowd is the workflow of calls with many rows.
var crowd = uuid.MustParse("c0000000-0000-4000-8000-000000000000")

// owner is a workflow that shows itself as people write it.
type owner uuid.UUID

func (o owner) GoString() string { return uuid.UUID(o).String() }

var owners = rapid.Custom(func(r *rapid.T) owner {
	return owner(rapid.SampledFrom(slices.Concat(workflows, workflows, []uuid.UUID{crowd, uuid.Nil})).Draw(r, "owner"))
})

func drawWorkflow(r *rapid.T) uuid.UUID { return uuid.UUID(owners.Draw(r, "workflow")) }

var (
	keys = []string{
		"2024-01-01", "2024-01-01 10:00", "2024-01-01T00:00:00.120Z", "0", "-1", "1e3", "NULL", " ", "a", "A", "a ", "é", "e\u0301", "ключ", "🔑",
		`'; DROP TABLE outbox; --`, `"quoted" \`, "?1 :a @b $c", "\x01\x7f\n", "*[a-z]?_%", strings.Repeat("long ", 2000),
	}
	routes    = []string{"", "default", "2024-01-01", "2024-01-01 ", "Default", "'", "鍵", "\x7f"}
	someNodes = []string{"", "", "", "2024-01-01T10:00:00Z", "b", "B", "b ", "ключ"}
	types     = []string{"send", "send", "2024-01-01", "\x01", "'", "送る"}
	badTexts  = []string{"a\x00", "\x00", "a\xff", "\xed\xa0\x80"}
	sizes     = []int{0, 0, 1, 10, 100, 256, 256, 1000, 1023, 1024, 1024, 1025, 1025, 2000, 8192, 100_000}
	causes    = []error{
		nil, errors.New(""), errors.New("boom"), errors.New("2024-01-01"), errors.New("nul \x00 and \xff byte"),
		errors.New(strings.Repeat("é", 5000)), errors.New("x" + strings.Repeat("é", 5000)), errors.New(strings.Repeat("y", 8<<10)),
	}
)

// badly gives a text that cannot be, once in a while.
func badly(r *rapid.T, texts []string, label string) string {
	if rapid.IntRange(0, 29).Draw(r, "bad") == 29 {
		texts = badTexts
	}
	return rapid.SampledFrom(texts).Draw(r, label)
}

func drawLimit(r *rapid.T) int {
	return rapid.SampledFrom([]int{1, 2, 3, 5, 100, 1 << 40, 0, -1, math.MinInt}).Draw(r, "limit")
}

// batch is rows to be staged.
type batch []outbox.Row

func (b batch) GoString() string {
	const shown = 5
	text := strings.Join(show(b[:min(len(b), shown)]), "\n")
	if len(b) > shown {
		text += fmt.Sprintf("\nand so on to\n%s", show(b[len(b)-1:])[0])
	}
	return text
}

// drawRows gives a few rows, rarely hundreds, some with the same key. One of
// them may be of a kind that cannot be stored.
func drawRows(r *rapid.T) []outbox.Row {
	return rapid.Custom(func(r *rapid.T) batch {
		if rapid.IntRange(0, 199).Draw(r, "many") == 199 {
			return drawCrowd(r)
		}
		rows := rapid.SliceOfN(rapid.Custom(drawRow), 0, 5).Draw(r, "rows")
		if len(rows) > 0 && rapid.IntRange(0, 9).Draw(r, "spoil") == 9 {
			spoil(r, &rows[rapid.IntRange(0, len(rows)-1).Draw(r, "which")])
		}
		return rows
	}).Draw(r, "rows")
}

func drawRow(r *rapid.T) outbox.Row {
	text := func(pool []string, label string) string { return rapid.SampledFrom(pool).Draw(r, label) }
	row := outbox.Row{
		WorkflowID:   rapid.SampledFrom(workflows).Draw(r, "workflow"),
		Ordinal:      rapid.SampledFrom([]uint64{0, 1, 2, 1<<53 + 1, math.MaxInt64}).Draw(r, "ordinal"),
		ActivityType: text(types, "type"),
		Namespace:    text(routes, "namespace"),
		TaskQueue:    text(routes[:3], "queue"),
		Node:         text(someNodes, "node"),
		Attempt:      rapid.SampledFrom([]uint32{0, 1, math.MaxUint32}).Draw(r, "attempt"),
		VisibleAfter: storable.Draw(r, "visible after").Time,
		Input: outbox.Payload{
			ContentType: text([]string{"", "application/json", "2024-01-01"}, "content type"),
			Data:        fill(rapid.SampledFrom(sizes).Draw(r, "size")),
		},
	}
	if rapid.Bool().Draw(r, "own key") {
		row.DispatchKey = text(keys, "key")
	}
	if rapid.Bool().Draw(r, "rich") {
		row.Status = rapid.SampledFrom(append(statuses, outbox.Claimed)).Draw(r, "status")
		row.RunID = uuid.NullUUID{UUID: rapid.SampledFrom([]uuid.UUID{uuid.Nil, crowd}).Draw(r, "run"), Valid: true}
		row.LastError = causeText(rapid.SampledFrom(causes).Draw(r, "last error"))
		row.CreatedAt, row.FinishedAt = storable.Draw(r, "created").Time, storable.Draw(r, "finished").Time
		row.ID, row.Fence = 7, 7 // which are the store's to give
		if row.Status == outbox.Claimed {
			row.ClaimedAt = storable.Draw(r, "claimed").Time
		}
	}
	return row
}

// fill returns data of a size, of all bytes.
func fill(size int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i)
	}
	return data
}

// drawCrowd gives more rows than one statement stages. The host may refuse the
// last of them.
func drawCrowd(r *rapid.T) []outbox.Row {
	rows := make([]outbox.Row, rapid.SampledFrom([]int{101, 120, 230}).Draw(r, "crowd"))
	at := storable.Draw(r, "visible after").Time
	for i := range rows {
		rows[i] = outbox.Row{WorkflowID: crowd, Ordinal: uint64(i), ActivityType: "send", VisibleAfter: at, Input: outbox.Payload{Data: fill(i * 8)}}
	}
	rows[len(rows)-1].ActivityType = rapid.SampledFrom([]string{"send", forbidden}).Draw(r, "last type")
	return rows
}

// spoil makes a row one that is refused, by the store or by the host.
func spoil(r *rapid.T, row *outbox.Row) {
	bad := rapid.SampledFrom(badTexts).Draw(r, "bad text")
	never := rapid.SampledFrom(badInstants).Draw(r, "bad instant").Time
	rapid.SampledFrom([]func(){
		func() { row.DispatchKey = bad },
		func() { row.Namespace = bad },
		func() { row.TaskQueue = bad },
		func() { row.Node = bad },
		func() { row.ActivityType = bad },
		func() { row.Input.ContentType = bad },
		func() { row.LastError = bad },
		func() { row.ActivityType = "" },
		func() { row.WorkflowID = uuid.Nil },
		func() { row.Ordinal = 1 << 63 },
		func() { row.Status, row.ClaimedAt = "paused", time.Time{} },
		func() { row.Status, row.ClaimedAt = outbox.Done, base },
		func() { row.VisibleAfter = never },
		func() { row.CreatedAt = never },
		func() { row.Status, row.ClaimedAt = outbox.Claimed, never },
		func() { row.Status, row.ClaimedAt, row.FinishedAt = outbox.Failed, time.Time{}, never },
		func() { row.DispatchKey = strings.Repeat("k", 600<<10) },
		func() { row.ActivityType = forbidden },
		func() { row.ActivityType = forbidden },
		func() { row.ActivityType = fatal },
		func() { row.ActivityType = fatal },
	}).Draw(r, "defect")()
}

// known are the keys of the model, sorted, so that a sequence can be repeated.
func (m *machine) known() []string {
	return append(slices.Sorted(maps.Keys(m.model.rows)), fmt.Sprintf("%s:0", workflows[0]))
}

// keyText is a key that does not flood the output.
type keyText string

func (k keyText) GoString() string { return brief(string(k)) }

func (m *machine) drawKey(r *rapid.T) string {
	return string(rapid.Custom(func(r *rapid.T) keyText {
		if rapid.IntRange(0, 3).Draw(r, "absent") == 3 {
			return keyText(badly(r, append([]string{"", "nobody"}, keys...), "key"))
		}
		return keyText(rapid.SampledFrom(m.known()).Draw(r, "key"))
	}).Draw(r, "key"))
}

// drawRef gives the ref of a claim that stands, that is lost, that is to come,
// or none.
func (m *machine) drawRef(r *rapid.T) outbox.Ref {
	ref := outbox.Ref{DispatchKey: m.drawKey(r)}
	fence := m.model.rows[ref.DispatchKey].Fence
	switch rapid.SampledFrom([]string{"right", "right", "handed", "none", "before", "after", "odd"}).Draw(r, "fence") {
	case "right":
		ref.Fence = fence
	case "handed":
		if len(m.handed) > 0 {
			ref = rapid.SampledFrom(m.handed).Draw(r, "handed")
		}
	case "before":
		ref.Fence = fence - 1
	case "after":
		ref.Fence = fence + 1
	case "odd":
		ref.Fence = rapid.SampledFrom([]int64{-1, math.MinInt64, math.MaxInt64, 1 << 53}).Draw(r, "odd")
	}
	return ref
}

// bundle is refs that do not flood the output.
type bundle []outbox.Ref

func (b bundle) GoString() string {
	var refs []string
	for _, ref := range b {
		refs = append(refs, fmt.Sprintf("%s fence %d", brief(ref.DispatchKey), ref.Fence))
	}
	return strings.Join(refs, ", ")
}

func (m *machine) drawRefs(r *rapid.T) []outbox.Ref {
	return rapid.Custom(func(r *rapid.T) bundle {
		return rapid.SliceOfN(rapid.Custom(m.drawRef), 0, 6).Draw(r, "refs")
	}).Draw(r, "refs")
}

func (m *machine) drawOneRef(r *rapid.T) outbox.Ref {
	return rapid.Custom(func(r *rapid.T) bundle { return bundle{m.drawRef(r)} }).Draw(r, "ref")[0]
}

// node gives the node that makes the next call.
func (m *machine) node(r *rapid.T) *node {
	n := m.nodes[rapid.IntRange(0, nodes-1).Draw(r, "node")]
	n.clock.listen()
	return n
}
