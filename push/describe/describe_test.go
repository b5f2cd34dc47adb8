package describe

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/source/files"
)

var update = flag.Bool("update", false, "rewrite the descriptions in testdata")

const clusterID = "Kubernetes"

// nodes are the proxies of the mesh by name.namespace, with their kind, address and label.
var nodes = [][4]string{
	{"web-1.shop", "sidecar", "10.1.1.1", `"app": "web"`}, {"api-1.shop", "sidecar", "10.1.2.1", `"app": "api", "version": "v1"`},
	{"api-2.shop", "sidecar", "10.1.2.2", `"app": "api", "version": "v2"`}, {"edge-1.edge", "router", "10.1.9.1", `"istio": "edge"`},
}

// theirs is a proxy of another tenant.
var theirs = [4]string{"secret-1.rival", "sidecar", "10.1.3.1", `"app": "secret"`}

// meshOf plans the proxies by files of testdata.
func meshOf(t testing.TB, names []string, of ...[4]string) *plan.Planner {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		raw, err := os.ReadFile(filepath.Join("testdata", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), raw, 0o600)
		}
		if err != nil {
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
	for _, n := range of {
		planner.Join(nodeOf(t, n))
	}
	return planner
}

func nodeOf(t testing.TB, n [4]string) view.Node {
	t.Helper()
	name, namespace, _ := strings.Cut(n[0], ".")
	message := &corev3.Node{}
	text := fmt.Sprintf(`{"id": "%s~%s~%s~%s.svc.cluster.local", "metadata": {"NAME": %q, "NAMESPACE": %q, "SERVICE_ACCOUNT": %q,
		"LABELS": {%s}, "CLUSTER_ID": %q, "INSTANCE_IPS": %q, "ISTIO_VERSION": "1.27.0", "NAVARCH_IDENTITY": "sds"}}`,
		n[1], n[2], n[0], namespace, name, namespace, strings.TrimRight(name, "-0123456789"), n[3], clusterID, n[2])
	if err := protojson.Unmarshal([]byte(text), message); err != nil {
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
	return parsed
}

func all(string) bool { return true }

// textOf prints a description, a fact on each line.
func textOf(p Part) string {
	var b strings.Builder
	write := func(indent string, facts []Fact) {
		for _, f := range facts {
			by := strings.Join(f.By, ", ")
			if by == "" {
				by = "-"
			}
			fmt.Fprintf(&b, "%s%s | %s | %s\n", indent, f.Subject, f.Text, by)
		}
	}
	for _, o := range p.Objects {
		fmt.Fprintln(&b, o.Object)
		write("  ", o.Facts)
	}
	for _, g := range p.Groups {
		fmt.Fprintf(&b, "%s of %d: %s\n", g.Side, g.Total, strings.Join(g.Proxies, ", "))
		for _, s := range g.Sections {
			fmt.Fprintln(&b, " ", s.Name)
			write("    ", s.Facts)
		}
	}
	for _, text := range p.More {
		fmt.Fprintln(&b, text)
	}
	return b.String()
}

// queries are descriptions of the mesh in testdata/mesh.yaml, by the name of the file that has the expected text.
var queries = map[string]Query{
	"pod":      {Noun: Pod, Namespace: "shop", Name: "api-1"},
	"client":   {Noun: Pod, Namespace: "shop", Name: "web-1", Host: "api"},
	"edge":     {Noun: Pod, Namespace: "edge", Name: "edge-1"},
	"workload": {Noun: Workload, Namespace: "shop", Name: "api", Limit: 2},
	"service":  {Noun: Service, Namespace: "shop", Name: "api", From: "web-1.shop"},
	"gateway":  {Noun: Gateway, Namespace: "edge", Name: "edge"},
	"host":     {Noun: Host, Name: "api.shop"},
	"route":    {Noun: Route, Namespace: "shop", Name: "younger"},
}

// Each noun is described with the objects that decide. The expected texts are read by people, who have checked them
// against the objects in testdata/mesh.yaml.
func TestDescriptions(t *testing.T) {
	planner := meshOf(t, []string{"mesh.yaml"}, nodes...)
	for name, q := range queries {
		part, err := Of(planner, planner.Snapshot(), q, all)
		if err != nil {
			t.Fatal(err)
		}
		got, file := textOf(part), filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}

// Two meshes that differ in objects and proxies of other tenants alone have equal descriptions for a tenant; and what
// belongs to the others is as unknown as what does not exist.
func TestTenantsDescriptionsAreEqual(t *testing.T) {
	alone := meshOf(t, []string{"mesh.yaml"}, nodes...)
	beside := meshOf(t, []string{"mesh.yaml", "others.yaml"}, append(slices.Clone(nodes), theirs)...)
	own := func(namespace string) bool { return namespace == "shop" }
	for name, q := range queries {
		var texts []string
		for _, planner := range []*plan.Planner{alone, beside} {
			part, err := Of(planner, planner.Snapshot(), q, own)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := json.Marshal(part)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(raw))
		}
		if texts[0] != texts[1] || strings.Contains(texts[1], "rival") {
			t.Errorf("%s: beside others\n%s\nalone\n%s", name, texts[1], texts[0])
		}
	}
	for _, q := range []Query{
		{Noun: Pod, Namespace: "rival", Name: "secret-1"}, {Noun: Service, Namespace: "rival", Name: "secret"},
		{Noun: Route, Namespace: "rival", Name: "claims-api"}, {Noun: Gateway, Namespace: "rival", Name: "edge"},
		{Noun: Workload, Namespace: "rival", Name: "secret"}, {Noun: Host, Name: "secret.rival"},
	} {
		part, err := Of(beside, beside.Snapshot(), q, own)
		if err != nil || !part.Empty() || len(part.More) > 0 {
			t.Errorf("%+v: %s, %v", q, textOf(part), err)
		}
		if part, _ := Of(beside, beside.Snapshot(), q, all); part.Empty() {
			t.Errorf("%+v: unknown to a caller who sees everything", q)
		}
	}
}

// At a gateway, a VirtualService passes because no server admits its namespace, and not because of its name. Routes of
// a server with httpsRedirect come after the redirect.
func TestGatewaysRefuseAndRedirect(t *testing.T) {
	planner := meshOf(t, []string{"mesh.yaml", "redirect.yaml"}, nodes...)
	for _, q := range []Query{{Noun: Host, Name: "plain.example"}, {Noun: Gateway, Namespace: "edge", Name: "plain"}} {
		part, err := Of(planner, planner.Snapshot(), q, all)
		text := textOf(part)
		redirect := "http.8080 | without TLS -> 301 to https; the other routes are for x-forwarded-proto: https of a trusted proxy | " +
			"Gateway edge/plain spec.servers[0]\n"
		if at := strings.Index(text, redirect); err != nil || at < 0 || at > strings.Index(text, "/* -> web.shop:80") {
			t.Errorf("%+v: %v\n%s", q, err, text)
		}
		passed := "VirtualService | no server of its Gateways admits the host for namespace other, or its rules are for other Gateways | " +
			"VirtualService other/plain spec.hosts\n"
		if q.Noun == Host && !strings.Contains(text, passed) {
			t.Errorf("want %q\n%s", passed, text)
		}
	}
}

// A port that is closed names the policy that was not understood, and a Gateway in the namespace of another tenant is
// not suggested.
func TestClosedAndSuggested(t *testing.T) {
	planner := meshOf(t, []string{"mesh.yaml", "closed.yaml"}, nodes...)
	part, err := Of(planner, planner.Snapshot(), Query{Noun: Pod, Namespace: "shop", Name: "web-1", Limit: 1}, all)
	if want := "all ports | closed: a policy that selects the workload cannot be enforced | AuthorizationPolicy shop/odd\n"; err != nil ||
		!strings.Contains(textOf(part), want) {
		t.Errorf("%q is not in\n%s", want, textOf(part))
	}
	q := Query{Noun: Gateway, Namespace: "shop", Name: "edge"}
	if part, _ := Of(planner, planner.Snapshot(), q, all); !slices.Equal(part.More, []string{"Gateway edge/edge has this name"}) {
		t.Errorf("suggested: %q", part.More)
	}
	if part, _ := Of(planner, planner.Snapshot(), q, func(n string) bool { return n == "shop" }); !part.Empty() || len(part.More) > 0 {
		t.Errorf("a tenant is told of %q", part.More)
	}
}

// A query that is not valid is refused by the name of its parameter.
func TestQueries(t *testing.T) {
	for _, c := range []struct {
		q    Query
		want string
	}{
		{Query{Noun: "pods", Namespace: "a", Name: "b"}, "noun"}, {Query{Noun: Pod, Namespace: "a"}, "name"},
		{Query{Noun: Pod, Name: "b"}, "namespace"}, {Query{Noun: Host, Name: strings.Repeat("x", 254)}, "name: want at most 253 bytes"},
		{Query{Noun: Host, Name: "x", Limit: 501}, "limit"}, {Query{Noun: Host, Name: "x"}, ""},
	} {
		err := c.q.Check()
		if c.want == "" != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.q, err)
		}
	}
}
