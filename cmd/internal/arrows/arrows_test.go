// Package arrows holds the arrows between our packages: who may import whom, and which outside libraries belong to one
// place. What the tables do not list is refused. Its tests also hold the pages to the code, and names and comments to plain words.
package arrows

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "navarch.io/navarch/"

// everywhere may be imported by every package that is not a leaf itself.
var everywhere = []string{"store/obs", "store/loop", "store/intern", "store/model", "store/origin", "store/problem", "push/xds"}

// may lists what each package may import beside `everywhere`. "*" at the end stands for all below.
var may = map[string][]string{
	// Leaves.
	"store/origin": {}, "store/problem": {}, "store/proxyconfig": {}, "store/smallset": {}, "store/model": {"store/origin", "store/problem"}, "store/object": {"store/origin", "store/problem"}, "store/intern": {}, "store/loop": {}, "store/obs": {}, "store/socket": {}, "store/durable": {}, "store/protowalk": {}, "store/pullsecret": {}, "store/remote": {}, "store/turns": {}, "shard/ring": {"store/protowalk"},
	"push/xds": {}, "push/agentapi": {},
	"store/kv":        {"store/model"},
	"store/kv/kvtest": {"store/kv", "loadtest/programs"}, "store/kv/embedded": {"store/kv"},
	"store/apiserver": {}, "store/apiserver/apiservertest": {"store/apiserver"}, "store/apiserver/listwatch": {},
	"store/asof":          {"store/kv"},
	"store/clock":         {"store/kv"},
	"store/lead":          {"store/kv"},
	"store/normal":        {"store/normal/fields", "store/object", "store/proxyconfig", "store/pullsecret"},
	"store/normal/fields": {},
	"store/source/guard":  {"store/normal", "store/object"},
	"store/source/files":  {"store/object", "store/source/guard"},
	"store/source/kube":   {"store/apiserver", "store/apiserver/listwatch", "store/normal", "store/object", "store/source/guard"},
	"store/source/remote": {"store/apiserver", "store/object", "store/source/kube"},
	"store/ingest":        {"store/analysis", "store/crash", "store/normal", "store/object", "store/kv", "store/smallset", "store/source/guard"},
	"store/analysis":      {"store/normal", "store/object", "store/smallset"},
	"store/tenants":       {"store/ingest", "store/kv"},
	"store/mirror":        {"store/durable", "store/kv"},
	"push/view":           {"store/mirror", "store/normal/fields", "store/protowalk", "store/proxyconfig", "push/extension", "push/traffic", "push/virtualservice"},
	"push/access":         {"push/extension", "push/view", "store/mirror", "push/traffic"},
	"push/resolve":        {"store/crash", "store/mirror"},
	"push/traffic":        {},
	"push/virtualservice": {},
	"push/extension":      {"store/pullsecret"},
	"push/istiometrics":   {},
	"push/build/patch":    {},

	"push/build/patch/envoytypes": {},
	"push/build/cluster":          {"push/build/patch", "push/build/dnscache", "push/build/endpoint", "push/build/identity", "push/traffic"}, // DNS clusters hold their endpoints
	"push/build/dnscache":         {},
	"push/build/endpoint":         {"push/traffic"},
	"push/build/identity":         {},
	"push/build/authz":            {"push/build/identity", "push/build/jwt"},
	"push/build/extauthz":         {"push/build/authz"},
	"push/build/jwt":              {},
	"push/build/secret":           {},
	"push/build/listener":         {"store/proxyconfig", "push/build/patch", "push/build/dnscache", "push/build/identity", "push/build/authz", "push/build/extauthz", "push/build/jwt", "push/build/telemetry", "push/extension", "push/traffic"},
	"push/build/telemetry":        {"push/istiometrics"},
	"push/build/bootstrap":        {"push/agentapi", "push/build/patch"},
	"push/build/extension":        {"push/build/patch", "push/extension", "store/pullsecret"},
	"push/build/vhost":            {"store/proxyconfig", "push/build/authz", "push/build/patch", "push/virtualservice"},
	"push/build/route":            {"push/build/patch"},
	"push/build/proxyless":        {"push/build/authz", "push/build/identity"},
	"push/pool":                   {},
	"push/manifest":               {},
	"push/plan":                   {"store/crash", "store/mirror", "push/access", "push/extension", "push/resolve", "push/view", "push/build/patch", "push/build/vhost", "push/pool", "push/manifest", "push/plan/*", "push/virtualservice"},
	"push/plan/layer":             {"push/pool", "push/manifest"},
	"push/plan/input":             {"store/mirror", "store/proxyconfig", "push/access", "push/view", "push/build/*", "push/pool", "push/plan/layer", "push/traffic", "push/virtualservice"},
	"push/plan/host":              {"push/view", "push/build/*", "push/pool", "push/plan/input", "push/plan/layer", "push/traffic", "push/virtualservice"},
	"push/plan/front":             {"push/view", "push/plan/host", "push/plan/input", "push/plan/layer"},
	"push/plan/front/*":           {"push/view", "push/build/*", "push/pool", "push/plan/front", "push/plan/host", "push/plan/input", "push/plan/layer", "push/plan/telemetry", "push/traffic", "push/virtualservice"},
	"push/plan/telemetry":         {"push/istiometrics", "push/view", "push/build/telemetry", "push/plan/host", "push/plan/input"},
	"push/plan/nametable":         {"push/agentapi", "push/manifest", "push/plan/host", "push/plan/layer", "push/pool"},
	"push/plan/inbound":           {"push/extension", "push/view", "push/build/*", "push/pool", "push/manifest", "push/plan/front", "push/plan/host", "push/plan/input", "push/plan/layer", "push/plan/telemetry", "push/traffic"},
	"push/plan/secret":            {"store/mirror", "push/access", "push/extension", "push/view", "push/build/extension", "push/build/secret", "store/pullsecret", "push/pool", "push/manifest", "push/plan/input", "push/plan/layer"},
	"push/delta":                  {"push/manifest", "store/protowalk"},
	"push/fanout":                 {},
	"push/budget":                 {},
	"push/serve":                  {"push/agentapi", "push/budget", "store/crash", "push/delta", "push/fanout", "push/quarantine", "push/view", "push/manifest", "ca/attest"},
	"push/inspect":                {"push/extension", "push/manifest", "store/mirror", "push/traffic"},
	"push/identities":             {"push/build/identity", "ca/attest", "store/asof", "store/loop", "store/mirror"},
	"push/machines":               {"push/view", "store/kv", "store/machines", "store/mirror"},
	"store/machines":              {"store/kv", "store/object"},
	"store/hostnames":             {"store/kv", "store/normal", "store/object"},
	"store/jwks":                  {"store/kv", "store/normal", "store/object"},
	"store/allocate":              {"store/apiserver", "store/kv", "store/normal", "store/object"},
	"push/join":                   {"store/normal/fields", "push/agentapi", "push/fanout", "push/machines", "push/plan", "push/serve", "push/view", "ca/attest", "store/crash", "store/kv", "store/mirror"},
	"push/trust":                  {"push/agentapi", "push/serve", "ca/issue", "ca/keyring"},
	"loadtest/gauge":              {},
	"store/loopback":              {},
	"loadtest/programs":           {},
	"push/serve/servetest":        {"push/fanout", "push/manifest", "push/serve"}, // a test kit
	"push/envoytest":              {"store/loopback"},                             // for tests, whose imports are their own
	"loadtest/mesh":               {},
	"loadtest/report":             {"loadtest/gauge"}, "loadtest/report/page": {"loadtest/gauge", "loadtest/report"},
	"loadtest/proxy":        {"loadtest/gauge"},
	"loadtest/attack":       {"store/protowalk"},
	"loadtest/cluster":      {"deploy/chart/files/injection", "deploy/testcluster/controlplane", "loadtest/gauge"},
	"loadtest/scene":        {"loadtest/attack", "loadtest/cluster", "loadtest/gauge", "store/loopback", "loadtest/mesh", "loadtest/proxy", "loadtest/report"},
	"shard/member":          {"store/kv", "shard/ring"},
	"shard/level":           {"store/kv", "shard/member"},
	"shard/place":           {"store/kv", "shard/ring", "shard/member"},
	"shard/fleet":           {"push/agentapi", "push/fanout", "push/join", "push/plan", "push/serve", "push/view", "shard/member", "shard/place", "shard/ring", "store/kv", "store/mirror"},
	"shard/relay":           {"push/agentapi", "store/socket"},
	"ca/seal":               {"store/durable"},
	"ca/seal/kmstest":       {},
	"ca/vault/vaulttest":    {},
	"ca/issue":              {},
	"ca/attest":             {"ca/issue", "store/durable"},
	"ca/attest/kube":        {"ca/attest", "store/apiserver", "store/remote"},
	"ca/istioca":            {"ca/keyring", "store/apiserver"},
	"ca/registrar":          {"ca/issue", "ca/serve", "store/apiserver"},
	"ca/keyring":            {"ca/seal", "ca/issue", "store/clock", "store/kv", "store/durable"},
	"ca/vault":              {"ca/seal", "store/kv", "store/pullsecret"},
	"ca/expiry":             {"ca/attest"},
	"ca/denials":            {"ca/keyring", "store/normal", "store/object"},
	"ca/serve":              {"ca/issue", "ca/attest"},
	"ca/serve/*":            {"ca/*", "store/loopback"},
	"ca/serving":            {"ca/issue", "ca/keyring", "ca/serve", "shard/member", "store/kv"},
	"ca/agent":              {"store/durable", "store/socket"},
	"push/quarantine":       {},
	"push/quarantine/share": {"push/quarantine", "store/kv"},
	"push/problems":         {"store/kv"},
	"push/acknowledged":     {"store/kv"},
	"store/crash":           {},
	"store/admit":           {"store/crash", "store/remote", "store/turns"},
	"store/admit/inject":    {"store/admit"},
	"store/admit/schema":    {},
	"store/admit/validate":  {"store/admit", "store/admit/schema", "store/analysis", "store/mirror", "store/normal", "store/object"},
	"store/admit/configure": {"store/status"},
	"store/status":          {"store/apiserver", "store/apiserver/listwatch", "store/machines"},
	"store/removal":         {"store/object", "store/kv", "store/source/guard"},
	"cmd/*":                 {"*"},
	"cmd/navarchctl/dump":   {"push/inspect"},
	"cmd/navarchctl/show":   {"cmd/navarchctl/dump"},
	"deploy/*":              {"*"},
}

