package plan

import (
	"fmt"
	"slices"
	"testing"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// A proxy that requested the name table may change to the view of others, when a rule ends that read its labels. These
// others get the table too, and are notified.
func TestNameTableComesWithAProxy(t *testing.T) {
	rule := rec(t, model.KindVirtualService, "shop/v", "{hosts: [x.example.com], http: [{match: [{sourceLabels: {tier: x}}], route: [{destination: {host: "+web+"}}]}]}")
	s := snapshot(svc(t, "shop/web", "10.96.0.1", "http:80:HTTP"), rule)
	p := New(Settings{Snapshot: s})
	asks, silent := p.Join(node("shop", "a", "tier=x")), p.Join(node("shop", "b"))
	if p.AskNames(asks); silent.Set().Names != nil {
		t.Fatal("both have one view from the beginning")
	}
	before := silent.Set()
	moved := p.Apply(s.Apply(2, nil, []model.Key{rule.Meta().Key}))
	if silent.View() != asks.View() || silent.Set() == before || silent.Set().Names == nil {
		t.Fatal("the table is missing")
	}
	for _, h := range []*Handle{asks, silent} {
		if !slices.ContainsFunc(moved, func(m Moved) bool { return m.Handle == h }) {
			t.Errorf("%s is not notified", h.Node.Name)
		}
	}
}

// namesIn returns a line for each name of a name table.
func namesIn(r *xds.Resource) (out []string) {
	if r == nil {
		return []string{"there is none"}
	}
	all, err := agentapi.DecodeNames(r.Any())
	if err != nil {
		return []string{err.Error()}
	}
	for _, n := range all {
		out = append(out, fmt.Sprintf("%s %v %s %s %s", n.Host, n.Addresses, n.Registry, n.Shortname, n.Namespace))
	}
	slices.Sort(out)
	return out
}

// The name table of a scope is planned once, for the first agent that requests it, and only in such scopes. Equal
// tables of two scopes are one resource. A proxy that did not request it is not notified when it changes.
func TestNameTableIsOneForEachScopeThatAsks(t *testing.T) {
	service := func(name, address string) model.Record {
		return &model.Service{Head: model.Head{Key: model.Key{Kind: model.KindService, Namespace: "a", Name: name}},
			Spec: &model.ServiceSpec{Hosts: []string{name + ".a.svc.cluster.local"}, ExportTo: []string{"*"}, Addresses: []string{address}, Ports: []*model.ServicePort{{Number: 80, Name: "http"}}}}
	}
	s := mirror.Empty().Apply(1, []model.Record{service("web", "10.0.0.1")}, nil).New
	p := New(Settings{Snapshot: s})
	one, two, other, silent := p.Join(node("a", "one")), p.Join(node("a", "two")), p.Join(node("b", "other")), p.Join(node("c", "silent"))
	if one.Set().Names != nil {
		t.Fatal("there is a table before anybody asks")
	}
	if moved := p.AskNames(one); len(moved) == 0 || p.AskNames(one) != nil {
		t.Error("the first to ask is not told, or is told twice")
	}
	p.AskNames(two)
	p.AskNames(other)
	if one.Set().Names == nil || one.Set().Names != two.Set().Names || one.Set().Names.Get("") != other.Set().Names.Get("") {
		t.Error("one table for each proxy")
	}
	if silent.Set().Names != nil || p.scopes[silent.View().Scope].names[""] != nil {
		t.Error("a table that nobody asks for")
	}
	if got := namesIn(one.Set().Names.Get("")); !slices.Equal(got, []string{"web.a.svc.cluster.local [10.0.0.1] Kubernetes web a"}) {
		t.Error(got)
	}
	before := silent.Set()
	moved := p.Apply(s.Apply(2, []model.Record{service("new", "10.0.0.2")}, nil))
	if len(moved) == 0 || silent.Set().Names != nil || len(namesIn(other.Set().Names.Get(""))) != 2 {
		t.Error("a name that came is not there")
	}
	if before == silent.Set() {
		t.Error("the service did not come to all")
	}
}

// A Service without addresses in the config cluster has the addresses of the Service in the proxy's own cluster, also
// if the proxy's agent resolves automatic addresses.
func TestAddressesOfOwnClusterPrecedeAutomaticOnes(t *testing.T) {
	const spec = "{hosts: [web.a.svc.cluster.local], exportTo: ['*'], addresses: [%s], ports: [{number: 80, name: http}]}"
	p := New(Settings{Snapshot: snapshot(rec(t, model.KindService, "a/web", fmt.Sprintf(spec, "")),
		of(t, west, rec(t, model.KindService, "a/web", fmt.Sprintf(spec, "10.3.0.1"))))})
	for _, capture := range []string{"", "true"} {
		n := node("a", "one"+capture)
		n.Addresses, n.Cluster, n.Metadata = []string{"10.1.0.9"}, "west", map[string]string{"DNS_CAPTURE": capture}
		h := p.Join(n)
		p.AskNames(h)
		if got := namesIn(h.Set().Names.Get("")); !slices.Equal(got, []string{"web.a.svc.cluster.local [10.3.0.1] Kubernetes web a"}) {
			t.Errorf("DNS_CAPTURE %q: %q", capture, got)
		}
	}
}

// With local names (ENABLE_MULTICLUSTER_HEADLESS=false) the name of a headless service resolves to the endpoints of the
// proxy's own cluster only; names of single Pods of other clusters still resolve, as with istiod.
func TestLocalNamesOfHeadless(t *testing.T) {
	const host = "db.shop.svc.cluster.local"
	at := func(address, pod, cluster string) model.Record {
		return rec(t, model.KindEndpoints, "shop/db-1", fmt.Sprintf("{hosts: [%s], endpoints: [{address: %s, hostname: %s, cluster: %s}]}", host, address, pod, cluster))
	}
	service := func(local bool) model.Record {
		return rec(t, model.KindService, "shop/db", fmt.Sprintf("{hosts: [%s], exportTo: ['*'], headless: true, localNames: %v, ports: [{number: 9, name: tcp}]}", host, local))
	}
	pods := []string{"db-0.db.shop.svc.cluster.local [10.1.0.1] Kubernetes db-0.db shop", "db-1.db.shop.svc.cluster.local [10.2.0.1] Kubernetes db-1.db shop"}
	for local, want := range map[bool]string{
		false: "db.shop.svc.cluster.local [10.1.0.1 10.2.0.1] Kubernetes db shop",
		true:  "db.shop.svc.cluster.local [10.1.0.1] Kubernetes db shop",
	} {
		p := New(Settings{Snapshot: snapshot(service(local), at("10.1.0.1", "db-0", "east"), of(t, west, at("10.2.0.1", "db-1", "west")))})
		h := p.Join(node("shop", "a"))
		p.AskNames(h)
		if got := namesIn(h.Set().Names.Get("")); !slices.Equal(got, append(slices.Clone(pods), want)) {
			t.Errorf("local %v: %q", local, got)
		}
	}
}

// A host with automatic addresses is in the table with the one of the proxy's family if the agent answers the Pod's DNS
// queries; for other agents the host is left out, as is a host without addresses, so that the Pod's servers answer.
func TestNameTableHasAutomaticAddresses(t *testing.T) {
	entry := &model.Service{Head: model.Head{Key: model.Key{Kind: model.KindServiceEntry, Namespace: "a", Name: "db"}},
		Spec: &model.ServiceSpec{Hosts: []string{"db.example.com"}, ExportTo: []string{"*"}, Ports: []*model.ServicePort{{Number: 5432, Name: "tcp"}},
			Automatic: []*model.HostAddresses{{Host: "db.example.com", Addresses: []string{"240.240.0.1", "2001:2::1"}}}}}
	p := New(Settings{Snapshot: mirror.Empty().Apply(1, []model.Record{entry}, nil).New})
	silent := p.Join(node("a", "silent"))
	want := [][]string{{"db.example.com [240.240.0.1] External  "}, {"db.example.com [240.240.0.1] External  "}, {"db.example.com [2001:2::1] External  "}, nil}
	for i, h := range []*Handle{p.Join(resolvers()[0]), p.Join(resolvers()[1]), p.Join(resolvers()[2]), silent} {
		p.AskNames(h)
		if got := namesIn(h.Set().Names.Get("")); !slices.Equal(got, want[i]) {
			t.Errorf("%s: %q, want %q", h.Node.Name, got, want[i])
		}
	}
}
