package arrows

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// saysErrors matches a comment that describes errors. A method that implements an interface has the errors that the
// interface describes.
var saysErrors = regexp.MustCompile(`(?i)\berr|error|fail|refus|wrong|invalid|denied|cannot|\bnil\b|says why|status\.|gRPC status|implements`)

// silentErrors returns the exported functions, and methods of exported types, of a file that return an error which
// their comment does not describe.
func silentErrors(t *testing.T, name string, source []byte) (silent []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		f, is := d.(*ast.FuncDecl)
		if !is || !f.Name.IsExported() || f.Name.Name == "Unwrap" || saysErrors.MatchString(f.Doc.Text()) || f.Type.Results == nil {
			continue
		}
		if f.Recv != nil && !ast.IsExported(strings.TrimLeft(string(source[f.Recv.List[0].Type.Pos()-1:f.Recv.List[0].Type.End()-1]), "*")) {
			continue
		}
		for _, result := range f.Type.Results.List {
			if of, is := result.Type.(*ast.Ident); is && of.Name == "error" {
				silent = append(silent, name+": "+f.Name.Name)
			}
		}
	}
	return silent
}

// Comments of exported functions describe the returned errors and their causes.
func TestErrorsAreSaid(t *testing.T) {
	for name, source := range worktree(t, "../../..", "*.go") {
		if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".pb.go") {
			continue
		}
		for _, silent := range silentErrors(t, name, source) {
			t.Error(silent)
		}
	}
	for source, want := range map[string]string{
		"// F does it.\nfunc F() error { return nil }":                             "x.go: F",
		"// F does it. The error is the context's.\nfunc F() error { return nil }": "",
		"// f does it.\nfunc f() error { return nil }":                             "",
		"// F does it.\nfunc (g *G[K]) F() (int, error) { return 0, nil }":         "x.go: F",
		"// F does it.\nfunc (g *h) F() error { return nil }":                      "",
		"// F implements G.\nfunc F() error { return nil }":                        "",
	} {
		if got := strings.Join(silentErrors(t, "x.go", []byte("package p\n"+source)), " "); got != want {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}
