// Package docs embeds the pages for operators: navarchd serves them, and tests run their commands and apply their YAML.
//
// Owns: nothing.  Reads: the pages.  Never: imports package testing, which would be linked into navarchd.
package docs

import (
	"embed"
	"strings"
)

// Pages contains each page by its file name.
//
//go:embed *.md
var Pages embed.FS

// T is the part of testing.TB that YAML and Commands use.
type T interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// YAML returns the first YAML block of a page (for example kubernetes.md) after a text, such as a heading. It fails the
// test if there is no such block.
func YAML(t T, page, after string) string {
	t.Helper()
	return block(t, page, after, "yaml")
}

// Commands returns the commands of the first text block of a page after a text, such as a heading: one per line,
// without comments. It fails the test if there is no such block.
func Commands(t T, page, after string) (all []string) {
	t.Helper()
	for line := range strings.Lines(strings.ReplaceAll(block(t, page, after, "text"), "\\\n", " ")) {
		command, _, _ := strings.Cut(line, " # ")
		all = append(all, strings.Join(strings.Fields(command), " "))
	}
	return all
}

// block returns the first block of a language in a page after a text.
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
