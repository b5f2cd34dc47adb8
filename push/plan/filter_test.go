package plan

import (
	"strings"
	"testing"

	// The type that the patches of these tests use.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/buffer/v3"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

func filterOf(t testing.TB, apply, match, patch string) model.Record {
	return rec(t, model.KindEnvoyFilter, "shop/f", "configPatches: [{applyTo: "+apply+", match: {"+match+"}, patch: {"+patch+"}}]")
}

// A patch of an EnvoyFilter changes, adds or removes the resources that it matches; the builders merge its value.
func TestPatches(t *testing.T) {
	base := snapshot(svc(t, "shop/web", "10.96.0.1", "http:80:HTTP", "raw:9000:TCP"), svc(t, "shop/api", "10.96.0.2", "http:80:HTTP"), svc(t, "data/db", "10.96.0.3", "tcp:5432:TCP"))
	n := node("shop", "web-1", "app=web")
	before := planFor(base, n)
	for _, c := range []struct {
		apply, match, patch string
		want                string // the differences: "type name", with + for added and - for removed
	}{
		{"CLUSTER", "context: SIDECAR_OUTBOUND, cluster: {service: " + web + ", portNumber: 80}", "operation: MERGE, value: {connect_timeout: 3s}", "cluster outbound|80||" + web},
		{"CLUSTER", "cluster: {service: " + web + "}", "operation: MERGE, value: {connect_timeout: 3s}", "cluster inbound|180||, cluster inbound|19000||, cluster outbound|80||" + web + ", cluster outbound|9000||" + web},
		{"CLUSTER", "context: SIDECAR_INBOUND, cluster: {portNumber: 180}", "operation: MERGE, value: {connect_timeout: 3s}", "cluster inbound|180||"},
		{"CLUSTER", "cluster: {name: PassthroughCluster}", "operation: MERGE, value: {connect_timeout: 3s}", "cluster PassthroughCluster"},
		{"CLUSTER", "cluster: {name: outbound|80||" + web + "}", "operation: REMOVE", "cluster -outbound|80||" + web + ", endpoint -outbound|80||" + web},
		{"CLUSTER", "context: ANY", "operation: ADD, value: {name: mine, type: STATIC, connect_timeout: 1s}", "cluster +mine"},
		{"CLUSTER", "context: SIDECAR_INBOUND", "operation: ADD, value: {name: mine, type: STATIC, connect_timeout: 1s}", "cluster +mine"},
		{"CLUSTER", "context: GATEWAY", "operation: ADD, value: {name: mine, type: STATIC, connect_timeout: 1s}", ""},
		{"CLUSTER", "context: ANY", "operation: ADD, value: {name: 'outbound|80||" + web + "', type: STATIC, connect_timeout: 9s}", "cluster outbound|80||" + web},
		{"LISTENER", "context: SIDECAR_OUTBOUND, listener: {portNumber: 9000}", "operation: MERGE, value: {per_connection_buffer_limit_bytes: 9}", "listener 10.96.0.1_9000"},
		{"LISTENER", "listener: {name: virtualInbound}", "operation: MERGE, value: {per_connection_buffer_limit_bytes: 9}", "listener virtualInbound"},
		{"LISTENER", "context: SIDECAR_OUTBOUND, listener: {portNumber: 80}", "operation: REMOVE", "listener -0.0.0.0_80, route -80"},
		{"LISTENER", "context: ANY", "operation: ADD, value: {name: mine, address: {socket_address: {address: 127.0.0.1, port_value: 7}}, filter_chains: [{filters: []}]}", "listener +mine"},
		{"HTTP_FILTER", "context: SIDECAR_INBOUND, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}", `operation: INSERT_FIRST, value: {name: x, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: 9}}`, "listener virtualInbound"},
		{"VIRTUAL_HOST", "routeConfiguration: {vhost: {name: '" + web + ":80'}}", "operation: REMOVE", "route 80"},
		{"VIRTUAL_HOST", "routeConfiguration: {name: '80'}", "operation: ADD, value: {name: mine, domains: [mine.org]}", "route 80"},
		{"VIRTUAL_HOST", "routeConfiguration: {name: '81'}", "operation: ADD, value: {name: mine, domains: [mine.org]}", ""},
		{"HTTP_ROUTE", "context: SIDECAR_OUTBOUND, routeConfiguration: {portNumber: 80}", "operation: MERGE, value: {route: {timeout: 9s}}", "route 80"},
		{"ROUTE_CONFIGURATION", "routeConfiguration: {name: '80'}", "operation: MERGE, value: {request_headers_to_remove: [x]}", "route 80"},
	} {
		s := base.Apply(2, []model.Record{filterOf(t, c.apply, c.match, c.patch)}, nil).New
		var got []string
		for kind := range xds.NumTypes {
			after := planFor(s, n)
			for _, d := range manifest.Diff(before.Types[kind], after.Types[kind]) {
				switch {
				case d.Old == nil:
					got = append(got, kind.Noun()+" +"+d.Name)
				case d.New == nil:
					got = append(got, kind.Noun()+" -"+d.Name)
				case d.Old.Version != d.New.Version:
					got = append(got, kind.Noun()+" "+d.Name)
				}
			}
		}
		if g := strings.Join(got, ", "); g != c.want {
			t.Errorf("%s {%s} {%s}:\n differs %s\nexpected %s", c.apply, c.match, c.patch, g, c.want)
		}
	}
}

// A virtual host that a patch adds keeps its domains: planned virtual hosts lose them, and a second patch with one of
// them is ignored for this domain. Both have a problem.
func TestAddedVirtualHosts(t *testing.T) {
	s := snapshot(svc(t, "shop/web", "10.96.0.1", "http:80:HTTP"), rec(t, model.KindEnvoyFilter, "shop/f", `
configPatches:
- {applyTo: VIRTUAL_HOST, match: {}, patch: {operation: ADD, value: {name: one, domains: [web, '*']}}}
- {applyTo: VIRTUAL_HOST, match: {}, patch: {operation: ADD, value: {name: two, domains: [two.org, web]}}}
- {applyTo: VIRTUAL_HOST, match: {}, patch: {operation: ADD, value: {nonsense: true}}}
`))
	p := New(Settings{Snapshot: s})
	got := domains(routesOfSet(t, p.Join(node("shop", "a")).Set(), "80"))
	if want := web + ":80: " + web + " web.shop web.shop.svc " + web + ". 10.96.0.1\none: web *"; got != want {
		t.Errorf("virtual hosts:\n%s\nwant\n%s", got, want)
	}
	var fields []string
	for _, f := range p.Problems() {
		fields = append(fields, f.Key.Name+" "+f.Field)
	}
	if got := strings.Join(fields, ", "); got != "web spec.hosts, f spec.configPatches[1].patch.value.domains, f spec.configPatches[2].patch.value" {
		t.Errorf("problems: %s (%v)", got, p.Problems())
	}
}

// TCP and TLS routes of a VirtualService become filter chains. A missing destination keeps the cluster name that it
// would have. TLS without a matching name passes through.
func TestStreamRoutes(t *testing.T) {
	s := snapshot(svc(t, "shop/db", "10.96.0.1", "tcp:5432:TCP", "tls:443:TLS"), svc(t, "shop/old", "10.96.0.2", "tcp:5432:TCP", "tls:443:TLS"), rec(t, model.KindVirtualService, "shop/v", `
hosts: [db.shop.svc.cluster.local]
tcp: [{match: [{port: 5432}], route: [{destination: {host: db.shop.svc.cluster.local}, weight: 9}, {destination: {host: old.shop.svc.cluster.local}, weight: 1}]}]
tls: [{match: [{sniHosts: [a.org]}], route: [{destination: {host: gone.org}}]}]
`))
	set := planFor(s, node("shop", "a"))
	tcp, tls := listenerOf(t, set, "10.96.0.1_5432").String(), listenerOf(t, set, "10.96.0.1_443").String()
	for _, want := range []string{"weighted_clusters", "outbound|5432||db.shop.svc.cluster.local", "outbound|5432||old.shop.svc.cluster.local", "weight:9"} {
		if !strings.Contains(tcp, want) {
			t.Errorf("no %s in %s", want, tcp)
		}
	}
	for _, want := range []string{`server_names:"a.org"`, "outbound|443||gone.org", xds.PassthroughChain} {
		if !strings.Contains(tls, want) {
			t.Errorf("no %s in %s", want, tls)
		}
	}
}

// The outbound traffic policy of the mesh applies to unknown destinations; a Sidecar's replaces it.
func TestOutboundPolicy(t *testing.T) {
	base := snapshot(svc(t, "shop/web", "10.96.0.1", "http:80:HTTP"), rec(t, model.KindMesh, "/mesh", "outboundTrafficPolicy: {mode: REGISTRY_ONLY}"))
	last := func(set *manifest.Set) string {
		hosts := routesOfSet(t, set, "80").VirtualHosts
		return hosts[len(hosts)-1].Name
	}
	if got := last(planFor(base, node("shop", "a"))); got != xds.BlockAll {
		t.Errorf("with REGISTRY_ONLY the last virtual host is %s", got)
	}
	s := base.Apply(2, []model.Record{sidecarOf(t, "shop/x", "outboundTrafficPolicy: {mode: ALLOW_ANY}")}, nil).New
	if got := last(planFor(s, node("shop", "a"))); got != xds.AllowAny {
		t.Errorf("with a Sidecar's ALLOW_ANY the last virtual host is %s", got)
	}
}

// An egress listener at a Unix socket carries all its hosts.
func TestUnixSocketEgress(t *testing.T) {
	s := snapshot(svc(t, "shop/web", "10.96.0.1", "http:80:HTTP", "more:8080:HTTP"), svc(t, "shop/api", "10.96.0.2", "http:8080:HTTP"),
		sidecarOf(t, "shop/x", "egress: [{bind: unix:///run/x.sock, port: {protocol: HTTP, name: u}, hosts: ['./*']}]"))
	set := planFor(s, node("shop", "a"))
	if got := names(set, xds.Listener); got != "unix:///run/x.sock virtualInbound virtualOutbound" {
		t.Errorf("listeners: %s", got)
	}
	if got := domains(routesOfSet(t, set, "unix:///run/x.sock")); strings.Count(got, "\n") != 2 || !strings.Contains(got, web+":80: ") {
		t.Errorf("virtual hosts:\n%s", got)
	}
}
