package engine

import (
	"strings"

	"github.com/google/uuid"
)

// target is the kind of database behind a data source name.
type target int

const (
	fileTarget   target = iota // a local file
	memoryTarget               // in memory of this process
	serverTarget               // a libSQL server
)

// classify tells the kind of a data source name, and replaces one of a private
// in-memory database by a unique name that several connections can share: so
// the data outlives a connection that has to be thrown away.
func classify(dataSourceName string) (target, string) {
	name, query, _ := strings.Cut(dataSourceName, "?")
	for _, scheme := range []string{"http://", "https://", "libsql://", "ws://", "wss://"} {
		if strings.HasPrefix(strings.ToLower(name), scheme) {
			return serverTarget, dataSourceName
		}
	}
	private := name == ":memory:" || name == "file::memory:"
	switch {
	case strings.Contains(query, "vfs=memdb"):
		return memoryTarget, dataSourceName
	case !private && !strings.Contains(query, "mode=memory"):
		return fileTarget, dataSourceName
	case private || !strings.Contains(query, "cache=shared"):
		dataSourceName = withParameters("file:outbox-"+uuid.NewString(), "mode=memory&cache=shared", query)
	}
	return memoryTarget, dataSourceName
}

// inMemdb is the name of a shared in-memory database for SQLite without shared
// cache, which has them in a file system of its own,
// see https://www.sqlite.org/src/file/src/memdb.c.
func inMemdb(dataSourceName string) string {
	name, query, _ := strings.Cut(strings.TrimPrefix(dataSourceName, "file:"), "?")
	return withParameters("file:/"+strings.TrimLeft(name, "/"), "vfs=memdb", query)
}

// withParameters appends the parameters that say where a database is, and those
// of query, which may be the driver's, that say something else.
func withParameters(name, where, query string) string {
	name += "?" + where
	for parameter := range strings.SplitSeq(query, "&") {
		key, _, _ := strings.Cut(parameter, "=")
		if key != "" && key != "mode" && key != "cache" {
			name += "&" + parameter
		}
	}
	return name
}

// isNotToBeWritten reports whether the parameters of a file's name say so. Its
// path may have the same words in it.
func isNotToBeWritten(dataSourceName string) bool {
	_, query, _ := strings.Cut(dataSourceName, "?")
	for parameter := range strings.SplitSeq(query, "&") {
		if parameter == "mode=ro" || parameter == "immutable=1" {
			return true
		}
	}
	return false
}
