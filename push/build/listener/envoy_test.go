package listener

import (
	"encoding/json"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/xds"
)

// fold returns a bootstrap with listeners, with routes in place of their RDS, and with clusters: name to port on
// loopback, 0 for no endpoint.
func fold(t testing.TB, routes *routev3.RouteConfiguration, clusters map[string]int, listeners ...*listenerv3.Listener) envoytest.Bootstrap {
	t.Helper()
	var folded []any
	for _, l := range listeners {
		folded = append(folded, inline(t, l, routes))
	}
	static := []map[string]any{{"name": xds.SDSCluster, "connect_timeout": "1s"}}
	for name, port := range clusters {
		c := map[string]any{"name": name, "type": "STATIC", "connect_timeout": "1s"}
		if port != 0 {
			c["load_assignment"] = map[string]any{"cluster_name": name, "endpoints": []any{map[string]any{"lb_endpoints": []any{
				map[string]any{"endpoint": map[string]any{"address": map[string]any{"socket_address": map[string]any{
					"address": "127.0.0.1", "port_value": port}}}}}}}}
		}
		static = append(static, c)
	}
	return envoytest.Bootstrap{"node": map[string]any{"id": "x", "cluster": "x"}, "static_resources": map[string]any{"listeners": folded, "clusters": static}}
}

func inline(t testing.TB, l *listenerv3.Listener, routes *routev3.RouteConfiguration) json.RawMessage {
	t.Helper()
	l = proto.Clone(l).(*listenerv3.Listener)
	for _, c := range append(l.FilterChains, l.DefaultFilterChain) {
		for _, f := range c.GetFilters() {
			m := &hcmv3.HttpConnectionManager{}
			if f.GetTypedConfig().UnmarshalTo(m) == nil && m.GetRds() != nil {
				m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: routes}
				f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: xds.Any(m)}
			}
		}
	}
	folded, err := protojson.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	return folded
}

// judge validates a listener with Envoy itself, and returns "" or Envoy's first complaint.
func judge(t testing.TB, envoy string, l *listenerv3.Listener) string {
	t.Helper()
	clusters := map[string]int{xds.BlackHole: 0, xds.Passthrough: 0, xds.InboundPassthrough: 0}
	for _, line := range shape(t, l) {
		_, to, _ := strings.Cut(line, " > ")
		for _, word := range strings.Fields(to) {
			if i := strings.LastIndex(word, ":"); i > 0 && strings.Contains(word, "|") {
				word = word[:i]
			}
			clusters[word] = 0
		}
	}
	return envoytest.Validate(envoy, envoytest.File(t, fold(t, inboundRoutes("r", "v", xds.BlackHole, "o", false), clusters, l)))
}

func TestEnvoyAccepts(t *testing.T) {
	envoy := envoytest.Binary(t)
	for name, b := range specs(t) {
		t.Run(name, func(t *testing.T) {
			_, l := build(t, b)
			if complaint := judge(t, envoy, l); complaint != "" {
				t.Error(complaint)
			}
		})
	}
}

// Envoy's validation can fail: a listener that it refuses is reported.
func TestEnvoyRefuses(t *testing.T) {
	envoy := envoytest.Binary(t)
	for name, spoil := range map[string]func(*listenerv3.Listener){
		"one thing matched twice": func(l *listenerv3.Listener) { l.FilterChains = append(l.FilterChains, l.FilterChains[0]) },
		"no chains":               func(l *listenerv3.Listener) { l.FilterChains, l.DefaultFilterChain = nil, nil },
	} {
		_, l := build(t, specs(t)["tcp chains"])
		spoil(l)
		if judge(t, envoy, l) == "" {
			t.Errorf("%s: accepted", name)
		}
	}
}
