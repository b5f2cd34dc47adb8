package plan

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protojson"
	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

func peerAuthentication(t testing.TB, name, selector, text string) model.Record {
	t.Helper()
	spec := security(t, model.KindPeerAuthentication, name, text, &securityv1.PeerAuthentication{}).(*model.Policy)
	meshWide := selector == "" && spec.Key.Namespace == "istio-system"
	return rec(t, model.KindPeerAuthentication, name, fmt.Sprintf("{selector: {%s}, meshWide: %v, istio: %q}", selector, meshWide, base64.StdEncoding.EncodeToString(spec.Spec.Istio)))
}

func assignment(t testing.TB, set *manifest.Set, name string) *endpointv3.ClusterLoadAssignment {
	t.Helper()
	return decode(t, set, xds.Endpoint, name, &endpointv3.ClusterLoadAssignment{})
}

func slice(t testing.TB, account string) model.Record {
	return rec(t, model.KindEndpoints, "b/web-1", `{hosts: [web.b.svc.cluster.local], ports: [{name: http, number: 8080}, {name: raw, number: 9000}], endpoints: [
		{address: 10.1.0.1, labels: {app: web, version: v1}, namespace: b, serviceAccount: `+account+`, mtls: true},
		{address: 10.1.0.2, labels: {app: web, version: v2}, namespace: b, serviceAccount: other, mtls: true}, {address: 10.1.0.3, labels: {app: web}}]}`)
}

// A client uses mTLS to the endpoints whose labels state it, except those for which a PeerAuthentication disables it.
func TestEndpointModes(t *testing.T) {
	const off, on, unset = "mtls: {mode: DISABLE}", "mtls: {mode: STRICT}", "mtls: {mode: UNSET}"
	for _, c := range []struct {
		name      string
		peers     []model.Record
		http, raw string // addresses with mTLS at the HTTP and at the TCP port
	}{
		{"nothing stated", nil, "1 2", "1 2"},
		{"the mesh's", []model.Record{peerAuthentication(t, "istio-system/m", "", off)}, "", ""},
		{"the namespace's before the mesh's", []model.Record{peerAuthentication(t, "istio-system/m", "", off), peerAuthentication(t, "b/n", "", on)}, "1 2", "1 2"},
		{"unset inherits", []model.Record{peerAuthentication(t, "istio-system/m", "", off), peerAuthentication(t, "b/n", "", unset)}, "", ""},
		{"the workload's before the namespace's", []model.Record{peerAuthentication(t, "b/n", "", off), peerAuthentication(t, "b/w", "version: v1", on)}, "1", "1"},
		{"a port's before the rest", []model.Record{peerAuthentication(t, "b/w", "version: v1", "{mtls: {mode: STRICT}, portLevelMtls: {9000: {mode: DISABLE}}}")}, "1 2", "2"},
		{"the oldest of two", []model.Record{peerAuthentication(t, "b/n@2", "", off), peerAuthentication(t, "b/o@1", "", on)}, "1 2", "1 2"},
		{"another namespace's", []model.Record{peerAuthentication(t, "c/n", "", off)}, "1 2", "1 2"},
		{"one that selects in the root namespace alone", []model.Record{peerAuthentication(t, "istio-system/w", "app: web", off)}, "1 2", "1 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := snapshot(append(c.peers, svc(t, "b/web", "10.96.0.1", "http:80:HTTP", "raw:9000:TCP"), slice(t, "web"))...)
			n := node("a", "x")
			n.Caps |= xds.CapIdentity
			set := planFor(s, n)
			for cluster, want := range map[string]string{"outbound|80||web.b.svc.cluster.local": c.http, "outbound|9000||web.b.svc.cluster.local": c.raw} {
				var got []string
				for _, l := range assignment(t, set, cluster).Endpoints {
					for _, e := range l.LbEndpoints {
						if e.Metadata.FilterMetadata["envoy.transport_socket_match"] != nil {
							got = append(got, strings.TrimPrefix(e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress(), "10.1.0."))
						}
					}
				}
				if strings.Join(got, " ") != want {
					t.Errorf("%s: mTLS to %v, want %s", cluster, got, want)
				}
			}
		})
	}
}

