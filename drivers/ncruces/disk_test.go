package ncruces

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ncruces/go-sqlite3/vfs"
	"github.com/stretchr/testify/require"
)

// disk is a file system for SQLite that passes everything on to the real one
// and remembers it, so as to tell what a power loss may leave: what was synced
// is there, and of what was written since, any part may be.
type disk struct {
	vfs.VFSFilename

	mu     sync.Mutex
	events []diskEvent
}

// diskEvent is what SQLite did to a file.
type diskEvent struct {
	file string // suffix of the name: "", "-wal" or "-journal"
	did  action
	at   int64  // where it was written, or the new size
	data []byte // what was written
}

type action int

const (
	written action = iota
	truncated
	synced
	deleted
)

// newDisk registers a disk under its name for data source names.
func newDisk(t testing.TB, name string) *disk {
	t.Helper()
	d := &disk{VFSFilename: vfs.Find("os").(vfs.VFSFilename)}
	vfs.Register(name, d)
	t.Cleanup(func() { vfs.Unregister(name) })
	return d
}

// length is how much has happened so far.
func (d *disk) length() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.events)
}

// writesBetween counts the writes to the database itself between two moments.
func (d *disk) writesBetween(from, to int) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, event := range d.events[from:to] {
		if event.file == "" && event.did == written {
			n++
		}
	}
	return n
}

func (d *disk) note(event diskEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, event)
}

func suffixOf(name string) string {
	_, suffix, _ := strings.Cut(filepath.Base(name), ".db")
	return suffix
}

func (d *disk) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	file, flags, err := d.VFSFilename.OpenFilename(name, flags)
	if err != nil || name == nil {
		return file, flags, err
	}
	return &diskFile{file, d, suffixOf(name.String())}, flags, nil
}

func (d *disk) Delete(name string, syncDir bool) error {
	err := d.VFSFilename.Delete(name, syncDir)
	if err == nil {
		d.note(diskEvent{file: suffixOf(name), did: deleted})
	}
	return err
}

// diskFile is a file on a disk.
type diskFile struct {
	vfs.File
	disk *disk
	name string
}

func (f *diskFile) WriteAt(data []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(data, at)
	f.disk.note(diskEvent{f.name, written, at, slices.Clone(data[:n])})
	return n, err
}

func (f *diskFile) Truncate(size int64) error {
	err := f.File.Truncate(size)
	if err == nil {
		f.disk.note(diskEvent{f.name, truncated, size, nil})
	}
	return err
}

func (f *diskFile) Sync(flags vfs.SyncFlag) error {
	err := f.File.Sync(flags)
	if err == nil {
		f.disk.note(diskEvent{file: f.name, did: synced})
	}
	return err
}

func (f *diskFile) SharedMemory() vfs.SharedMemory {
	return f.File.(vfs.FileSharedMemory).SharedMemory()
}

const sector = 512

// lose writes the files to a folder as they may be if the power is lost after so
// many events, and returns the database. Each sector that was not synced is
// there with a probability.
func (d *disk) lose(t testing.TB, random *rand.Rand, after int, kept float64) string {
	t.Helper()
	d.mu.Lock()
	events := d.events[:after]
	d.mu.Unlock()
	lastSync := map[string]int{}
	const anyFile = "any" // file systems sync what befell a folder with any file
	for i, event := range events {
		if event.did == synced {
			lastSync[event.file], lastSync[anyFile] = i, i
		}
	}
	contents := map[string][]byte{}
	for i, event := range events {
		until := event.file
		if event.did == deleted {
			until = anyFile
		}
		safe := i < lastSync[until]
		there := func() bool { return safe || random.Float64() < kept }
		switch content := contents[event.file]; event.did {
		case written:
			for from := 0; from < len(event.data); {
				to := min(len(event.data), from+sector-int(event.at+int64(from))%sector)
				if there() {
					content = overwrite(content, event.at+int64(from), event.data[from:to])
				}
				from = to
			}
			contents[event.file] = content
		case truncated:
			if there() && event.at < int64(len(content)) {
				contents[event.file] = content[:event.at]
			}
		case deleted:
			if there() {
				delete(contents, event.file)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "lost.db")
	for suffix, content := range contents {
		require.NoError(t, os.WriteFile(file+suffix, content, 0o600), fmt.Sprint(suffix))
	}
	return file
}

// overwrite makes the content longer if it must.
func overwrite(content []byte, at int64, data []byte) []byte {
	if missing := at + int64(len(data)) - int64(len(content)); missing > 0 {
		content = append(content, make([]byte, missing)...)
	}
	copy(content[at:], data)
	return content
}
