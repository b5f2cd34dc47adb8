package arrows

import (
	"fmt"
	"go/scanner"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// private are words that only this project understood, each with its replacement: standard terms of Envoy, Kubernetes,
// etcd and SPIFFE, and one meaning for each word. They are refused, in these forms, in identifiers, comments, names of
// files, documents, and output of programs (string literals outside of tests, so also metrics and flags).
var private = map[string]string{
	"verdicts?":                  "decision, outcome; of a resource: quarantine",
	"witness(?:es)?":             "reporter, marker",
	"testimon(?:y|ies)":          "report",
	"accused":                    "reported resource",
	"guilty":                     "quarantined",
	"wards?":                     "namespace's secrets",
	"worldly":                    "sotw",
	"ghosts?":                    "unrecorded resource",
	"greet(?:s|ed|ing|ings|er)?": "initial response, banner",
	"owed":                       "due",
	"facets?":                    "variant, proxy inputs",
	"residues?":                  "per-proxy overlay",
	"siblings?":                  "clone",
	"kin":                        "cloned from",
	"flip(?:s|ped|ping)?":        "change of readiness, endpoint fast path",
	"drafts?":                    "shadow copy, template",
	"strays?":                    "out-of-selector endpoint",
	"sulk(?:s|ed|ing)?":          "back-off",
	"loud(?:er|est)?":            "noisy",
	"morsels?":                   "next shard",
	"eaters?":                    "receivers",
	"hungry":                     "below threshold",
	"doors?":                     "admission, authorizer",
	"borrowers?":                 "peer-issued certificate",
	"loans?":                     "peer-issued certificate",
	"news":                       "update",
	"farewells?":                 "shutdown",
	"herds?":                     "child processes",
	"legs?":                      "upstream connection",
	"floors?":                    "minimum; minimum revision",
	"anew":                       "again; reencrypt",
	"untell|untold":              "withdraw; not notified",
	"wish(?:es)?":                "secret subscriptions",
	"trials?":                    "tally of refusals; rollout",
	"births?|born|unborn":        "clone, cloned from",
	"state-of-world|worldstate":  "sotw",
}

// inNames are words that are refused in identifiers of Go only, each with the word that expresses its meaning there. In
// prose they are permitted.
var inNames = map[string]string{
	"tells?|told|telling": "emit, notify, report, say",
	"bare":                "placeholder; without what it is without",
	"odds?":               "per-name override; what is unusual about it",
	"feeds?|fed|feeding":  "fill, parse",
}

// ordinary maps words to the files (or ends of their paths) in which they have a standard meaning, and are permitted.
var ordinary = map[string][]string{
	"draft":   {"loadtest/report/schema_test.go"},                                            // json-schema.org/draft
	"verdict": {"deploy/redirect/kernel/encode.go"},                                          // expr.Verdict of nftables
	"floor":   {"loadtest/mesh/mesh.go", "loadtest/report/table.go", "shard/place/drain.go"}, // math.Floor
}

// wordsOf divides a text into words, also those of identifiers (camelCase, under_scores, dashes), in lower case.
func wordsOf(text string) (words []string) {
	var word []rune
	flush := func() {
		if len(word) > 0 {
			words = append(words, strings.ToLower(string(word)))
		}
		word = word[:0]
	}
	runes := []rune(text)
	for i, r := range runes {
		upper := unicode.IsUpper(r) && i > 0 && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]) && unicode.IsUpper(runes[i-1]))
		if !unicode.IsLetter(r) || upper {
			flush()
		}
		if unicode.IsLetter(r) {
			word = append(word, r)
		}
	}
	flush()
	return words
}

// spoken calls say with each of our own texts in a Go file, and its line: identifiers, comments, and for programs
// string literals.
func spoken(name string, source []byte, say func(line int, text string, identifier bool)) {
	files := token.NewFileSet()
	file := files.AddFile(name, -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, scanner.ScanComments)
	for {
		at, kind, text := s.Scan()
		switch {
		case kind == token.EOF:
			return
		case kind == token.IDENT, kind == token.COMMENT, kind == token.STRING && !strings.HasSuffix(name, "_test.go"):
			say(file.Line(at), text, kind == token.IDENT)
		}
	}
}

var refusedNames = anyOf(inNames)

// anyOf returns an expression that matches every key of a table.
func anyOf(words map[string]string) *regexp.Regexp {
	return regexp.MustCompile("^(?:" + strings.Join(slices.Sorted(maps.Keys(words)), "|") + ")$")
}

// privateWords returns the refused words of one file, each with its line.
func privateWords(refused *regexp.Regexp, name string, source []byte) (found []string) {
	say := func(line int, text string, identifier bool) {
		for _, word := range wordsOf(text) {
			if (refused.MatchString(word) || identifier && refusedNames.MatchString(word)) && !slices.Contains(ordinary[word], name) {
				found = append(found, fmt.Sprintf("%s:%d: %q", name, line, word))
			}
		}
	}
	say(0, strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)), false)
	if filepath.Ext(name) == ".go" {
		spoken(name, source, say)
		return found
	}
	for i, line := range strings.Split(string(source), "\n") {
		if filepath.Ext(name) == ".md" || strings.HasPrefix(line, "#") {
			say(i+1, line, false)
		}
	}
	return found
}

// No identifier, comment, file name, document or text of a program contains a word of the table private.
func TestPlainWords(t *testing.T) {
	refused := anyOf(private)
	const root = "../../.."
	read := 0
	for name, source := range worktree(t, root, "*.go", "*.md", "*.txtar", "*.yaml", "*.proto") {
		if strings.HasSuffix(name, ".pb.go") || name == "cmd/internal/arrows/words_test.go" {
			continue
		}
		read++
		for _, found := range privateWords(refused, name, source) {
			t.Error(found)
		}
	}
	if read < 1000 {
		t.Errorf("%d files were read only", read)
	}
	for source, want := range map[string]string{
		"package p\n// The verdict is in.":                     `x.go:2: "verdict"`,
		"package p\nvar endpointFlip int":                      `x.go:2: "flip"`,
		"package p\nconst m = `navarch_farewells_total`":       `x.go:2: "farewells"`,
		"package p\nvar followed, debugHosts = doorway(), 'd'": "",
		"package p\n// It is told.\nvar toldAt int":            `x.go:3: "told"`,
	} {
		if got := strings.Join(privateWords(refused, "x.go", []byte(source)), " "); got != want {
			t.Errorf("%q: %s, want %s", source, got, want)
		}
	}
	if got := strings.Join(privateWords(refused, "a/ghost_test.go", []byte("package p\nvar s = `verdict`")), " "); got != `a/ghost_test.go:0: "ghost"` {
		t.Errorf("the name of a file: %s", got)
	}
}
