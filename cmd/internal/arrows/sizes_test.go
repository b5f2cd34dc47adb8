package arrows

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The most lines of a file, of a function, and of a test's function, which is often a table.
const (
	mostOfFile     = 400
	mostOfFunction = 60
	mostOfTest     = 100
)

// oversized lists what of a Go file is longer than it may be.
func oversized(name string, source []byte) (found []string) {
	if n := bytes.Count(source, []byte("\n")); n > mostOfFile {
		found = append(found, fmt.Sprintf("%s has %d lines, at most %d: is it two concepts?", name, n, mostOfFile))
	}
	most := mostOfFunction
	if strings.HasSuffix(name, "_test.go") {
		most = mostOfTest
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		return append(found, err.Error())
	}
	for _, d := range file.Decls {
		if f, is := d.(*ast.FuncDecl); is {
			if n := files.Position(f.End()).Line - files.Position(f.Pos()).Line + 1; n > most {
				found = append(found, fmt.Sprintf("%s: %s has %d lines, at most %d", files.Position(f.Pos()), f.Name.Name, n, most))
			}
		}
	}
	return found
}

// worktree yields the files of this worktree whose names match a git pattern (no pattern: all), including new ones,
// with their contents. It skips the test outside of a worktree.
func worktree(t *testing.T, root string, patterns ...string) iter.Seq2[string, []byte] {
	t.Helper()
	list := exec.Command("git", append([]string{"ls-files", "-co", "--exclude-standard"}, patterns...)...)
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Skipf("not a git worktree: %v", err)
	}
	return func(yield func(string, []byte) bool) {
		for name := range strings.Lines(string(out)) {
			name = strings.TrimSpace(name)
			source, err := os.ReadFile(filepath.Join(root, name))
			if err == nil && !yield(name, source) { // an error: removed, and not yet committed
				return
			}
		}
	}
}

// Files and functions are below the size limits.
func TestSizes(t *testing.T) {
	const root = "../../.."
	for name, source := range worktree(t, root, "*.go") {
		if strings.HasSuffix(name, ".pb.go") {
			continue
		}
		for _, one := range oversized(name, source) {
			t.Error(one)
		}
	}
	long := "package p\nfunc f() {\n" + strings.Repeat("\t_ = 0\n", mostOfFunction) + "}\n"
	if len(oversized("f.go", []byte(long))) != 1 || len(oversized("f_test.go", []byte(long))) != 0 || len(oversized("f.go", []byte("package p\n"+strings.Repeat("\n", mostOfFile)))) != 1 {
		t.Error("what is too long is not found")
	}
}

// topLevel has the names that the project permits at the top of the tree, beside dotfiles.
var topLevel = strings.Fields("cmd shard push store ca loadtest deploy go.mod go.sum Makefile ARCHITECTURE.md README.md LICENSE")

// The top of the tree has no other files or folders.
func TestTopLevel(t *testing.T) {
	for name := range worktree(t, "../../..") {
		top, _, _ := strings.Cut(name, "/")
		if !strings.HasPrefix(top, ".") && !slices.Contains(topLevel, top) {
			t.Errorf("%s is at the top of the tree: everything nests in %v", name, topLevel)
		}
	}
}