// leaves import nothing of ours but what their row says.
var leaves = []string{"store/origin", "store/problem", "store/model", "store/object", "store/intern", "store/loop", "store/obs", "store/socket", "store/durable", "store/protowalk", "store/normal/fields", "push/xds", "push/agentapi", "shard/ring", "store/loopback", "store/remote", "store/turns", "store/smallset"}

// testsMay lists what the tests of each package import beside what the package itself may. Test kits are for tests alone.
var testsMay = map[string][]string{
	"ca/agent":       {"ca/issue", "ca/serve", "ca/serve/servetest", "push/envoytest", "store/loopback"},
	"ca/attest/kube": {"store/apiserver/apiservertest"}, "ca/istioca": {"store/apiserver/apiservertest"}, "ca/registrar": {"store/apiserver/apiservertest"}, "store/status": {"store/apiserver/apiservertest"},
	"ca/keyring":                {"ca/agent", "ca/attest", "ca/seal/kmstest", "ca/serve", "push/envoytest", "store/loopback", "store/kv/kvtest"},
	"ca/seal":                   {"ca/seal/kmstest"},
	"ca/serve":                  {"ca/serve/servetest", "push/envoytest", "store/crash"},
	"ca/serving":                {"push/serve"},
	"ca/vault":                  {"ca/seal/kmstest", "ca/vault/vaulttest", "store/ingest", "store/kv/kvtest", "store/object"},
	"loadtest/mesh":             {"store/normal", "store/object", "store/source/files"},
	"loadtest/proxy":            {"push/envoytest"},
	"push/build/cluster":        {"push/envoytest"},
	"push/build/extension":      {"push/build/patch/envoytypes", "push/envoytest", "store/loopback"},
	"push/build/listener":       {"push/envoytest", "store/loopback"},
	"push/build/patch":          {"push/build/patch/envoytypes"},
	"push/build/vhost":          {"push/envoytest", "push/build/route", "push/traffic"},
	"push/inspect":              {"push/build/cluster", "push/build/listener", "push/build/vhost", "push/plan", "store/normal"},
	"push/plan":                 {"push/agentapi", "push/envoytest", "push/istiometrics", "store/loopback", "store/proxyconfig", "push/build/endpoint", "push/build/secret"},
	"push/plan/telemetry":       {"push/pool", "store/mirror"},
	"push/quarantine/share":     {"store/kv/kvtest"},
	"push/machines":             {"store/kv/kvtest"},
	"push/problems":             {"store/kv/kvtest"},
	"push/acknowledged":         {"store/kv/kvtest"},
	"push/serve":                {"push/envoytest", "store/loopback"},
	"shard/member":              {"store/kv/kvtest"},
	"shard/level":               {"store/kv/kvtest", "shard/ring"},
	"shard/place":               {"store/kv/kvtest"},
	"shard/fleet":               {"push/serve/servetest", "store/kv/kvtest"},
	"shard/relay":               {"push/envoytest", "store/loopback"},
	"store/source/kube":         {"store/apiserver/apiservertest", "store/ingest", "store/kv"},
	"store/admit/inject":        {"deploy/chart/files/injection"},
	"store/ingest":              {"ca/vault/vaulttest", "store/kv/kvtest", "store/source/files"},
	"store/kv":                  {"store/kv/kvtest"},
	"store/asof":                {"store/kv/kvtest"},
	"store/allocate":            {"store/apiserver/apiservertest", "store/kv/kvtest"},
	"store/hostnames":           {"store/kv/kvtest"},
	"store/jwks":                {"store/kv/kvtest"},
	"store/clock":               {"store/kv/kvtest"},
	"store/lead":                {"store/kv/kvtest"},
	"store/mirror":              {"store/kv/kvtest"},
	"store/obs":                 {"push/envoytest"},
	"store/removal":             {"store/kv/kvtest"},
	"push/join":                 {"ca/issue", "store/kv/kvtest", "store/machines"},
	"store/tenants":             {"store/kv/kvtest"},
	"store/admit/validate":      {"deploy/docs", "push/build/patch", "push/build/patch/envoytypes"},
	"store/apiserver/listwatch": {"store/apiserver", "store/apiserver/apiservertest"},

	"cmd/*":    {"*"},
	"deploy/*": {"*"},
}

