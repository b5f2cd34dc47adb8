package plan

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/origin"
)

// rec returns a record of YAML, in which tabs may indent.
func rec(t testing.TB, kind model.Kind, name string, text string) model.Record {
	t.Helper()
	namespace, short, _ := strings.Cut(name, "/")
	short, at, _ := strings.Cut(short, "@")
	var created int64
	fmt.Sscan(at, &created)
	raw, err := yaml.YAMLToJSON([]byte(strings.ReplaceAll(text, "\t", "  ")))
	if err != nil {
		t.Fatalf("%v %s: %v", kind, name, err)
	}
	m := model.NewBody(kind)
	if kind == model.KindMesh {
		m = model.MeshDefaults()
	}
	if err := protojson.Unmarshal(raw, m); err != nil {
		t.Fatalf("%v %s: %v", kind, name, err)
	}
	key := model.Key{Kind: kind, Namespace: namespace, Name: short}
	if kind == model.KindMesh {
		key = model.MeshKey
	}
	r, err := model.New(key, created, m)
	if err != nil {
		t.Fatalf("%v %s: %v", kind, name, err)
	}
	return r
}

// west is the origin of another cluster's records.
var west = origin.New("west", "files")

// of returns the record of another cluster with the same content.
func of(t testing.TB, from origin.Origin, r model.Record) model.Record {
	t.Helper()
	key := r.Meta().Key
	key.Origin = from
	moved, err := model.New(key, r.Meta().Created, r.Body())
	if err != nil {
		t.Fatal(err)
	}
	return moved
}

func snapshot(records ...model.Record) *mirror.Snapshot {
	return mirror.Empty().Apply(1, records, nil).New
}

// svc returns a Kubernetes service; each port is "name:number:protocol".
func svc(t testing.TB, name, address string, ports ...string) model.Record {
	t.Helper()
	namespace, short, _ := strings.Cut(name, "/")
	host, _, _ := strings.Cut(short, "@")
	var b strings.Builder
	fmt.Fprintf(&b, "hosts: [%s.%s.svc.cluster.local]\nexportTo: ['*']\nselector: {app: %s}\n", host, namespace, host)
	if address == "None" {
		b.WriteString("headless: true\n")
	} else if address != "" {
		fmt.Fprintf(&b, "addresses: [%s]\n", address)
	}
	b.WriteString("ports:\n")
	for _, p := range ports {
		f := strings.Split(p, ":")
		fmt.Fprintf(&b, "- {name: %s, number: %s, protocol: PROTOCOL_%s, targetNumber: 1%s}\n", f[0], f[1], f[2], f[1])
	}
	return rec(t, model.KindService, name, b.String())
}

// eps returns a slice of endpoints; each address is "ip", "ip version" or "ip version !" (not ready).
func eps(t testing.TB, name string, ports string, addresses ...string) model.Record {
	t.Helper()
	namespace, short, _ := strings.Cut(name, "/")
	service, _, _ := strings.Cut(short, "-")
	var b strings.Builder
	fmt.Fprintf(&b, "hosts: [%s.%s.svc.cluster.local]\nports: [%s]\nendpoints:\n", service, namespace, ports)
	for _, a := range addresses {
		f := append(strings.Fields(a), "v1", "")
		health := "HEALTH_READY"
		if strings.HasSuffix(a, "!") {
			health = "HEALTH_NOT_READY"
		}
		fmt.Fprintf(&b, "- {address: %s, labels: {app: %s, version: %s}, health: %s, namespace: %s}\n", f[0], service, f[1], health, namespace)
	}
	return rec(t, model.KindEndpoints, name, b.String())
}

func node(namespace, name string, labels ...string) view.Node {
	n := view.Node{Name: name, Namespace: namespace, Domain: view.DefaultDomain, Addresses: []string{"10.1.9.9"}, Caps: xds.StockCaps, Labels: map[string]string{},
		Metadata: map[string]string{"NODE_NAME": fmt.Sprintf("node-%d", len(labels)%2)}}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		n.Labels[k] = v
	}
	return n
}

func planFor(s *mirror.Snapshot, n view.Node) *manifest.Set { return Fresh(s, view.Of(s, n), "") }

func names(set *manifest.Set, t xds.Type) string {
	var out []string
	for _, r := range set.Types[t].Sorted() {
		out = append(out, r.Name)
	}
	return strings.Join(out, " ")
}

func decode[M proto.Message](t testing.TB, set *manifest.Set, kind xds.Type, name string, m M) M {
	t.Helper()
	r := set.Types[kind].Get(name)
	if r == nil {
		t.Fatalf("no %s %s; there are: %s", kind.Noun(), name, names(set, kind))
	}
	if err := proto.Unmarshal(r.Body(), m); err != nil {
		t.Fatal(err)
	}
	return m
}

func clusterOf(t testing.TB, set *manifest.Set, name string) *clusterv3.Cluster {
	return decode(t, set, xds.Cluster, name, &clusterv3.Cluster{})
}

func routesOfSet(t testing.TB, set *manifest.Set, name string) *routev3.RouteConfiguration {
	return decode(t, set, xds.Route, name, &routev3.RouteConfiguration{})
}

func listenerOf(t testing.TB, set *manifest.Set, name string) *listenerv3.Listener {
	return decode(t, set, xds.Listener, name, &listenerv3.Listener{})
}

// addresses returns the addresses that requests are sent to, without those that are only counted.
func addresses(t testing.TB, set *manifest.Set, name string) string {
	t.Helper()
	var out []string
	for _, l := range decode(t, set, xds.Endpoint, name, &endpointv3.ClusterLoadAssignment{}).Endpoints {
		for _, e := range l.LbEndpoints {
			a := e.GetEndpoint().GetAddress().GetSocketAddress()
			if e.GetHealthStatus() == corev3.HealthStatus_UNHEALTHY {
				continue
			}
			out = append(out, fmt.Sprintf("%s:%d", a.GetAddress(), a.GetPortValue()))
		}
	}
	return strings.Join(out, " ")
}

// domains returns a line "virtual host: its domains" for each virtual host.
func domains(rc *routev3.RouteConfiguration) string {
	var out []string
	for _, vh := range rc.VirtualHosts {
		out = append(out, vh.Name+": "+strings.Join(vh.Domains, " "))
	}
	return strings.Join(out, "\n")
}
