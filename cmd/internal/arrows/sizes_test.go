package arrows

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
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

// Files and functions are small, because concepts are.
func TestSizes(t *testing.T) {
	const root = "../../.."
	list := exec.Command("git", "ls-files", "-co", "--exclude-standard", "*.go")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Skipf("not a git worktree: %v", err)
	}
	for name := range strings.Lines(string(out)) {
		if name = strings.TrimSpace(name); strings.HasSuffix(name, ".pb.go") {
			continue
		}
		source, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue // removed, and not yet committed
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
