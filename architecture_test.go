package outbox_test

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/architecture.md says which package imports which, in which order the
// files build on each other, and where a call goes. These tests read the code to
// see whether that is so.

const architecture = "docs/architecture.md"

func TestPackagesImportWhatTheArchitecturePageSays(t *testing.T) {
	module := moduleOf(t)
	for _, line := range tableAfter(t, "## Rooms") {
		dir := backticked(line[0])[0]
		imports := make(map[string]bool)
		for _, imported := range packageIn(t, dir).Imports {
			switch {
			case imported == module:
				imports["."] = true
			case strings.HasPrefix(imported, module+"/"):
				imports[strings.TrimPrefix(imported, module+"/")] = true
			}
		}
		assert.Equal(t, slices.Sorted(slices.Values(backticked(line[2]))), slices.Sorted(maps.Keys(imports)), "imports of %s", dir)
	}
}

func TestRootPackageKnowsNoTransactionControl(t *testing.T) {
	control := regexp.MustCompile(`\b(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE)\b`)
	root := readSource(t, make(sources), ".")
	for _, file := range root.files {
		ast.Inspect(file, func(node ast.Node) bool {
			if text, ok := node.(*ast.BasicLit); ok && text.Kind == token.STRING && control.MatchString(text.Value) {
				t.Errorf("%s: %s", root.set.Position(text.Pos()), text.Value)
			}
			return true
		})
	}
}

func TestFilesReferOnlyToFilesAboveThem(t *testing.T) {
	known := make(sources)
	readSource(t, known, "sqlbatch")
	for _, part := range []struct{ dir, heading string }{
		{"internal/engine", "### The engine"},
		{".", "### The root package"},
	} {
		files := readSource(t, known, part.dir)
		place := make(map[string]int)
		for i, line := range tableAfter(t, part.heading) {
			place[backticked(line[0])[0]] = i
		}
		for name, refers := range files.references() {
			if _, ok := place[name]; !ok {
				t.Errorf("%s of %s is not in the table of %s", name, part.dir, architecture)
			}
			for other, names := range refers {
				if place[other] > place[name] {
					t.Errorf("%s: %s refers to %s, which stands below it: %s", part.dir, name, other, strings.Join(names, ", "))
				}
			}
		}
		for name := range place {
			assert.Contains(t, files.files, name, "of %s", part.dir)
		}
	}
}

func TestWaysOnTheArchitecturePageExist(t *testing.T) {
	known := make(sources)
	packages := map[string]*source{
		"internal/engine": readSource(t, known, "internal/engine"),
		".":               readSource(t, known, "."),
	}
	for _, heading := range []string{"### Append", "### Claim", "### Complete"} {
		for _, line := range tableAfter(t, heading) {
			file := backticked(line[0])[0]
			declared := packages[path.Dir(file)].functions(path.Base(file))
			for _, function := range backticked(line[1]) {
				assert.Contains(t, declared, function, "%s, %s", heading, file)
			}
		}
	}
}

// tableAfter returns the cells of the table that follows a heading of the page.
func tableAfter(t *testing.T, heading string) (lines [][]string) {
	page, err := os.ReadFile(architecture)
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "\n"+heading+"\n")
	require.True(t, found, heading)
	inTable := false
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			if inTable {
				break
			}
			continue
		}
		inTable = true
		lines = append(lines, strings.Split(strings.Trim(line, "|"), "|"))
	}
	require.Greater(t, len(lines), 2, heading)
	return lines[2:] // without the names of the columns and the rule
}

var inBackticks = regexp.MustCompile("`([^`]+)`")

func backticked(cell string) (texts []string) {
	for _, match := range inBackticks.FindAllStringSubmatch(cell, -1) {
		texts = append(texts, match[1])
	}
	return texts
}

// moduleOf returns the path of the module, which is not the same for good.
func moduleOf(t *testing.T) string {
	text, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(line, "module ")
}

func packageIn(t *testing.T, dir string) *build.Package {
	found, err := build.ImportDir(dir, 0)
	require.NoError(t, err)
	return found
}

// source is what the files of a package say, but for its tests.
type source struct {
	files map[string]*ast.File // by name
	set   *token.FileSet
	types *types.Package
	uses  map[*ast.Ident]types.Object
}

// sources are packages of this module that were read, by path.
type sources map[string]*source

var standardLibrary = importer.ForCompiler(token.NewFileSet(), "source", nil)

// Import finds a package for the type checker. Those of other modules are empty:
// what they declare says nothing of how our files refer to each other.
func (known sources) Import(name string) (*types.Package, error) {
	if s, ok := known[name]; ok {
		return s.types, nil
	}
	if first, _, _ := strings.Cut(name, "/"); !strings.Contains(first, ".") {
		return standardLibrary.Import(name)
	}
	empty := types.NewPackage(name, path.Base(name))
	empty.MarkComplete()
	return empty, nil
}

func readSource(t *testing.T, known sources, dir string) *source {
	s := &source{files: make(map[string]*ast.File), set: token.NewFileSet(), uses: make(map[*ast.Ident]types.Object)}
	var files []*ast.File
	for _, name := range packageIn(t, dir).GoFiles {
		file, err := parser.ParseFile(s.set, filepath.Join(dir, name), nil, 0)
		require.NoError(t, err)
		s.files[name] = file
		files = append(files, file)
	}
	importPath := path.Join(moduleOf(t), dir)
	checker := types.Config{Importer: known, Error: func(error) {}} // of what is empty
	s.types, _ = checker.Check(importPath, s.set, files, &types.Info{Uses: s.uses})
	known[importPath] = s
	return s
}

// references returns which files of its package each file refers to, and by
// which names: those of the package, and those of methods.
func (s *source) references() map[string]map[string][]string {
	references := make(map[string]map[string][]string)
	for name, file := range s.files {
		refers := make(map[string][]string)
		references[name] = refers
		ast.Inspect(file, func(node ast.Node) bool {
			id, ok := node.(*ast.Ident)
			if !ok {
				return true
			}
			object := s.uses[id]
			if object == nil || object.Pkg() != s.types || object.Parent() != s.types.Scope() && !isMethod(object) {
				return true
			}
			other := filepath.Base(s.set.Position(object.Pos()).Filename)
			if other != name && !slices.Contains(refers[other], id.Name) {
				refers[other] = append(refers[other], id.Name)
			}
			return true
		})
	}
	return references
}

func isMethod(object types.Object) bool {
	function, ok := object.(*types.Func)
	return ok && function.Signature().Recv() != nil
}

// functions returns the functions that a file declares; methods as Type.Name.
func (s *source) functions(file string) (names []string) {
	if s.files[file] == nil {
		return nil
	}
	for _, declaration := range s.files[file].Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := function.Name.Name
		if function.Recv != nil {
			receiver := function.Recv.List[0].Type
			if pointer, ok := receiver.(*ast.StarExpr); ok {
				receiver = pointer.X
			}
			name = fmt.Sprint(receiver) + "." + name
		}
		names = append(names, name)
	}
	return names
}
