package meaning

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/source/files"
)

var update = flag.Bool("update", false, "rewrite the expected facts and risks in testdata/codes")

// clusterID is the name of the cluster in these tests.
const clusterID = "Kubernetes"

// nodes are the proxies of which a scene names one.
var nodes = map[string]string{
	"client": `{"id": "sidecar~10.1.1.1~web-1.shop~shop.svc.cluster.local", "metadata": {"NAME": "web-1", "NAMESPACE": "shop",
		"LABELS": {"app": "web"}, "CLUSTER_ID": "Kubernetes", "INSTANCE_IPS": "10.1.1.1", "ISTIO_VERSION": "1.27.0"}}`,
	"server": `{"id": "sidecar~10.1.2.1~api-1.shop~shop.svc.cluster.local", "metadata": {"NAME": "api-1", "NAMESPACE": "shop",
		"LABELS": {"app": "api", "version": "v1"}, "CLUSTER_ID": "Kubernetes", "INSTANCE_IPS": "10.1.2.1", "ISTIO_VERSION": "1.27.0"}}`,
	"gateway": `{"id": "router~10.1.9.1~edge-1.edge~edge.svc.cluster.local", "metadata": {"NAME": "edge-1", "NAMESPACE": "edge",
		"LABELS": {"istio": "edge"}, "CLUSTER_ID": "Kubernetes", "INSTANCE_IPS": "10.1.9.1", "ISTIO_VERSION": "1.27.0"}}`,
}

// plannedConfig is the plan of one proxy by the files of a folder.
type plannedConfig struct {
	set         *manifest.Set
	unreachable func(configuration, host string) []*routev3.Route
	exists      func(object string) bool
}

