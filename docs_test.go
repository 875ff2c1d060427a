package outbox_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The documents say which test shows a promise: by its name, or in quotes as a
// rule of the conformance suite.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	var tests, rules strings.Builder
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			appendFile(t, &tests, path)
		case filepath.Dir(path) == "outboxtest":
			appendFile(t, &rules, path)
		}
		return nil
	})
	require.NoError(t, err)

	documents, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, document := range append(documents, "README.md", "CONTRIBUTING.md") {
		var text strings.Builder
		appendFile(t, &text, document)
		for _, name := range regexp.MustCompile("`((Test|Fuzz|Benchmark)[A-Z]\\w+)").FindAllStringSubmatch(text.String(), -1) {
			assert.True(t, strings.Contains(tests.String(), "\nfunc "+name[1]+"("), "%s names %s", document, name[1])
		}
	}
	var guarantees strings.Builder
	appendFile(t, &guarantees, "docs/guarantees.md")
	for _, rule := range regexp.MustCompile(`"([a-z][^"]+)"`).FindAllStringSubmatch(guarantees.String(), -1) {
		assert.True(t, strings.Contains(rules.String(), `{"`+strings.TrimSuffix(rule[1], ", …")), "no rule is called %q", rule[1])
	}
}

func appendFile(t *testing.T, to *strings.Builder, path string) {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	to.WriteByte('\n')
	to.Write(text)
}
