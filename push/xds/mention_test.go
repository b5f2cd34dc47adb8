package xds

import (
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// filter is a listener with one network filter.
func filter(t *testing.T, config *anypb.Any) *Resource {
	t.Helper()
	r, err := Encode(Listener, "10.0.0.1_80", &listenerv3.Listener{Name: "10.0.0.1_80", FilterChains: []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{{Name: "envoy.filters.network.tcp_proxy", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: config}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A name is found wherever it is a field, in messages inside of messages, and not where it is a part of another name.
func TestNames(t *testing.T) {
	listener := filter(t, Any(&tcpv3.TcpProxy{StatPrefix: "p", ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: "outbound|80||a.example.com"}}))
	host, err := EncodeFragment("a:80", 2, &routev3.VirtualHost{Name: "a:80", Domains: []string{"a", "a.shop"}, Routes: []*routev3.Route{{
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "outbound|81||b"}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	long := "outbound|80||" + strings.Repeat("a", 200) // whose length is of two bytes
	weighted := Any(&tcpv3.TcpProxy{ClusterSpecifier: &tcpv3.TcpProxy_WeightedClusters{WeightedClusters: &tcpv3.TcpProxy_WeightedCluster{
		Clusters: []*tcpv3.TcpProxy_WeightedCluster_ClusterWeight{{Name: long, Weight: 1}, {Name: "plain", Weight: 2}}}}})
	route, err := EncodeRope(Route, "80", &routev3.RouteConfiguration{Name: "80"}, []*Fragment{host})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]*Resource{
		"outbound|80||a.example.com":    {listener},
		"outbound|80||a.example":        nil,
		"outbound|80||a.example.com.au": nil,
		"outbound|81||b":                {route},
		long:                            {filter(t, weighted)},
		"plain":                         {filter(t, weighted)},
		"a.shop":                        nil, // a host
	} {
		for _, r := range []*Resource{listener, route, filter(t, weighted)} {
			is := slices.ContainsFunc(want, func(w *Resource) bool { return w.Version == r.Version })
			if got := r.Names(name); got != is {
				t.Errorf("%v %s names %q: %v", r.Type, r.Name, name, got)
			}
		}
	}
	if (*Resource)(nil).Names("a") || (*Resource)(nil).Guards() {
		t.Error("no resource names something")
	}
}

// What authorises, authenticates or encrypts is found by its type, also where its configuration is discovered.
func TestGuards(t *testing.T) {
	for url, want := range map[string]bool{
		"envoy.extensions.filters.http.rbac.v3.RBAC":                                        true,
		"envoy.extensions.filters.network.rbac.v3.RBAC":                                     true,
		"envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication":                      true,
		"envoy.extensions.filters.http.ext_authz.v3.ExtAuthz":                               true,
		"envoy.extensions.filters.network.ext_authz.v3.ExtAuthz":                            true,
		"envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext":                    true,
		"envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector":                   false,
		"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy":                            false,
		"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager": false,
	} {
		if got := filter(t, &anypb.Any{TypeUrl: "type.googleapis.com/" + url}).Guards(); got != want {
			t.Errorf("%s: %v", url, got)
		}
	}
}

// Bytes that are no message, and messages inside of messages without end, are searched without harm.
func TestNamesOfAnything(t *testing.T) {
	deep := []byte("x")
	for range 300 {
		deep = append([]byte{0x0a, byte(len(deep)%128) | 0x80, byte(len(deep) / 128)}, deep...)
	}
	for _, b := range [][]byte{deep, {0x0a}, {0xff, 0xff}, []byte("outbound|80||a"), nil} {
		r := &Resource{head: b}
		if r.Names("outbound|80||a") {
			t.Errorf("%.20q: a name is found", b)
		}
	}
}