// planFiles plans a proxy with the server's code.
func planFiles(t testing.TB, contents map[string][]byte, node string) plannedConfig {
	t.Helper()
	dir := t.TempDir()
	for name, body := range contents {
		if err := os.WriteFile(filepath.Join(dir, name), body, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	events, problems, err := files.Read(dir, clusterID, nil)
	if err != nil {
		t.Fatal(err)
	}
	records, more := ingest.Records(events, normal.Options{Domain: "cluster.local", Cluster: clusterID})
	for _, p := range append(problems, more...) {
		t.Log(p)
	}
	snapshot, _ := resolve.Snapshot(mirror.Empty().Apply(1, records, nil).New)
	planner := plan.New(plan.Settings{Snapshot: snapshot, Cluster: clusterID})
	message := &corev3.Node{}
	if err := protojson.Unmarshal([]byte(nodes[node]), message); err != nil {
		t.Fatal(err)
	}
	raw, err := proto.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := view.Parse(raw, clusterID)
	if err != nil {
		t.Fatal(err)
	}
	handle := planner.Join(parsed)
	names := map[string]bool{}
	for _, r := range records {
		names[r.Meta().Key.Kind.String()+" "+r.Meta().Key.Namespace+"/"+r.Meta().Key.Name] = true
	}
	unreachable := func(configuration, host string) (out []*routev3.Route) {
		for _, spec := range planner.Explain(handle, xds.Route, configuration) {
			if s, is := spec.(vhost.Spec); is && xds.VirtualHost(s.Host, s.Port) == host {
				out = append(out, s.Unreachable()...)
			}
		}
		return out
	}
	return plannedConfig{set: handle.Set(), unreachable: unreachable, exists: func(object string) bool { return names[object] }}
}

// scene is one case of an archive: files before the change, and the files that the change replaces.
type scene struct {
	proxy        string
	plainCallers []string
	refused      map[string]string
	before       map[string][]byte
	cases        map[string]map[string][]byte // an empty file removes one
	want         map[string]string
}

// parseScene reads an archive. Its comment has "key: value" lines: proxy, plain callers, refused.
func parseScene(t *testing.T, a *txtar.Archive) scene {
	s := scene{proxy: "client", refused: map[string]string{}, before: map[string][]byte{},
		cases: map[string]map[string][]byte{}, want: map[string]string{}}
	for line := range strings.Lines(string(a.Comment)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "proxy":
			s.proxy = value
		case "plain callers":
			s.plainCallers = strings.Fields(value)
		case "refused":
			secret, why, _ := strings.Cut(value, " ")
			s.refused[secret] = why
		}
	}
	base, err := filepath.Glob("testdata/base/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range base {
		if s.before[filepath.Base(name)], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range a.Files {
		folder, name, nested := strings.Cut(f.Name, "/")
		switch {
		case !nested:
			s.want[strings.TrimSuffix(f.Name, ".txt")] = string(f.Data)
		case folder == "before":
			s.before[name] = f.Data
		default:
			if s.cases[folder] == nil {
				s.cases[folder] = map[string][]byte{}
			}
			s.cases[folder][name] = f.Data
		}
	}
	return s
}

// after returns the files after the change of a case.
func (s scene) after(name string) map[string][]byte {
	all := map[string][]byte{}
	for file, body := range s.before {
		all[file] = body
	}
	for file, body := range s.cases[name] {
		if all[file] = body; len(bytes.TrimSpace(body)) == 0 {
			delete(all, file)
		}
	}
	return all
}

// outcome prints the risks and facts of a case.
func (s scene) outcome(t *testing.T, name string) (codes []Code, text string) {
	before, after := planFiles(t, s.before, s.proxy), planFiles(t, s.after(name), s.proxy)
	v, err := new(Decoder).Between(before.set, after.set)
	if err != nil {
		t.Fatal(err)
	}
	v.Exists, v.Unreachable, v.PlainCallers = after.exists, after.unreachable, s.plainCallers
	v.Refused = func(secret string) string { return s.refused[secret] }
	var b strings.Builder
	for _, r := range Risks(v) {
		codes = append(codes, r.Code)
		fmt.Fprintf(&b, "%s %s %s: %s", strings.ToUpper(r.Level.String()), r.Code, r.Subject, r.Text)
		if len(r.Objects) > 0 {
			fmt.Fprintf(&b, " [%s]", strings.Join(r.Objects, ", "))
		}
		b.WriteByte('\n')
	}
	for _, f := range Facts(v) {
		fmt.Fprintf(&b, "%v: %v\n", f.Area, f)
	}
	return codes, b.String()
}

// Each code has a scene in testdata/codes: configuration, changes that are the risk ("fires"), and near misses that are
// not ("near"). The server's code plans them. The expected risks and facts stand beside the changes.
func TestCodes(t *testing.T) {
	archives, err := filepath.Glob("testdata/codes/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	covered := map[Code]bool{MeshWide: true, ManyProxies: true, ViewsMultiply: true, BytesGrow: true, // TestReach
		BudgetExceeded: true, PatchWithoutMatch: true, EnvoyRefuses: true, PatchRelative: true} // their deciders have the scenes
	for _, file := range archives {
		code := Code(filepath.Base(file)[:len("NP101")])
		covered[code] = true
		t.Run(filepath.Base(file), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, fires, misses := parseScene(t, a), 0, 0
			for name := range s.cases {
				codes, text := s.outcome(t, name)
				switch has := slices.Contains(codes, code); {
				case strings.HasPrefix(name, "fires"):
					if fires++; !has {
						t.Errorf("%s: no %s in\n%s", name, code, text)
					}
				case strings.HasPrefix(name, "near"):
					if misses++; has {
						t.Errorf("%s: %s in\n%s", name, code, text)
					}
				default:
					t.Errorf("case %q: want fires... or near...", name)
				}
				if text != s.want[name] && !*update {
					t.Errorf("%s: got\n%s\nwant\n%s", name, text, s.want[name])
				}
				record(a, name+".txt", text)
			}
			if fires == 0 || misses == 0 {
				t.Errorf("%d cases fire and %d nearly do, want one of each", fires, misses)
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(a), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	for code := range Titles {
		if !covered[code] {
			t.Errorf("%s has no scene", code)
		}
	}
}

// record sets a file of an archive, behind the files of its case.
func record(a *txtar.Archive, name, text string) {
	at := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == name })
	if at >= 0 {
		a.Files[at].Data = []byte(text)
		return
	}
	folder := strings.TrimSuffix(name, ".txt") + "/"
	last := 0
	for i, f := range a.Files {
		if strings.HasPrefix(f.Name, folder) {
			last = i + 1
		}
	}
	a.Files = slices.Insert(a.Files, last, txtar.File{Name: name, Data: []byte(text)})
}