// only lists outside libraries that belong to one place, and the place.
var only = map[string][]string{
	"go.etcd.io/etcd":              {"store/kv*", "store/lead"},
	"go.etcd.io/etcd/server":       {"store/kv/embedded"},
	"github.com/fsnotify/fsnotify": {"store/source/files"},
	"k8s.io/client-go":             {"store/apiserver", "store/apiserver/listwatch", "store/source/kube", "store/status", "cmd/navarchctl/cluster", "deploy/testcluster*", "loadtest/cluster"},
	"github.com/spf13/cobra":       {"cmd/*"},
	"github.com/vishvananda":       {"deploy/testcluster*", "deploy/redirect*"},
	"github.com/google/nftables":   {"deploy/redirect/kernel"},
	"k8s.io/cri-streaming":         {"deploy/testcluster*"},
	"k8s.io/metrics":               {"deploy/testcluster*"},
}

type listed struct {
	ImportPath, Name string
	Imports, Deps    []string
	TestImports      []string // of the package's own tests
	XTestImports     []string // of its _test package
}

func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Name,Imports,Deps,TestImports,XTestImports", module+"...")
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

func row(table map[string][]string, name string) ([]string, bool) {
	if r, ok := table[name]; ok {
		return r, true
	}
	for pattern, r := range table {
		if strings.HasSuffix(pattern, "*") && matches(pattern, name) {
			return r, true
		}
	}
	return nil, false
}

