package xds

import (
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// filter returns a listener with one network filter.
func filter(t *testing.T, config *anypb.Any) *Resource {
	t.Helper()
	r, err := Encode(Listener, "10.0.0.1_80", &listenerv3.Listener{Name: "10.0.0.1_80", FilterChains: []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{{Name: "envoy.filters.network.tcp_proxy", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: config}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A name is found in every field, also in nested messages, but not as a part of another name.
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

// Filters that authorise or authenticate, and TLS, are found by their type, also where their configuration is
// discovered, and in the fragments of a rope.
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
		config := &listenerv3.Filter_TypedConfig{TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/" + url}}
		f, err := EncodeFragment("chain", 3, &listenerv3.FilterChain{Filters: []*listenerv3.Filter{{ConfigType: config}}})
		if err != nil {
			t.Fatal(err)
		}
		rope, err := EncodeRope(Listener, "l", &listenerv3.Listener{Name: "l"}, []*Fragment{f})
		if err != nil || rope.Guards() != want {
			t.Errorf("%s in a chain of a rope: %v, %v", url, rope.Guards(), err)
		}
	}
}

// Bytes that are not a message, and deeply nested messages, are searched without a failure.
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

// Replaced finds the fragments that have other contents under the same name: not new ones, not equal ones, wherever
// they are, also among those that are joined.
func TestReplaced(t *testing.T) {
	all := map[string]*Fragment{}
	rope := func(fragments ...string) *Resource {
		t.Helper()
		var tail []*Fragment
		for _, f := range fragments {
			if f == "+" { // joins all before it
				tail = []*Fragment{{Parts: tail}}
				continue
			}
			if all[f] == nil {
				var err error
				if all[f], err = EncodeFragment(f[:1], 2, wrapperspb.String("outbound|80|"+f[1:]+"|h")); err != nil {
					t.Fatal(err)
				}
			}
			tail = append(tail, all[f])
		}
		r, err := EncodeRope(Route, "r", &emptypb.Empty{}, tail)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	before := rope("a1", "b1", "c1", "d1", "e1")
	for _, c := range []struct {
		now  *Resource
		want string
	}{
		{before, ""},
		{rope("a1", "b1", "c2", "d1", "e1"), " c1>2"},
		{rope("a2", "b1", "c1", "d1", "e2"), " a1>2 e1>2"},
		{rope("a1", "b1", "c1", "d1", "e1", "f1"), ""},
		{rope("a1", "c1", "d1", "e1"), ""},
		{rope("0a", "a1", "b2", "d1", "e1"), " b1>2"},
		{rope(), ""},
		{rope("a1", "b2", "+", "c1", "d1", "e1"), " b1>2"},
		{rope("a1", "f1", "b1", "c1", "+", "d1", "e2"), " e1>2"},
	} {
		got := ""
		for now, was := range c.now.Replaced(before) {
			for _, version := range []string{"1", "2"} {
				if now.Names("outbound|80|"+version+"|h") == was.Names("outbound|80|"+version+"|h") {
					t.Errorf("%s: version %s", now.Name, version)
				}
			}
			got += " " + now.Name + "1>2"
		}
		if got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	for range before.Replaced(nil) {
		t.Error("nil was replaced")
	}
}
