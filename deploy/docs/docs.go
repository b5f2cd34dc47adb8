// Package docs has the pages for operators, so that tests apply, and do, what these say.
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
	return block(t, page, after, "yaml")
}

// Commands are the first ones in a page after a text, such as a heading, one in a line, without comments. The test ends where there are none.
func Commands(t testing.TB, page, after string) (all []string) {
	t.Helper()
	for line := range strings.Lines(strings.ReplaceAll(block(t, page, after, "text"), "\\\n", " ")) {
		command, _, _ := strings.Cut(line, " # ")
		all = append(all, strings.Join(strings.Fields(command), " "))
	}
	return all
}

// block is the first one of a language in a page after a text.
func block(t testing.TB, page, after, language string) string {
	t.Helper()
	text, err := pages.ReadFile(page)
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
