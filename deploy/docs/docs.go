// Package docs has the pages for operators, as they were compiled in: navarchd serves them, and tests apply, and do, what these say.
//
// Owns: nothing.  Reads: the pages.  Never: imports package testing, which navarchd would have then.
package docs

import (
	"embed"
	"strings"
)

// Pages has each page by its file name.
//
//go:embed *.md
var Pages embed.FS

// T is the part of testing.TB that a test's reading of a page needs.
type T interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// YAML is the first YAML in a page (kubernetes.md) after a text, such as a heading. The test ends where there is none.
func YAML(t T, page, after string) string {
	t.Helper()
	return block(t, page, after, "yaml")
}

// Commands are the first ones in a page after a text, such as a heading, one in a line, without comments. The test ends where there are none.
func Commands(t T, page, after string) (all []string) {
	t.Helper()
	for line := range strings.Lines(strings.ReplaceAll(block(t, page, after, "text"), "\\\n", " ")) {
		command, _, _ := strings.Cut(line, " # ")
		all = append(all, strings.Join(strings.Fields(command), " "))
	}
	return all
}

// block is the first one of a language in a page after a text.
func block(t T, page, after, language string) string {
	t.Helper()
	text, err := Pages.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), after)
	_, rest, _ = strings.Cut(rest, "```"+language+"\n")
	rest, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatalf("%s has no %s after %q", page, language, after)
	}
	return rest
}
