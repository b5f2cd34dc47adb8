package plan

import (
	"fmt"
	"strings"
	"testing"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// changedClusters returns the services of namespace b whose clusters differ.
func changedClusters(before, after *manifest.Set) string {
	var names []string
	for _, name := range []string{"db", "web"} {
		cluster := "outbound|80||" + name + ".b.svc.cluster.local"
		if before.Types[xds.Cluster].Get(cluster).Version != after.Types[xds.Cluster].Get(cluster).Version {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// A PeerAuthentication changes the clusters of those services only for whose endpoints it changes the mode; nothing is
// built for other services. A PeerAuthentication that changes no endpoint's mode notifies no proxy.
func TestOnlyChangedModesChangeClusters(t *testing.T) {
	const off, strict, permissive = "mtls: {mode: DISABLE}", "mtls: {mode: STRICT}", "mtls: {mode: PERMISSIVE}"
	shared := &pool.Pool{}
	p := New(Settings{Pool: shared, Snapshot: snapshot(svc(t, "b/web", "10.96.0.1", "http:80:HTTP"), svc(t, "b/db", "10.96.0.2", "http:80:HTTP"),
		svc(t, "c/web", "10.96.0.3", "http:80:HTTP"), mutual(t, "web", "web"), mutual(t, "db", "db"))})
	n := node("a", "x")
	n.Caps |= xds.CapIdentity
	h := p.Join(n)
	edit := func(r ...model.Record) func() int {
		return func() int { return len(p.Apply(p.Snapshot().Apply(p.Snapshot().Revision()+1, r, nil))) }
	}
	gone := func(name string) func() int {
		return func() int {
			key := model.Key{Kind: model.KindPeerAuthentication, Namespace: "b", Name: name}
			return len(p.Apply(p.Snapshot().Apply(p.Snapshot().Revision()+1, nil, []model.Key{key})))
		}
	}
	peer := func(name, selector, text string) func() int { return edit(peerAuthentication(t, name, selector, text)) }
	none := work{}
	for _, c := range []struct {
		name    string
		step    func() int
		changed string
		most    work // the largest number of built resources
		moved   int
	}{
		{"strict", peer("b/n@1", "", strict), "", none, 0},
		{"another workload's is off", peer("b/o@2", "app: other", off), "", none, 0},
		{"strict to permissive beside it", peer("b/n@1", "", permissive), "", none, 0},
		{"a workload's is off", peer("b/d@3", "app: db", off), "db", work{clusters: 1, endpoints: 1}, 1},
		{"a younger one for the same", peer("b/e@4", "app: db", strict), "", none, 0},
		{"the namespace's is off, too", peer("b/n@1", "", off), "db web", work{clusters: 2, endpoints: 1}, 1},
		{"the mesh's is off: another namespace's, and the proxy's own ports", peer("istio-system/m", "", off), "", work{clusters: 1, listeners: 1}, 1},
		{"some are off, as all are", peer("b/w@9", "version: v3", off), "", none, 0},
		{"what is off stays off by another", gone("e"), "", none, 0},
		{"the workload's is gone, the namespace's holds", gone("d"), "", none, 0},
		{"a port that is on", peer("b/v@5", "app: web", "{mtls: {mode: DISABLE}, portLevelMtls: {8080: {mode: STRICT}}}"), "web", work{clusters: 1, endpoints: 1}, 1},
		{"a port that is off, as the rest", peer("b/v@5", "app: web", "{mtls: {mode: DISABLE}, portLevelMtls: {8080: {mode: DISABLE}}}"), "web", work{clusters: 1, endpoints: 1}, 1},
		{"some may be on, but where an older one picks all", peer("b/u@6", "version: v2", strict), "db", work{clusters: 1}, 1},
	} {
		before, moved := h.Set(), 0
		built := measure(shared, func() { moved = c.step() })
		if got := changedClusters(before, h.Set()); got != c.changed || moved != c.moved {
			t.Errorf("%s: clusters of %q changed and %d moved, want %q and %d", c.name, got, moved, c.changed, c.moved)
		}
		// Resources that were built earlier may still be in the pool.
		if over := (work{clusters: max(built.clusters, c.most.clusters), endpoints: max(built.endpoints, c.most.endpoints), listeners: max(built.listeners, c.most.listeners)}); over != c.most || built.routes+built.hosts != 0 {
			t.Errorf("%s: built %+v, want %+v at most", c.name, built, c.most)
		}
		if bad := p.Check(h); len(bad) > 0 {
			t.Errorf("%s: %v", c.name, bad)
		}
	}
}

// STRICT and PERMISSIVE are the same mode for clusters for Envoy. An edit between them plans the hosts again only for
// gRPC clients, and in namespaces where another policy disables mTLS.
func TestStrictPlansHostsOfGRPCClientsAlone(t *testing.T) {
	const services, inNamespace, scopes = 60, 10, 2
	p, _, handles := bigPlanner(t, services, scopes)
	p.backgroundFrom = 0
	planned := func(policy, mode string) (pieces int) {
		r := peerAuthentication(t, policy, "", "mtls: {mode: "+mode+"}")
		p.Begin(p.Snapshot().Apply(p.Snapshot().Revision()+1, []model.Record{r}, nil))
		for p.Step(func() bool { pieces++; return true }) {
		}
		p.End()
		return pieces
	}
	planned("istio-system/m", "PERMISSIVE")
	if n := planned("istio-system/m", "STRICT"); n >= services {
		t.Errorf("STRICT for the mesh is planned in %d pieces, although no cluster depends on it", n)
	}
	if n := planned("ns3/off", "DISABLE"); n < scopes*inNamespace || n >= scopes*services {
		t.Errorf("DISABLE for a namespace is planned in %d pieces", n)
	}
	few := planned("istio-system/m", "PERMISSIVE")
	if few < scopes*inNamespace || few >= scopes*services {
		t.Errorf("PERMISSIVE for the mesh is planned in %d pieces, although mTLS is off in one namespace", few)
	}
	handles = append(handles, p.Join(app("ns0", "client")))
	if n := planned("istio-system/m", "STRICT"); n < few+2*services {
		t.Errorf("STRICT for the mesh is planned in %d pieces, and in %d without the scope of a gRPC client", n, few)
	}
	for _, h := range handles {
		if bad := p.Check(h); len(bad) > 0 {
			t.Error(bad)
		}
	}
}

// mutual returns a slice of a service of namespace b, with one endpoint that supports mTLS for each of the apps.
func mutual(t testing.TB, service string, apps ...string) model.Record {
	var b strings.Builder
	fmt.Fprintf(&b, "hosts: [%s.b.svc.cluster.local]\nports: [{name: http, number: 8080}]\nendpoints:\n", service)
	for i, app := range apps {
		fmt.Fprintf(&b, "- {address: 10.1.0.%d, labels: {app: %s}, namespace: b, serviceAccount: x, mtls: true}\n", i+1, app)
	}
	return rec(t, model.KindEndpoints, "b/"+service+"-1", b.String())
}

// When an endpoint has other labels than its service selects, its policies are part of the clusters before the endpoint
// is added, and until after it is removed.
func TestOutOfSelectorEndpointsBringTheirPolicies(t *testing.T) {
	p := New(Settings{Snapshot: snapshot(svc(t, "b/web", "10.96.0.1", "http:80:HTTP"), svc(t, "b/db", "10.96.0.2", "http:80:HTTP"), mutual(t, "web", "web"), mutual(t, "db", "db"),
		peerAuthentication(t, "b/o", "app: other", "mtls: {mode: DISABLE}"))})
	n := node("a", "x")
	n.Caps |= xds.CapIdentity
	h := p.Join(n)
	first := h.Set()
	for _, c := range []struct {
		name    string
		slice   model.Record
		waits   bool
		changed string // compared with the start
	}{
		{"a pod of the service", mutual(t, "web", "web", "web"), false, ""},
		{"one of another", mutual(t, "web", "web", "web", "other"), true, "web"},
		{"one more of the other", mutual(t, "web", "web", "web", "other", "other"), false, "web"},
		{"none of the other", mutual(t, "web", "web"), true, ""},
		{"one of a third", mutual(t, "web", "web", "third"), false, ""},
	} {
		change := p.Snapshot().Apply(p.Snapshot().Revision()+1, []model.Record{c.slice}, nil)
		_, rest := p.PlanEndpoints(change, false)
		if waits := len(rest) > 0; waits != c.waits {
			t.Errorf("%s: it waits for the configuration path: %v, want %v", c.name, waits, c.waits)
		}
		p.Apply(mirror.Change{New: change.New, Edits: rest})
		if got := changedClusters(first, h.Set()); got != c.changed {
			t.Errorf("%s: clusters of %q changed, want %q", c.name, got, c.changed)
		}
		if bad := p.Check(h); len(bad) > 0 {
			t.Errorf("%s: %v", c.name, bad)
		}
	}
	// A policy that selects all that the service selects does not select the third one.
	for i, off := range []model.Record{peerAuthentication(t, "b/w", "app: web", "mtls: {mode: DISABLE}"), peerAuthentication(t, "b/n", "", "mtls: {mode: DISABLE}")} {
		before := h.Set()
		p.Apply(p.Snapshot().Apply(p.Snapshot().Revision()+1, []model.Record{off}, nil))
		if got := changedClusters(before, h.Set()); !strings.Contains(got, "web") {
			t.Errorf("policy %d: clusters of %q changed", i, got)
		}
	}
}
