// Package docs has the pages for operators, so that tests apply what these say.
//
// Owns: nothing.  Reads: the pages, as they were compiled in.  Never: is part of a program.
package docs

import (
	"embed"
	"strings"
	"testing"
)

//go:embed *.md
var pages embed.FS

// YAML is the first YAML in a page (kubernetes.md) after a text, such as a heading. The test ends where there is none.
func YAML(t testing.TB, page, after string) string {
	t.Helper()
	text, err := pages.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), after)
	_, rest, _ = strings.Cut(rest, "```yaml\n")
	rest, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatalf("%s has no YAML after %q", page, after)
	}
	return rest
}
