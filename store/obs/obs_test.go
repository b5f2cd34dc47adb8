package obs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// Every metric, and every key of a log line, is used by some package: a metric that is never set reports that all is
// well.
func TestEveryMetricIsUsed(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "obs.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	unused := map[string]bool{}
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok == token.IMPORT {
			continue
		}
		for _, spec := range group.Specs {
			if values, ok := spec.(*ast.ValueSpec); ok && values.Names[0].IsExported() {
				unused[values.Names[0].Name] = true
			}
		}
	}
	delete(unused, "Info") // set here, once
	delete(unused, "Build")
	if len(unused) < 30 {
		t.Fatalf("only %d names in obs.go", len(unused))
	}
	for _, dir := range []string{"../../ca", "../../cmd", "../../push", "../../shard", "../../store"} {
		if err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return nil // the compiler reports it better
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if use, ok := n.(*ast.SelectorExpr); ok {
					if pkg, ok := use.X.(*ast.Ident); ok && pkg.Name == "obs" {
						delete(unused, use.Sel.Name)
					}
				}
				return true
			})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for name := range unused {
		t.Errorf("nobody uses obs.%s", name)
	}
}