// allowed is what a package, or its tests, may import of ours; false: the package has no row.
func allowed(from string, tests bool) ([]string, bool) {
	patterns, known := row(may, from)
	patterns = slices.Clone(patterns)
	if tests || !slices.Contains(leaves, from) {
		patterns = append(patterns, everywhere...)
	}
	if more, ok := row(testsMay, from); tests && ok {
		patterns = append(patterns, more...)
	}
	return patterns, known
}

// refusals says what is wrong with one package's imports.
func refusals(p listed) []string {
	var bad []string
	from := strings.TrimPrefix(p.ImportPath, module)
	own, known := allowed(from, false)
	if !known {
		return []string{fmt.Sprintf("%s: no row in the table of arrows", from)}
	}
	for _, imported := range p.Imports {
		bad = append(bad, refusal(from, imported, own)...)
	}
	ofTests, _ := allowed(from, true)
	for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
		if to, ours := strings.CutPrefix(imported, module); ours && to != from && !matchesAny(ofTests, to) {
			bad = append(bad, fmt.Sprintf("tests of %s must not import %s", from, to))
		}
	}
	return bad
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, name) })
}

// refusal says what is wrong with one import of a package that may have those of ours.
func refusal(from, imported string, own []string) (bad []string) {
	if to, ours := strings.CutPrefix(imported, module); ours {
		if !matchesAny(own, to) {
			bad = append(bad, fmt.Sprintf("%s must not import %s", from, to))
		}
		return bad
	}
	for library, places := range only {
		if (imported == library || strings.HasPrefix(imported, library+"/")) && !matchesAny(places, from) {
			bad = append(bad, fmt.Sprintf("%s must not import %s: it belongs to %v", from, imported, places))
		}
	}
	return bad
}

