package serve

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/push/xds"
)

// silent returns a port that accepts connections and sends nothing.
func silent(t *testing.T) uint32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
		}
	}()
	return uint32(l.Addr().(*net.TCPAddr).Port)
}

// warmsForEver returns a cluster that stays warming, because its host never answers Envoy's health check.
func warmsForEver(t *testing.T, name string) *xds.Resource {
	t.Helper()
	r := encode(xds.Cluster, name, &clusterv3.Cluster{Name: name, ConnectTimeout: durationpb.New(time.Second),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{
			{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: socket("127.0.0.1", silent(t))}}}}}}},
		HealthChecks: []*corev3.HealthCheck{{Timeout: durationpb.New(time.Hour), Interval: durationpb.New(time.Hour),
			UnhealthyThreshold: wrapperspb.UInt32(1), HealthyThreshold: wrapperspb.UInt32(1),
			HealthChecker: &corev3.HealthCheck_HttpHealthCheck_{HttpHealthCheck: &corev3.HealthCheck_HttpHealthCheck{Path: "/"}}}}})
	r.WarmsUnseen = true
	return r
}

// denies makes a listener refuse requests for a path.
func denies(path string) func(*listenerv3.Listener) {
	return func(l *listenerv3.Listener) {
		config := l.FilterChains[0].Filters[0].GetTypedConfig()
		manager := &hcmv3.HttpConnectionManager{}
		if err := config.UnmarshalTo(manager); err != nil {
			panic(err)
		}
		manager.HttpFilters = append([]*hcmv3.HttpFilter{{Name: "envoy.filters.http.rbac", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&rbacv3.RBAC{
			Rules: &rbacconfigv3.RBAC{Action: rbacconfigv3.RBAC_DENY, Policies: map[string]*rbacconfigv3.Policy{"deny": {
				Principals: []*rbacconfigv3.Principal{{Identifier: &rbacconfigv3.Principal_Any{Any: true}}},
				Permissions: []*rbacconfigv3.Permission{{Rule: &rbacconfigv3.Permission_UrlPath{UrlPath: &matcherv3.PathMatcher{
					Rule: &matcherv3.PathMatcher_Path{Path: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: path}}}}}}}}}},
		})}}}, manager.HttpFilters...)
		l.FilterChains[0].Filters[0].ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: pack(manager)}
	}
}

// paths returns a route configuration in which each path leads to the cluster with its name.
func paths(name string, clusters ...string) *xds.Resource {
	host := &routev3.VirtualHost{Name: "all", Domains: []string{"*"}}
	for _, c := range clusters {
		host.Routes = append(host.Routes, &routev3.Route{Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/" + c}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: c}}}})
	}
	return encode(xds.Route, name, &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{host}})
}

// within fails if the condition is not true in time.
func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	began := time.Now()
	eventually(t, what, ok)
	if took := time.Since(began); took > d {
		t.Errorf("%s: after %v, want %v at most", what, took, d)
	}
}

// answers reports whether a request on a new connection has the wanted status; existing connections may still belong to
// the old listener.
func answers(url string, want int) func() bool {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	return func() bool {
		resp, err := client.Get(url)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == want
	}
}

// While one cluster stays warming, services and policies are added: each policy is active at once, each service with a
// warm cluster is served, and the stream continues. Removing the cluster ends the waiting. An Envoy that reconnects
// meanwhile receives all that it needs.
func TestEnvoyWarmsForEver(t *testing.T) {
	t.Parallel()
	for _, api := range []string{"DELTA_GRPC", "GRPC"} {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			port := freePort(t)
			url := fmt.Sprintf("http://127.0.0.1:%d/", port)
			p := newPlanner(cluster("one"), endpoints("one", backend(t, "one")), listen("in", port, "r"), paths("r", "one"))
			s, addr := start(t, Config{Planner: p, AckDeadline: 2 * time.Second, ResumeTime: time.Second})
			w := newWire(t, addr)
			e := startEnvoy(t, w.Addr().String(), api)
			e.Live()
			eventually(t, "traffic", answers(url+"one", 200))
			stream := s.Inspect()[0].ID

			p.put(warmsForEver(t, "cold"))
			eventually(t, "it warms", func() bool { return e.stat("cluster_manager.warming_clusters") == 1 })
			names := []string{"one"}
			const edits = 20
			for i := range edits {
				name := fmt.Sprintf("s%d", i)
				names = append(names, name)
				p.put(cluster(name), endpoints(name, backend(t, name)), paths("r", names...), listen("in", port, "r", denies("/"+names[i])))
				within(t, 2*time.Second, "the policy", answers(url+names[i], 403))
			}
			eventually(t, "the services that warm are served", answers(url+names[edits], 200))
			names = append(names, "cold")
			p.put(paths("r", names...))
			within(t, 4*time.Second, "a route to what warms goes after its time", answers(url+"cold", 503))
			eventually(t, "it is said that it warms", func() bool {
				i := s.Inspect()[0].Warming
				return !i.Since.IsZero() && len(i.Clusters) > 0 && i.Clusters[0] == "cold"
			})
			if i := s.Inspect(); len(i) != 1 || i[0].ID != stream {
				t.Errorf("streams: %+v", i)
			}

			w.cut()
			eventually(t, "it connects again", func() bool {
				i := s.Inspect()
				return len(i) == 1 && i[0].ID != stream && i[0].Types[xds.Route].Subscribed
			})
			if s.Inspect()[0].Types[xds.Cluster].Subscribed {
				t.Error("it asks for clusters while one warms: what it needs may be another thing now")
			}
			p.put(listen("in", port, "r", denies("/one")))
			within(t, 2*time.Second, "a policy after that", answers(url+"one", 403))
			p.put(paths("r", append(names, "late")...), cluster("late"), endpoints("late", backend(t, "late")))
			within(t, 4*time.Second, "a service after that", answers(url+"late", 200))
			if i := s.Inspect()[0]; !i.Warming.NotRequested {
				t.Errorf("it is not said that it does not ask for clusters: %+v", i.Warming)
			}
			p.edit(nil, xds.Ref{Type: xds.Cluster, Name: "cold"})
			within(t, 2*time.Second, "nothing warms", func() bool { return e.stat("cluster_manager.warming_clusters") == 0 })
			eventually(t, "all is acknowledged", func() bool {
				i := s.Inspect()
				return len(i) == 1 && i[0].Unacked == 0 && i[0].Warming.Since.IsZero() && !i[0].Warming.NotRequested && i[0].Types[xds.Cluster].Synced
			})
		})
	}
}
