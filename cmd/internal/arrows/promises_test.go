package arrows

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// promised matches the chapters of pages in deploy/docs that a test holds: "// Promise: page.md#anchor, page.md#b".
	promised = regexp.MustCompile(`(?m)^// Promise: ([a-z-]+\.md#.*)$`)
	// heldBy matches the test below such a comment.
	heldBy = regexp.MustCompile(`(?m)^func (\w+)\(`)
	// formatting matches what an anchor leaves out of a heading.
	formatting = regexp.MustCompile(`[^\w -]`)
)

// unpromised are the chapters of the security pages that tell operators what to do, or what is not prevented.
const unpromised = "testdata/chapters-without-promises.txt"

// Each promise that a test names is a chapter of a page. Each chapter of a security page is held by a test. With -v the
// test lists the chapters with their tests.
func TestPromisesAreChapters(t *testing.T) {
	tests := map[string][]string{} // by chapter
	for name, source := range worktree(t, "../../..", "*_test.go") {
		for _, at := range promised.FindAllSubmatchIndex(source, -1) {
			test := ""
			if found := heldBy.FindSubmatch(source[at[1]:]); found != nil {
				test = filepath.Dir(name) + " " + string(found[1])
			}
			for chapter := range strings.SplitSeq(string(source[at[2]:at[3]]), ", ") {
				tests[chapter] = append(tests[chapter], test)
			}
		}
	}
	pages, err := filepath.Glob("../../../deploy/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	without, err := os.ReadFile(unpromised)
	if err != nil {
		t.Fatal(err)
	}
	free := strings.Fields(string(without))
	chapters := map[string]bool{}
	for _, page := range pages {
		for i, chapter := range chaptersOf(t, page) {
			chapters[chapter] = true
			if i > 0 && strings.HasPrefix(chapter, "security-") && tests[chapter] == nil && !slices.Contains(free, chapter) {
				t.Errorf("no test has the comment // Promise: %s", chapter)
			}
		}
	}
	for _, chapter := range slices.Sorted(maps.Keys(tests)) {
		if !chapters[chapter] {
			t.Errorf("%s of %q is no chapter of a page in deploy/docs", chapter, tests[chapter])
		}
		t.Logf("%s: %s", chapter, strings.Join(tests[chapter], ", "))
	}
	for _, chapter := range free {
		if !chapters[chapter] || tests[chapter] != nil {
			t.Errorf("%s: %s is no chapter, or is held by a test", unpromised, chapter)
		}
	}
}

// chaptersOf returns the title and the chapters of a page, as page.md#anchor.
func chaptersOf(t *testing.T, page string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	fenced := false
	for line := range strings.SplitSeq(string(text), "\n") {
		fenced = fenced != strings.HasPrefix(line, "```")
		if heading := strings.TrimLeft(line, "#"); !fenced && strings.HasPrefix(line, "#") && strings.HasPrefix(heading, " ") {
			anchor := strings.ReplaceAll(formatting.ReplaceAllString(strings.ToLower(heading[1:]), ""), " ", "-")
			all = append(all, filepath.Base(page)+"#"+anchor)
		}
	}
	return all
}