// A changed mode changes the cluster, too. A proxy without an identity does not receive any of it.
func TestModeChangesCluster(t *testing.T) {
	const name = "outbound|80||web.b.svc.cluster.local"
	p := New(Settings{Snapshot: snapshot(svc(t, "b/web", "10.96.0.1", "http:80:HTTP"), slice(t, "web"))})
	n := node("a", "x")
	without := p.Join(n)
	n.Caps |= xds.CapIdentity
	h := p.Join(n)
	before, plain := h.Set().Types[xds.Cluster].Get(name), without.Set().Types[xds.Cluster].Get(name)
	p.Apply(p.Snapshot().Apply(2, []model.Record{peerAuthentication(t, "b/n", "", "mtls: {mode: DISABLE}")}, nil))
	if h.Set().Types[xds.Cluster].Get(name).Version == before.Version {
		t.Error("mTLS is turned off, and the cluster is the same: connections would stay")
	}
	if without.Set().Types[xds.Cluster].Get(name).Version != plain.Version || len(clusterOf(t, without.Set(), name).TransportSocketMatches) != 0 {
		t.Error("a proxy without an identity was told of mTLS")
	}
	p.Apply(p.Snapshot().Apply(3, []model.Record{peerAuthentication(t, "b/n", "", "mtls: {mode: STRICT}")}, nil))
	if h.Set().Types[xds.Cluster].Get(name).Version != before.Version {
		t.Error("mTLS is back, and the cluster is another one than before")
	}
}

// Endpoints with another service account arrive together with the clusters that accept this account, not earlier.
func TestNewAccountWaitsForCluster(t *testing.T) {
	const name = "outbound|80||web.b.svc.cluster.local"
	p := New(Settings{Snapshot: snapshot(svc(t, "b/web", "10.96.0.1", "http:80:HTTP"), slice(t, "web"))})
	n := node("a", "x")
	n.Caps |= xds.CapIdentity
	h := p.Join(n)
	c := p.Snapshot().Apply(2, []model.Record{slice(t, "fresh")}, nil)
	moved, rest := p.PlanEndpoints(c, false)
	if len(moved) != 0 || len(rest) != 1 {
		t.Errorf("the fast path moved %v and left %v", moved, rest)
	}
	p.Apply(mirror.Change{New: c.New, Edits: rest})
	raw, err := protojson.Marshal(clusterOf(t, h.Set(), name).TransportSocketMatches[0])
	if err != nil || !strings.Contains(string(raw), "spiffe://cluster.local/ns/b/sa/fresh") || strings.Contains(string(raw), "/sa/web") {
		t.Errorf("the cluster believes %s", raw)
	}
}

// Envoy does not know the endpoints of a headless service in advance: mTLS is used to all of them, or to none.
func TestHeadlessMTLS(t *testing.T) {
	const name = "outbound|9000||web.b.svc.cluster.local"
	at := func(mtls string) model.Record {
		return rec(t, model.KindEndpoints, "b/web-1", "{hosts: [web.b.svc.cluster.local], ports: [{name: raw, number: 9000}], endpoints: [{address: 10.1.0.1, mtls: true}, {address: 10.1.0.2, mtls: "+mtls+"}]}")
	}
	p := New(Settings{Snapshot: snapshot(svc(t, "b/web", "None", "raw:9000:TCP"), at("true"))})
	n := node("a", "x")
	n.Caps |= xds.CapIdentity
	h := p.Join(n)
	if clusterOf(t, h.Set(), name).TransportSocket == nil {
		t.Error("all have mTLS, and it is not used")
	}
	p.Apply(p.Snapshot().Apply(2, []model.Record{at("false")}, nil))
	if clusterOf(t, h.Set(), name).TransportSocket != nil {
		t.Error("one has no mTLS, and would be spoken to with it")
	}
	if v := view.Of(p.Snapshot(), n); !v.Scope.Caps.Has(xds.CapIdentity) {
		t.Error("the identity is no part of the scope")
	}
}
