package scene

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"navarch.io/navarch/store/normal/fields"
	"navarch.io/navarch/store/problem"
)

// notShown counts the fields and names that the code acts on and that no scene strikes yet. The number only falls.
const notShown = 19

// Every field that the table of fields says is acted on is struck: it is taken out of the objects of its scene, and
// what the scene's proxies are sent, or what else its objects are for (output), must be another. A field without effect
// on sidecars, where a scene has it, must leave all as it is. With -update the scenes of the table are written: the
// first, by the number of its objects, in which a field is struck.
func TestFieldsAreStruck(t *testing.T) {
	var mu sync.Mutex
	found, values := map[*fields.Row][]*struckScene{}, map[enumValue]bool{}
	t.Run("scenes", func(t *testing.T) {
		for _, name := range sceneNames(t) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := loadStruck(t, name)
				if s == nil {
					return
				}
				mu.Lock()
				maps.Copy(values, s.values)
				mu.Unlock()
				for row := range s.rows {
					if !*update && row.Mark != fields.None && row.Scene != name {
						continue
					}
					changes := s.strike(t, row)
					if row.Mark == fields.None && changes {
						t.Errorf("%v is marked as without effect, and changes what the scene's proxies are sent", row)
					}
					if row.Mark != fields.Acted || !changes {
						continue
					}
					mu.Lock()
					found[row] = append(found[row], s)
					mu.Unlock()
				}
			})
		}
	})
	if *update {
		writeScenes(t, found)
		return
	}
	count := 0
	for row := range fields.All() {
		switch {
		case row.Mark != fields.Acted:
		case row.Scene == "" && row.Test == "":
			count++
		case row.Scene != "" && len(found[row]) == 0:
			t.Errorf("%v is marked as acted on, and scene %s is the same without it", row, row.Scene)
		}
	}
	everyValue(t, values)
	if count != notShown {
		t.Errorf("%d fields are acted on and not shown by a scene, want %d: a scene for each, and a smaller number", count, notShown)
	}
}

func sceneNames(t *testing.T) (names []string) {
	all, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	for _, path := range all {
		names = append(names, strings.TrimSuffix(filepath.Base(path), ".txtar"))
	}
	return names
}

// strike takes a field out of all objects, or nodes, that have it, and says whether the output is another. Where an
// object is refused without it, which shows nothing, the field is given another value instead; of one that holds
// messages the fields of these are struck. A value of an enum is also given each of the other values: without it the
// field has the default, which may come to the same.
func (s *struckScene) strike(t *testing.T, row *fields.Row) bool {
	t.Helper()
	by := &striker{struck: func(of *fields.Row) bool { return of == row }}
	changed, refused := s.compare(t, by)
	others := 0
	if refused != "" {
		others = 1
	}
	if row.Value != "" && row.Mark == fields.Acted {
		others = by.values - 1
	}
	for by.other = 1; by.other <= others && (refused != "" || !changed); by.other++ {
		var again string
		if changed, again = s.compare(t, by); by.given && again != "" {
			t.Logf("%v: refused without it (%s), and with another value (%s)", row, refused, again)
			changed = false
		} else {
			refused = ""
		}
	}
	return changed
}

// compare says whether the output is another after a strike, and why an object is refused then that was not before.
func (s *struckScene) compare(t *testing.T, by *striker) (changed bool, refused string) {
	t.Helper()
	out, problems, err := s.output(s.each(t, by))
	if err != nil {
		return true, "" // a node that nobody takes
	}
	for _, p := range problems {
		if p.Severity == problem.Error && !slices.Contains(s.problems, p) {
			refused = p.String()
		}
	}
	return !bytes.Equal(out, s.baseline), refused
}

// actedLine is a line of a table that names a scene, or none.
var actedLine = regexp.MustCompile(`^(\S+(?: in \S+)?) acted \S+\n$`)

// writeScenes writes the scenes into the tables.
func writeScenes(t *testing.T, found map[*fields.Row][]*struckScene) {
	byLine := map[string]string{}
	for row, scenes := range found {
		slices.SortFunc(scenes, func(a, b *struckScene) int {
			return cmp.Or(cmp.Compare(len(a.objects), len(b.objects)), cmp.Compare(a.name, b.name))
		})
		name := scenes[0].name
		if slices.ContainsFunc(scenes, func(s *struckScene) bool { return s.name == row.Scene }) {
			name = row.Scene
		}
		byLine[row.String()] = name
	}
	for _, file := range []string{"table.txt", "names.txt"} {
		path := filepath.Join("..", "..", "..", "store", "normal", "fields", file)
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		message := ""
		for line := range strings.Lines(string(raw)) {
			if rest, is := strings.CutPrefix(line, "["); is {
				message = strings.TrimSuffix(strings.TrimSpace(rest), "]")
			}
			if m := actedLine.FindStringSubmatch(line); m != nil {
				line = m[1] + " acted " + cmp.Or(byLine[message+"."+m[1]], "-") + "\n"
			}
			out.WriteString(line)
		}
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// tree is an object's JSON, numbers as they stand.
func tree(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	out := map[string]any{}
	if err := decoder.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

func text(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(fmt.Errorf("%v: %w", v, err))
	}
	return raw
}
