// Package arrows holds the arrows between our packages: who may import whom, and which outside libraries belong to one
// place. What the tables do not list is refused.
package arrows

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "navarch.io/navarch/"

// everywhere may be imported by every package that is not a leaf itself.
var everywhere = []string{"store/obs", "store/loop", "store/intern", "store/model", "push/xds"}

// may lists what each package may import beside `everywhere`. "*" at the end stands for all below.
var may = map[string][]string{
	// Leaves.
	"store/model": {}, "store/object": {}, "store/intern": {}, "store/loop": {}, "store/obs": {}, "store/socket": {}, "shard/ring": {},
	"push/xds": {"store/model"},

	"store/kv":            {"store/model"},
	"store/kv/kvtest":     {"store/kv"},
	"store/lead":          {"store/kv"},
	"store/normal":        {"store/object"},
	"store/source/files":  {"store/object"},
	"store/ingest":        {"store/source/*", "store/normal", "store/object", "store/kv", "store/lead"},
	"store/mirror":        {"store/kv"},
	"push/view":           {"store/mirror"},
	"push/build/patch":    {},
	"push/build/cluster":  {"push/build/patch", "push/build/endpoint", "push/build/identity"}, // DNS clusters hold their endpoints
	"push/build/endpoint": {"push/build/patch"},
	"push/build/identity": {},
	"push/build/authz":    {"push/build/identity"},
	"push/build/secret":   {},
	"push/build/listener": {"push/build/patch", "push/build/identity", "push/build/authz"},
	"push/build/vhost":    {"push/build/patch"},
	"push/build/route":    {"push/build/patch"},
	"push/pool":           {},
	"push/manifest":       {},
	"push/plan":           {"store/mirror", "push/view", "push/build/*", "push/pool", "push/manifest"},
	"push/delta":          {"push/manifest"},
	"push/fanout":         {"push/manifest", "push/delta"},
	"push/serve":          {"push/plan", "push/delta", "push/fanout", "push/view", "push/manifest", "store/mirror", "shard/place", "ca/attest"},
	"push/inspect":        {"push/plan", "push/view", "push/manifest", "store/mirror", "push/delta"},
	"loadtest/gauge":      {},
	"loadtest/loopback":   {},
	"loadtest/envoytest":  {"loadtest/loopback"}, // for tests, whose imports are their own
	"loadtest/mesh":       {},
	"loadtest/report":     {"loadtest/gauge"},
	"loadtest/proxy":      {"loadtest/gauge"},
	"loadtest/scene":      {"loadtest/gauge", "loadtest/loopback", "loadtest/mesh", "loadtest/proxy", "loadtest/report"},
	"shard/member":        {"store/kv", "shard/ring"},
	"shard/place":         {"store/kv", "shard/ring", "shard/member"},
	"shard/relay":         {"store/socket"},
	"ca/seal":             {},
	"ca/seal/kmstest":     {},
	"ca/vault/vaulttest":  {},
	"ca/issue":            {},
	"ca/attest":           {},
	"ca/keyring":          {"ca/seal", "ca/issue", "store/kv", "store/lead"},
	"ca/vault":            {"ca/seal", "store/kv"},
	"ca/serve":            {"ca/keyring", "ca/issue", "ca/attest"},
	"ca/serve/*":          {"ca/*", "loadtest/loopback"},
	"ca/agent":            {"store/socket"},
	"cmd/*":               {"*"},
	"deploy/*":            {"*"},
}

// leaves import nothing of ours but what their row says.
var leaves = []string{"store/model", "store/object", "store/intern", "store/loop", "store/obs", "store/socket", "push/xds", "shard/ring",
	"loadtest/loopback"}

// only lists outside libraries that belong to one place, and the place.
var only = map[string][]string{
	"go.etcd.io/etcd":              {"store/kv*", "store/lead"},
	"github.com/fsnotify/fsnotify": {"store/source/files"},
	"k8s.io/client-go":             {"store/source/kube", "ca/attest/kube"},
	"github.com/spf13/cobra":       {"cmd/*"},
}

type listed struct {
	ImportPath, Dir string
	Imports         []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", module+"...")
	cmd.Dir = "../../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func matches(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

func row(name string) ([]string, bool) {
	if r, ok := may[name]; ok {
		return r, true
	}
	for pattern, r := range may {
		if strings.HasSuffix(pattern, "*") && matches(pattern, name) {
			return r, true
		}
	}
	return nil, false
}

// refusals says what is wrong with one package's imports.
func refusals(p listed) []string {
	var bad []string
	from := strings.TrimPrefix(p.ImportPath, module)
	allowed, known := row(from)
	if !known {
		return []string{fmt.Sprintf("%s: no row in the table of arrows", from)}
	}
	if !slices.Contains(leaves, from) {
		allowed = append(slices.Clone(allowed), everywhere...)
	}
	for _, imported := range p.Imports {
		if to, ours := strings.CutPrefix(imported, module); ours {
			if !slices.ContainsFunc(allowed, func(pattern string) bool { return matches(pattern, to) }) {
				bad = append(bad, fmt.Sprintf("%s must not import %s", from, to))
			}
			continue
		}
		for library, places := range only {
			if imported != library && !strings.HasPrefix(imported, library+"/") {
				continue
			}
			if !slices.ContainsFunc(places, func(pattern string) bool { return matches(pattern, from) }) {
				bad = append(bad, fmt.Sprintf("%s must not import %s: it belongs to %v", from, imported, places))
			}
		}
	}
	return bad
}

func TestArrows(t *testing.T) {
	for _, p := range packages(t) {
		for _, refusal := range refusals(p) {
			t.Error(refusal)
		}
	}
}

// The test of the test: arrows that must be refused are.
func TestArrowsRefuse(t *testing.T) {
	for _, p := range []listed{
		{ImportPath: module + "push/build/cluster", Imports: []string{module + "store/mirror"}},
		{ImportPath: module + "push/build/listener", Imports: []string{module + "push/view"}},
		{ImportPath: module + "store/model", Imports: []string{module + "store/obs"}},
		{ImportPath: module + "push/serve", Imports: []string{"go.etcd.io/etcd/client/v3"}},
		{ImportPath: module + "store/kv", Imports: []string{module + "cmd/navarchd"}},
		{ImportPath: module + "store/unheard", Imports: nil},
	} {
		if len(refusals(p)) != 1 {
			t.Errorf("%s importing %v: refused %d times, want once", p.ImportPath, p.Imports, len(refusals(p)))
		}
	}
	if got := refusals(listed{ImportPath: module + "push/plan", Imports: []string{module + "push/build/cluster", "fmt"}}); got != nil {
		t.Errorf("an allowed arrow was refused: %v", got)
	}
}

// ARCHITECTURE.md names every package that there is, and no package that there is not.
func TestArchitectureNamesPackages(t *testing.T) {
	raw, err := os.ReadFile("../../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	there := map[string]bool{}
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		there[name] = true
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("ARCHITECTURE.md does not name %s", name)
		}
	}
	_, house, ok := strings.Cut(page, "## The house")
	house, _, _ = strings.Cut(house, "belong to the\ndesign")
	if !ok {
		t.Fatal(`ARCHITECTURE.md has no chapter "The house"`)
	}
	for line := range strings.Lines(house) {
		cell, isRow := strings.CutPrefix(line, "| `")
		if !isRow {
			continue
		}
		names, _, _ := strings.Cut(cell, " |")
		for name := range strings.SplitSeq("`"+names, ", ") {
			if name = strings.Trim(name, "`"); !there[name] {
				t.Errorf("ARCHITECTURE.md names %s, which is not there", name)
			}
		}
	}
}