// unused lists arrows that nobody uses: a table that allows more than there is says nothing about the design.
func unused(all []listed) (bad []string) {
	for _, t := range []struct {
		name    string
		table   map[string][]string
		imports func(listed) []string
	}{
		{"may", may, func(p listed) []string { return p.Imports }},
		{"testsMay", testsMay, func(p listed) []string { return slices.Concat(p.TestImports, p.XTestImports) }},
	} {
		for from, patterns := range t.table {
			var imports []string
			there := false
			for _, p := range all {
				if matches(from, strings.TrimPrefix(p.ImportPath, module)) {
					there = true
					imports = append(imports, t.imports(p)...)
				}
			}
			if !there {
				bad = append(bad, fmt.Sprintf("%s has a row for %s, which is not there", t.name, from))
			}
			for _, pattern := range patterns {
				if !slices.ContainsFunc(imports, func(i string) bool {
					to, ours := strings.CutPrefix(i, module)
					return ours && matches(pattern, to)
				}) {
					bad = append(bad, fmt.Sprintf("%s lets %s import %s, and nothing does", t.name, from, pattern))
				}
			}
		}
	}
	for library, places := range only {
		for _, place := range places {
			if !slices.ContainsFunc(all, func(p listed) bool {
				return matches(place, strings.TrimPrefix(p.ImportPath, module)) && slices.ContainsFunc(p.Imports, func(i string) bool { return strings.HasPrefix(i, library) })
			}) {
				bad = append(bad, fmt.Sprintf("only lets %s import %s, and it does not, or is not there", place, library))
			}
		}
	}
	return bad
}

func TestArrows(t *testing.T) {
	all := packages(t)
	for _, p := range all {
		for _, refusal := range refusals(p) {
			t.Error(refusal)
		}
	}
	for _, arrow := range unused(all) {
		t.Error(arrow)
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
		{ImportPath: module + "push/delta", TestImports: []string{module + "push/plan"}},
		{ImportPath: module + "push/delta", XTestImports: []string{module + "store/kv/kvtest"}},
	} {
		if len(refusals(p)) != 1 {
			t.Errorf("%s importing %v: refused %d times, want once", p.ImportPath, p.Imports, len(refusals(p)))
		}
	}
	if got := refusals(listed{ImportPath: module + "push/plan/host", Imports: []string{module + "push/build/cluster", "fmt"}}); got != nil {
		t.Errorf("an allowed arrow was refused: %v", got)
	}
}

// Programs that plan link the types that EnvoyFilters may name; without, they would refuse such patches.
func TestProgramsLinkEnvoyTypes(t *testing.T) {
	programs := 0
	for _, p := range packages(t) {
		if p.Name != "main" || !slices.Contains(p.Deps, module+"push/build/patch") {
			continue
		}
		programs++
		if !slices.Contains(p.Deps, module+"push/build/patch/envoytypes") {
			t.Errorf("%s must import push/build/patch/envoytypes", p.ImportPath)
		}
	}
	if programs < 2 {
		t.Errorf("%d programs plan: navarchd and navarchctl do", programs)
	}
}
