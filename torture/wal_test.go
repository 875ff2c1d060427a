package torture_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// walFile is the content of a write-ahead log,
// see https://www.sqlite.org/fileformat2.html#walformat.
type walFile []byte

const (
	walHeader   = 32
	frameHeader = 24
)

// readWAL reads a log beside a database, which may not be there yet.
func readWAL(t testing.TB, file string) walFile {
	t.Helper()
	content, err := os.ReadFile(file + "-wal")
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return content
}

// frames are the offsets at which the frames of this log begin, and that at
// which the last ends. What a log holds behind them is of an earlier one, which
// it has overwritten.
func (w walFile) frames() []int {
	if len(w) < walHeader {
		return nil
	}
	size, salts := w.frameSize(), w[16:24]
	at := walHeader
	offsets := []int{at}
	for at+size <= len(w) && bytes.Equal(w[at+8:at+16], salts) {
		at += size
		offsets = append(offsets, at)
	}
	return offsets
}

func (w walFile) frameSize() int { return frameHeader + int(binary.BigEndian.Uint32(w[8:])) }

// commits are the offsets at which transactions end: after their last frame,
// which tells the size of the database.
func (w walFile) commits() []int {
	var ends []int
	for i, at := range w.frames() {
		if i > 0 && binary.BigEndian.Uint32(w[at-w.frameSize()+4:]) != 0 {
			ends = append(ends, at)
		}
	}
	return ends
}

// firstDifference is the length of what two logs have in common.
func firstDifference(a, b walFile) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
