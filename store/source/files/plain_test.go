package files

import (
	"bytes"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// sameAsLibrary converts a document with plainJSON, and reports whether it did. The result must equal the library's.
func sameAsLibrary(t testing.TB, text []byte) bool {
	t.Helper()
	got, is := plainJSON(text)
	if !is {
		return false
	}
	if want, err := yaml.YAMLToJSONStrict(text); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%q is\n%s, and by the library\n%s, %v", text, got, want, err)
	}
	return true
}

// Documents as people write them are converted without the library.
func TestPlainDocuments(t *testing.T) {
	for _, text := range []string{
		"a: b", "a:\n  b: c\n  a: d # e\n\n# f\ng: h i\n", "a:\n- b\n- c: d\n  e: f\n-\n  g: h\n- - 1\n  - 2\n", "a:\n  - b: c\n", "a:\nb: null\n",
		"spec: {selector: {app: s1}, ports: [{name: http, port: 80}, {name: grpc, port: 81}], none: [], no-one: {}}", "{a: b}",
		"a: 'x: #y'\n\"b c\": \"<&>\"\n", "a: 10s\nb: 100Mi\nc: 1.2.3.4\nd: http://a/b?c=d\ne: -5\nf: true\n", "a: v1\n/b.c/d: e\n", "  a: b\n  c: d\n",
		"a: [x, 'y', \"*\", 1, true, null, a:80]", "a: b#c\n", "a: y z\n", "a:   \n   b: c   \n", "b: 1\na: 2\nc:\n  f: 3\n  e: 4\n",
	} {
		if !sameAsLibrary(t, []byte(text)) {
			t.Errorf("%q needs the library", text)
		}
	}
}

// Every other document is left to the library.
func TestOthersAreLeftToTheLibrary(t *testing.T) {
	for _, text := range []string{
		"", "a", "- a", "# a", "a: &b c", "a: *b", "a: !!str b", "a: |\n  b\n", "a: >\n  b\n", "a: b\n  c\n", "a: {b: c,\n d: e}", "a: 'b\n  c'", "a: 'b''c'",
		"a: \"\\n\"", "a: \u00e4", "a:\tb", "a: b\r\n", "a: on", "a: Yes", "on: a", "1: a", "a: 0x10", "a: 010", "a: 1.5", "a: 1_0", "a: 1e3", "a: ~", "a: .inf",
		"a: -0", "a: 2001-01-01", "a: 9999999999999999999", "a: b: c", "a: b\na: c", "{a: b, a: c}", "? a", "a: b\n c: d", "a:\n    b: c\n  d: e", "a: - b", "a: [b: c]",
		"a: {b}", "a: [b,]", "a: [b", "a: {b: c}}", "a: [b] c", "a: \"b\" c", "a: @b", "a: %b", "a: `b", "<<: a", "a: {b: c}: d", "a: [b, ?c]", "%a b",
		strings.Repeat("a: {", 200) + strings.Repeat("}", 200), strings.Repeat("a", 2000) + ": b",
	} {
		if tree, is := plainJSON([]byte(text)); is {
			t.Errorf("%q is %s", text, tree)
		}
	}
}

// Each file of this repository is converted as by the library.
func TestPlainFiles(t *testing.T) {
	plain, all := 0, 0
	err := filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		if ext := filepath.Ext(path); err != nil || d.IsDir() || ext != ".yaml" && ext != ".txtar" {
			return err
		}
		data, err := os.ReadFile(path)
		for _, one := range splitYAML(data) {
			if all++; sameAsLibrary(t, one.data) {
				plain++
			}
		}
		return err
	})
	if err != nil || plain < 200 {
		t.Errorf("%d of %d documents are plain, %v", plain, all, err)
	}
}

// Random texts of pieces of YAML are converted as by the library, or left to it.
func TestPlainRandomly(t *testing.T) {
	pieces := []string{"a", "b", "key", "- ", "-", ": ", ":", "\n", "\n  ", "\n    ", "\n", "  ", " ", "{", "}", "[", "]", ", ", ",", "'", "\"", " #", "#", "0", "12", "-7",
		"0x1", "1.5", "1.2.3", "true", "on", "null", "~", "~x", "y", "2001-01-01", "10s", "?", "? ", "&x ", "*x", "!", "|", ">", "%", "@", ".", "/", "$", "(", "<",
		"a: ", "b: ", "c: ", "a:\n  ", "- a: ", "{a: ", "[a, ", "b: c\n", "c: d\n", "'q'", "\"r\"", "1e3", "0b1", "1_0", "+1", "-.5", "=", "a:b", "''", "---", "..."}
	random, plain := rand.New(rand.NewPCG(1, 2)), 0
	n := 300_000
	if testing.Short() {
		n /= 10
	}
	for range n {
		var text []byte
		if random.IntN(3) > 0 {
			text = append(text, "a: "...)
		}
		for range 1 + random.IntN(12) {
			text = append(text, pieces[random.IntN(len(pieces))]...)
		}
		if sameAsLibrary(t, text) {
			plain++
		}
	}
	if plain < n/50 {
		t.Errorf("only %d of %d texts are plain", plain, n)
	}
}

func FuzzPlain(f *testing.F) {
	f.Add([]byte("a:\n- b: {c: [d, 1]}\n  e: 'f'\n"))
	f.Fuzz(func(t *testing.T, text []byte) { sameAsLibrary(t, text) })
}
