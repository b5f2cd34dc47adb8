package arrows

import (
	"bytes"
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// The most columns of a line; a tab is one column.
const (
	widestComment = 120 // of pages as well
	widestCode    = 140
)

// recordedSentences contains the number of lines that each top folder may still have of each habit: "folder/habit
// number".
const recordedSentences = "testdata/sentences.txt"

var update = flag.Bool("update", false, "lower the numbers in "+recordedSentences)

// habits match most of the sentences that have to be read twice: a clause instead of a name, a negation for a positive
// fact, a reference to a tracker.
var habits = regexp.MustCompile(strings.Join([]string{
	`(?:^|// |[.:;|] )(?:What|Of what|Who|Whoever|Those that|That which)\b`,
	`\b(?:is|are|has|have) none\b`,
	`\banother than\b`,
	`\bnobody's\b`,
	`\b(?:issue|item) [0-9]+\b`,
	`^\s*// [A-Za-z_.]+ (?:is|are) (?:how|what|whether|who|where|that)\b`,
}, "|"))

// tableRow matches a line of a test's table: an element of a composite literal that begins with its own brace or
// string.
var tableRow = regexp.MustCompile(`^\s*[{"]`)

// twice reports each line of a file that matches a habit, or is wider than it may be. The key is folder/habit. Strings
// of tests are test data: their columns do not count.
func twice(name string, source []byte, report func(key string, line int)) {
	folder, _, nested := strings.Cut(name, "/")
	if !nested {
		folder = "."
	}
	test := strings.HasSuffix(name, "_test.go")
	kind := map[bool]string{false: "/sentences", true: "/test-sentences"}[test]
	lines := strings.Split(string(source), "\n")
	if filepath.Ext(name) == ".md" {
		fenced := false
		for i, line := range lines {
			fenced = fenced != strings.HasPrefix(strings.TrimSpace(line), "```")
			if habits.MatchString(line) {
				report(folder+"/page-sentences", i+1)
			}
			table := strings.HasPrefix(strings.TrimSpace(line), "|")
			if !fenced && !table && !strings.Contains(line, "://") && utf8.RuneCountInString(line) > widestComment {
				report(folder+"/wide-pages", i+1)
			}
		}
		return
	}
	const comment, raw = 1, 2
	state, data := make([]int, len(lines)+1), make([]int, len(lines)+1)
	files := token.NewFileSet()
	file := files.AddFile(name, -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, scanner.ScanComments)
	for at, tok, text := s.Scan(); tok != token.EOF; at, tok, text = s.Scan() {
		first := file.Line(at)
		if test && tok == token.STRING && !strings.Contains(text, "\n") {
			data[first] += utf8.RuneCountInString(text)
		}
		if tok != token.COMMENT && (tok != token.STRING || test) && !strings.HasPrefix(text, "`") {
			continue
		}
		for i, line := range strings.Split(text, "\n") {
			if tok == token.COMMENT && strings.HasPrefix(strings.TrimSpace(lines[first+i-1]), line) {
				state[first+i] = comment
			}
			if text[0] == '`' && strings.Contains(text, "\n") {
				state[first+i] = raw
			}
			if (tok == token.COMMENT || !test) && habits.MatchString(strings.Trim(line, "\"`")) {
				report(folder+kind, first+i)
			}
		}
	}
	for i, line := range lines {
		switch width := utf8.RuneCountInString(line) - data[i+1]; {
		case state[i+1] == raw, strings.Contains(line, "://"), test && tableRow.MatchString(line):
		case state[i+1] == comment && width > widestComment:
			report(folder+"/wide-comments", i+1)
		case state[i+1] != comment && width > widestCode:
			report(folder+"/wide-code", i+1)
		}
	}
}

// Sentences that have to be read twice, and lines that are too wide, may only become fewer. The test also fails while
// fewer are left than recorded; with -update it records the lower numbers. With -v it lists the lines.
func TestSentences(t *testing.T) {
	found, where := map[string]int{}, map[string][]string{}
	for name, source := range worktree(t, "../../..", "*.go", "*.md") {
		if strings.HasSuffix(name, ".pb.go") || bytes.HasPrefix(source, []byte("// Code generated")) || name == "cmd/internal/arrows/sentences_test.go" {
			continue
		}
		twice(name, source, func(key string, line int) {
			found[key]++
			where[key] = append(where[key], fmt.Sprintf("%s:%d", name, line))
		})
	}
	stored, err := os.ReadFile(recordedSentences)
	if err != nil {
		t.Fatal(err)
	}
	recorded := map[string]int{}
	for line := range strings.Lines(string(stored)) {
		key, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if recorded[key], err = strconv.Atoi(number); err != nil {
			t.Fatalf("%s: %q: %v", recordedSentences, line, err)
		}
	}
	keys := maps.Clone(found)
	maps.Copy(keys, recorded)
	var lowered strings.Builder
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if testing.Verbose() {
			t.Logf("%s: %s", key, strings.Join(where[key], " "))
		}
		switch {
		case found[key] > recorded[key]:
			t.Errorf("%s: %d lines, at most %d: -v lists them, and every line is read once if it names its subject and says what holds", key, found[key], recorded[key])
		case found[key] < recorded[key] && !*update:
			t.Errorf("%s: %d lines are left, %d are recorded: record %d in %s (-update does)", key, found[key], recorded[key], found[key], recordedSentences)
		}
		if n := min(found[key], recorded[key]); n > 0 {
			fmt.Fprintln(&lowered, key, n)
		}
	}
	if *update {
		if err := os.WriteFile(recordedSentences, []byte(lowered.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Each pattern and each width is found in examples, and the exceptions are not.
func TestSentencesAreFound(t *testing.T) {
	long := strings.Repeat("x", widestCode)
	for _, c := range []struct{ name, source, want string }{
		{"ca/x.go", "package p\n\n// What is no file is skipped.\n", "ca/sentences:3"},
		{"ca/x.go", "package p\n\n// Plain is how proxies see the hosts.\n// Done; issue 12.\n", "ca/sentences:3 ca/sentences:4"},
		{"ca/x.go", "package p\n\nvar s = \"a: What is none\"\n", "ca/sentences:3"},
		{"ca/x_test.go", "package p\n\nvar s = \"a: What is none\" // nobody's\n", "ca/test-sentences:3"},
		{"README.md", "A row\n| has none |\n", "./page-sentences:2"},
		{"ca/x.go", "package p\n\n// " + long + "\n", "ca/wide-comments:3"},
		{"ca/x.go", "package p\n\nvar s = \"" + long + "\"\n", "ca/wide-code:3"},
		{"ca/x.go", "package p\n\nvar s = `\n" + long + "\n`\n// https://" + long + "\n", ""},
		{"ca/x_test.go", "package p\n\nvar s = []string{\n\"" + long + "\",\n}\nvar t = \"" + long + "\"\nvar " + long + " = 1\n", "ca/wide-code:7"},
		{"deploy/x.md", long + "\n| " + long + "\n```\n" + long + "\n```\nhttps://" + long, "deploy/wide-pages:1"},
		{"ca/x.go", "package p\n\n// It is for somebody. A Host is what it says: whatever.\n", ""},
	} {
		var got []string
		twice(c.name, []byte(c.source), func(key string, line int) { got = append(got, fmt.Sprintf("%s:%d", key, line)) })
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q: %v, want %s", c.source, got, c.want)
		}
	}
}
