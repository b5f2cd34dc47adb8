package arrows

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// named finds packages and tests in the words of a page, as they stand there: `push/serve` `TestOne`, `TestOther`.
var named = regexp.MustCompile("`([a-z0-9]+(?:/[a-z0-9-]+)+)`|`(Test[A-Za-z0-9]+)`")

// Every test that the pages of promises and of security name is there, in the package that stands before it; and every
// "cannot" of the security page names one.
func TestPagesNameTestsThatExist(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	tests := map[string]map[string]bool{}
	for _, page := range []string{"ARCHITECTURE.md", "cmd/internal/e2e/PROMISES.md", "deploy/docs/security.md", "deploy/docs/operations.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		cannot := false
		for i, line := range strings.Split(string(text), "\n") {
			cannot = strings.HasPrefix(line, "| cannot |") || cannot && strings.HasPrefix(line, "|")
			if cannot && !strings.Contains(line, "`Test") && !strings.HasPrefix(line, "| cannot |") && !strings.HasPrefix(line, "|---") {
				t.Errorf("%s:%d: a \"cannot\" without a test", page, i+1)
			}
			folder := ""
			for _, found := range named.FindAllStringSubmatch(line, -1) {
				if found[1] != "" {
					folder = found[1]
					continue
				}
				if folder == "" {
					continue // a test is spoken of, and its package stands elsewhere
				}
				if tests[folder] == nil {
					tests[folder] = testsOf(t, filepath.Join(root, folder))
				}
				if !tests[folder][found[2]] {
					t.Errorf("%s:%d: %s has no %s", page, i+1, folder, found[2])
				}
			}
		}
	}
}

// testsOf are the names of the tests in a folder.
func testsOf(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				all[f.Name.Name] = true
			}
		}
	}
	return all
}
