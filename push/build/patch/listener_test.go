package patch

//lint:file-ignore SA1019 deprecated fields are what users' YAML and the field's proxies still have

import (
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networkingv1 "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

const (
	in  = networkingv1.EnvoyFilter_SIDECAR_INBOUND
	out = networkingv1.EnvoyFilter_SIDECAR_OUTBOUND
)

// patchesOf decodes an EnvoyFilter from the YAML of its configPatches.
func patchesOf(t *testing.T, text string) []model.Patch {
	t.Helper()
	j, err := yaml.YAMLToJSON([]byte("configPatches:\n" + text))
	spec := &networkingv1.EnvoyFilter{}
	if err == nil {
		err = protojson.Unmarshal(j, spec)
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	r, err := model.New(model.Key{Kind: model.KindEnvoyFilter, Namespace: "shop", Name: "f"}, 0, spec)
	if err != nil {
		t.Fatal(err)
	}
	var all []model.Patch
	for i := range spec.ConfigPatches {
		all = append(all, model.Patch{Filter: r.(*model.EnvoyFilter), Index: i})
	}
	return all
}

func networkFilter(name string, config proto.Message) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: xds.Any(config)}}
}

func httpFilter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: xds.Any(config)}}
}

func tcpFilter(cluster string) *listenerv3.Filter {
	return networkFilter("envoy.filters.network.tcp_proxy", &tcpv3.TcpProxy{StatPrefix: cluster, ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: cluster}})
}

func manager() *listenerv3.Filter {
	return networkFilter("envoy.filters.network.http_connection_manager", &hcmv3.HttpConnectionManager{
		StatPrefix: "web",
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "80",
			ConfigSource: &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}}},
		HttpFilters: []*hcmv3.HttpFilter{
			httpFilter("envoy.filters.http.fault", &faultv3.HTTPFault{}),
			httpFilter("envoy.filters.http.router", &routerv3.Router{}),
		},
	})
}

// webListener has a chain for HTTP, one for TLS by name, and a default chain; inboundListener has chains for two ports.
func webListener(name string, port uint32) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name: name,
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: "0.0.0.0", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port}}}},
		ListenerFilters: []*listenerv3.ListenerFilter{{Name: "tls"}, {Name: "http"}},
		FilterChains: []*listenerv3.FilterChain{
			{Name: "web", Filters: []*listenerv3.Filter{manager()}, FilterChainMatch: &listenerv3.FilterChainMatch{
				TransportProtocol: "raw_buffer", ApplicationProtocols: []string{"http/1.1", "h2c"}, DestinationPort: wrapperspb.UInt32(8080)}},
			{Name: "tls", Filters: []*listenerv3.Filter{tcpFilter("a")}, FilterChainMatch: &listenerv3.FilterChainMatch{
				ServerNames: []string{"a.com"}, DestinationPort: wrapperspb.UInt32(9090)}, TransportSocket: &corev3.TransportSocket{Name: "envoy.transport_sockets.tls"}},
		},
		DefaultFilterChain: &listenerv3.FilterChain{Name: "rest", Filters: []*listenerv3.Filter{tcpFilter("p")}},
	}
}

// drawn returns a listener as one line: [listener filters] chain{network filters}, with HTTP filters in brackets. Names
// are shown by their last part, and configurations by the fields that the patches of the tests set.
func drawn(t *testing.T, l *listenerv3.Listener) string {
	t.Helper()
	short := func(name string) string { return name[strings.LastIndex(name, ".")+1:] }
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s [", l.Name, strings.Repeat("'", int(l.GetPerConnectionBufferLimitBytes().GetValue())))
	for _, f := range l.ListenerFilters {
		b.WriteString(" " + short(f.Name))
	}
	b.WriteString(" ]")
	for _, c := range append(l.FilterChains, l.DefaultFilterChain) {
		if c == nil {
			continue
		}
		fmt.Fprintf(&b, " %s%s{", c.Name, strings.Repeat("'", int(c.GetTransportSocketConnectTimeout().GetSeconds())))
		for _, f := range c.Filters {
			b.WriteString(" " + short(f.Name))
			m, p := &hcmv3.HttpConnectionManager{}, &tcpv3.TcpProxy{}
			if f.GetTypedConfig().MessageIs(p) && f.GetTypedConfig().UnmarshalTo(p) == nil {
				b.WriteString("=" + p.GetCluster() + "/" + p.StatPrefix)
			}
			if f.GetTypedConfig().MessageIs(m) && f.GetTypedConfig().UnmarshalTo(m) == nil {
				b.WriteString("=" + m.StatPrefix + m.ServerName + "(")
				for _, h := range m.HttpFilters {
					b.WriteString(" " + short(h.Name))
					fault := &faultv3.HTTPFault{}
					if h.GetTypedConfig().MessageIs(fault) && h.GetTypedConfig().UnmarshalTo(fault) == nil {
						b.WriteString(strings.Repeat("'", len(fault.Headers)))
					}
				}
				b.WriteString(" )")
			}
		}
		b.WriteString(" }")
	}
	return b.String()
}

const untouched = `L [ tls http ] web{ http_connection_manager=web( fault router ) } tls{ tcp_proxy=a/a } rest{ tcp_proxy=p/p }`

const (
	lua      = `patch: {operation: %s, value: {name: lua, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua}}}`
	echo     = `patch: {operation: %s, value: {name: echo, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo}}}`
	original = `patch: {operation: %s, value: {name: dst, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.original_dst.v3.OriginalDst}}}`
	byRouter = `match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}}`
	byFault  = `match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.fault}}}}}`
	byTCP    = `match: {listener: {filterChain: {filter: {name: envoy.filters.network.tcp_proxy}}}}`
)

// one returns one patch: its applyTo, its match and its patch.
func one(applyTo, match, patch string, operation ...any) string {
	s := "- applyTo: " + applyTo + "\n"
	if match != "" {
		s += "  " + match + "\n"
	}
	return s + "  " + fmt.Sprintf(patch, operation...) + "\n"
}

// edits are changes of a listener with three chains, with the expected result.
var edits = []struct{ name, patches, want string }{
	{"LISTENER MERGE", one("LISTENER", "", `patch: {operation: MERGE, value: {per_connection_buffer_limit_bytes: 1}}`),
		strings.Replace(untouched, "L ", "L' ", 1)},
	{"LISTENER ADD and REMOVE are the plan's", one("LISTENER", "", `patch: {operation: REMOVE}`) + one("LISTENER", "", `patch: {operation: ADD, value: {name: new}}`), untouched},
	{"LISTENER_FILTER ADD", one("LISTENER_FILTER", "", original, "ADD"), strings.Replace(untouched, "[ tls http", "[ tls http dst", 1)},
	{"LISTENER_FILTER INSERT_FIRST", one("LISTENER_FILTER", "", original, "INSERT_FIRST"), strings.Replace(untouched, "[", "[ dst", 1)},
	{"LISTENER_FILTER INSERT_AFTER", one("LISTENER_FILTER", "match: {listener: {listenerFilter: tls}}", original, "INSERT_AFTER"), strings.Replace(untouched, "[ tls", "[ tls dst", 1)},
	{"LISTENER_FILTER REPLACE", one("LISTENER_FILTER", "match: {listener: {listenerFilter: tls}}", original, "REPLACE"), strings.Replace(untouched, "[ tls", "[ dst", 1)},
	{"LISTENER_FILTER REMOVE", one("LISTENER_FILTER", "match: {listener: {listenerFilter: tls}}", `patch: {operation: REMOVE}`), strings.Replace(untouched, "[ tls", "[", 1)},

	{"FILTER_CHAIN ADD", one("FILTER_CHAIN", "", `patch: {operation: ADD, value: {name: new}}`), strings.Replace(untouched, " rest{", " new{ } rest{", 1)},
	{"FILTER_CHAIN MERGE", one("FILTER_CHAIN", "match: {listener: {filterChain: {name: tls}}}", `patch: {operation: MERGE, value: {transport_socket_connect_timeout: 1s}}`), strings.Replace(untouched, " tls{", " tls'{", 1)},
	{"FILTER_CHAIN REMOVE", one("FILTER_CHAIN", "match: {listener: {filterChain: {name: tls}}}", `patch: {operation: REMOVE}`), strings.Replace(untouched, " tls{ tcp_proxy=a/a }", "", 1)},
	{"FILTER_CHAIN REMOVE of the default", one("FILTER_CHAIN", "match: {listener: {filterChain: {name: rest}}}", `patch: {operation: REMOVE}`), strings.Replace(untouched, " rest{ tcp_proxy=p/p }", "", 1)},
	{"FILTER_CHAIN REMOVE of all", one("FILTER_CHAIN", "", `patch: {operation: REMOVE}`), "L [ tls http ]"},

	{"NETWORK_FILTER ADD goes before what ends the connection", one("NETWORK_FILTER", "", echo, "ADD"),
		`L [ tls http ] web{ echo http_connection_manager=web( fault router ) } tls{ echo tcp_proxy=a/a } rest{ echo tcp_proxy=p/p }`},
	{"NETWORK_FILTER INSERT_FIRST", one("NETWORK_FILTER", "match: {listener: {filterChain: {name: tls}}}", echo, "INSERT_FIRST"), strings.Replace(untouched, " tls{", " tls{ echo", 1)},
	{"NETWORK_FILTER INSERT_BEFORE", one("NETWORK_FILTER", byTCP, echo, "INSERT_BEFORE"), strings.ReplaceAll(untouched, " tcp_proxy", " echo tcp_proxy")},
	{"NETWORK_FILTER INSERT_BEFORE nothing", one("NETWORK_FILTER", "match: {listener: {filterChain: {name: tls}}}", echo, "INSERT_BEFORE"), strings.Replace(untouched, " tls{", " tls{ echo", 1)},
	{"NETWORK_FILTER INSERT_BEFORE a stranger", one("NETWORK_FILTER", "match: {listener: {filterChain: {filter: {name: nobody}}}}", echo, "INSERT_BEFORE"), untouched},
	{"NETWORK_FILTER INSERT_AFTER", one("NETWORK_FILTER", byTCP, echo, "INSERT_BEFORE") +
		one("NETWORK_FILTER", "match: {listener: {filterChain: {filter: {name: echo}}}}", strings.Replace(echo, "name: echo", "name: second", 1), "INSERT_AFTER"),
		strings.ReplaceAll(untouched, " tcp_proxy", " echo second tcp_proxy")},
	{"NETWORK_FILTER REPLACE", one("NETWORK_FILTER", byTCP, echo, "REPLACE"), `L [ tls http ] web{ http_connection_manager=web( fault router ) } tls{ echo } rest{ echo }`},
	{"NETWORK_FILTER REMOVE", one("NETWORK_FILTER", byTCP, `patch: {operation: REMOVE}`), `L [ tls http ] web{ http_connection_manager=web( fault router ) } tls{ } rest{ }`},
	{"NETWORK_FILTER REMOVE without a filter", one("NETWORK_FILTER", "", `patch: {operation: REMOVE}`), untouched},
	{"NETWORK_FILTER REMOVE, then ADD", one("NETWORK_FILTER", byTCP, `patch: {operation: REMOVE}`) + one("NETWORK_FILTER", "match: {listener: {filterChain: {name: tls}}}", echo, "ADD"),
		`L [ tls http ] web{ http_connection_manager=web( fault router ) } tls{ echo } rest{ }`},
	{"NETWORK_FILTER MERGE", one("NETWORK_FILTER", byTCP, `patch: {operation: MERGE, value: {typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: x}}}`),
		strings.NewReplacer("a/a", "a/x", "p/p", "p/x").Replace(untouched)},
	{"NETWORK_FILTER MERGE without a filter: those of its type", one("NETWORK_FILTER", "", `patch: {operation: MERGE, value: {typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, server_name: "!"}}}`),
		strings.Replace(untouched, "=web(", "=web!(", 1)},

	{"HTTP_FILTER ADD goes before the router", one("HTTP_FILTER", "", lua, "ADD"), strings.Replace(untouched, "router", "lua router", 1)},
	{"HTTP_FILTER INSERT_FIRST", one("HTTP_FILTER", "", lua, "INSERT_FIRST"), strings.Replace(untouched, "( fault", "( lua fault", 1)},
	{"HTTP_FILTER INSERT_BEFORE", one("HTTP_FILTER", byRouter, lua, "INSERT_BEFORE"), strings.Replace(untouched, "router", "lua router", 1)},
	{"HTTP_FILTER INSERT_AFTER", one("HTTP_FILTER", byFault, lua, "INSERT_AFTER"), strings.Replace(untouched, "fault", "fault lua", 1)},
	{"HTTP_FILTER INSERT_AFTER the router goes before it", one("HTTP_FILTER", byRouter, lua, "INSERT_AFTER"), strings.Replace(untouched, "router", "lua router", 1)},
	{"HTTP_FILTER of another chain", one("HTTP_FILTER", "match: {listener: {filterChain: {name: tls}}}", lua, "ADD"), untouched},
	{"HTTP_FILTER of another network filter", one("HTTP_FILTER", byTCP, lua, "ADD"), untouched},
	{"HTTP_FILTER REPLACE", one("HTTP_FILTER", byFault, lua, "REPLACE"), strings.Replace(untouched, "fault", "lua", 1)},
	{"HTTP_FILTER REMOVE", one("HTTP_FILTER", byFault, `patch: {operation: REMOVE}`), strings.Replace(untouched, " fault", "", 1)},
	{"HTTP_FILTER MERGE", one("HTTP_FILTER", byFault, `patch: {operation: MERGE, value: {typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault, headers: [{name: x, present_match: true}]}}}`),
		strings.Replace(untouched, "fault", "fault'", 1)},
	{"HTTP_FILTER of an extension that is not Envoy's", one("HTTP_FILTER", byRouter,
		`patch: {operation: INSERT_BEFORE, value: {name: own, typed_config: {"@type": type.googleapis.com/udpa.type.v1.TypedStruct, type_url: type.googleapis.com/own.Config, value: {a: 1}}}}`),
		strings.Replace(untouched, "router", "own router", 1)},
	{"in order, each sees what the one before made", one("HTTP_FILTER", byFault, lua, "REPLACE") +
		one("HTTP_FILTER", strings.Replace(byFault, "envoy.filters.http.fault", "lua", 1), strings.Replace(lua, "name: lua", "name: after", 1), "INSERT_AFTER"),
		strings.Replace(untouched, "fault", "lua after", 1)},

	{"a value that does not decode", one("HTTP_FILTER", "", `patch: {operation: ADD, value: {name: 3}}`) + one("HTTP_FILTER", "", lua, "ADD"), strings.Replace(untouched, "router", "lua router", 1)},
	{"a value of an unknown type", one("HTTP_FILTER", "", `patch: {operation: ADD, value: {name: x, typed_config: {"@type": type.googleapis.com/no.Such}}}`), untouched},
	{"a value that Envoy's API forbids", one("HTTP_FILTER", byFault, `patch: {operation: MERGE, value: {typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault, headers: [{name: ""}]}}}`) +
		one("HTTP_FILTER", "", lua, "ADD"), strings.Replace(untouched, "router", "lua router", 1)},
	{"no value", one("NETWORK_FILTER", "", `patch: {operation: ADD}`), untouched},
}

func TestListener(t *testing.T) {
	for _, c := range edits {
		t.Run(c.name, func(t *testing.T) {
			l := webListener("L", 80)
			before := proto.Clone(l)
			got, _ := Listener(l, out, patchesOf(t, c.patches))
			if s := drawn(t, got); s != c.want {
				t.Errorf("got  %s\nwant %s", s, c.want)
			}
			if !proto.Equal(l, before) {
				t.Error("the listener that was given has changed")
			}
		})
	}
}

// The chains that a patch matches: the case names each chain that the patch changed.
func TestListenerMatchesChains(t *testing.T) {
	for _, c := range []struct{ listener, match, want string }{
		{"L", "", "web tls rest"},
		{"L", "match: {context: SIDECAR_OUTBOUND}", "web tls rest"},
		{"L", "match: {context: SIDECAR_INBOUND}", ""},
		{"L", "match: {context: GATEWAY}", ""},
		{"L", "match: {listener: {name: L}}", "web tls rest"},
		{"L", "match: {listener: {name: M}}", ""},
		{"L", "match: {listener: {portNumber: 80}}", "web tls rest"},
		{"L", "match: {listener: {portNumber: 8080}}", ""},
		{"virtualInbound", "match: {listener: {portNumber: 8080}}", "web"},
		{"virtualInbound", "match: {listener: {portNumber: 80}}", ""},
		{"L", "match: {listener: {filterChain: {name: tls}}}", "tls"},
		{"L", "match: {listener: {filterChain: {sni: a.com}}}", "tls"},
		{"L", "match: {listener: {filterChain: {sni: b.com}}}", ""},
		{"L", "match: {listener: {filterChain: {transportProtocol: raw_buffer}}}", "web"},
		{"L", "match: {listener: {filterChain: {transportProtocol: tls}}}", ""},
		{"L", "match: {listener: {filterChain: {transportSocket: envoy.transport_sockets.tls}}}", "tls"},
		{"L", "match: {listener: {filterChain: {transportSocket: envoy.transport_sockets.raw_buffer}}}", "web rest"},
		{"L", "match: {listener: {filterChain: {transportSocket: envoy.transport_sockets.quic}}}", ""},
		{"L", "match: {listener: {filterChain: {destinationPort: 9090}}}", "tls"},
		{"L", `match: {listener: {filterChain: {applicationProtocols: "h2c, http/1.1"}}}`, "web"},
		{"L", "match: {listener: {filterChain: {applicationProtocols: h2}}}", ""},
	} {
		got, _ := Listener(webListener(c.listener, 80), out, patchesOf(t, one("NETWORK_FILTER", c.match, echo, "INSERT_FIRST")))
		var reached []string
		for _, fc := range append(got.FilterChains, got.DefaultFilterChain) {
			if fc.Filters[0].Name == "echo" {
				reached = append(reached, fc.Name)
			}
		}
		if s := strings.Join(reached, " "); s != c.want {
			t.Errorf("%s %s: reached %q, want %q", c.listener, c.match, s, c.want)
		}
	}
}

func TestListenerMatches(t *testing.T) {
	for _, c := range []struct {
		patch                  string
		matches, removes, adds bool
	}{
		{one("LISTENER", "", "patch: {operation: MERGE}"), true, false, false},
		{one("LISTENER", "", "patch: {operation: REMOVE}"), false, true, false},
		{one("LISTENER", "", "patch: {operation: ADD}"), false, false, true},
		{one("LISTENER", "match: {context: SIDECAR_INBOUND}", "patch: {operation: ADD}"), false, false, true},
		{one("LISTENER", "match: {context: GATEWAY}", "patch: {operation: ADD}"), false, false, true},
		{one("LISTENER", "match: {context: WAYPOINT}", "patch: {operation: ADD}"), false, false, false},
		{one("LISTENER", "match: {context: SIDECAR_INBOUND}", "patch: {operation: REMOVE}"), false, false, false},
		{one("LISTENER", "match: {listener: {portNumber: 80}}", "patch: {operation: REMOVE}"), false, true, false},
		{one("LISTENER", "match: {listener: {portNumber: 81}}", "patch: {operation: REMOVE}"), false, false, false},
		{one("HTTP_FILTER", "", "patch: {operation: ADD}"), true, false, false},
		{one("HTTP_FILTER", "match: {context: GATEWAY}", "patch: {operation: ADD}"), false, false, false},
		{one("NETWORK_FILTER", "match: {listener: {name: 0.0.0.0_80}}", "patch: {operation: ADD}"), true, false, false},
		{one("FILTER_CHAIN", "match: {listener: {portNumber: 81}}", "patch: {operation: ADD}"), false, false, false},
		{one("LISTENER_FILTER", "", "patch: {operation: ADD}"), true, false, false},
		{one("CLUSTER", "", "patch: {operation: ADD}"), false, false, false},
		{one("HTTP_ROUTE", "", "patch: {operation: MERGE}"), false, false, false},
	} {
		p := patchesOf(t, c.patch)[0]
		if got := ListenerMatches(p, out, "0.0.0.0_80", 80); got != c.matches {
			t.Errorf("matches %v, want %v:\n%s", got, c.matches, c.patch)
		}
		if got := RemovesListener(p, out, "0.0.0.0_80", 80); got != c.removes {
			t.Errorf("removes %v, want %v:\n%s", got, c.removes, c.patch)
		}
		if got := AddsListener(p); got != c.adds {
			t.Errorf("adds %v, want %v:\n%s", got, c.adds, c.patch)
		}
	}
	// For the virtual listeners the port is that of a chain, so the listener as a whole may match; LISTENER compares it.
	if !ListenerMatches(patchesOf(t, one("HTTP_FILTER", "match: {listener: {portNumber: 8080}}", "patch: {operation: ADD}"))[0], in, xds.VirtualInbound, 15006) {
		t.Error("a filter patch for a port does not match virtualInbound")
	}
	if ListenerMatches(patchesOf(t, one("LISTENER", "match: {listener: {portNumber: 8080}}", "patch: {operation: MERGE}"))[0], in, xds.VirtualInbound, 15006) {
		t.Error("a listener patch for a port matches virtualInbound")
	}
}

// Check validates Anys inside Anys.
func TestCheck(t *testing.T) {
	l := webListener("L", 80)
	if err := Check(l); err != nil {
		t.Fatal(err)
	}
	m := &hcmv3.HttpConnectionManager{}
	if err := l.FilterChains[0].Filters[0].GetTypedConfig().UnmarshalTo(m); err != nil {
		t.Fatal(err)
	}
	m.HttpFilters[0] = httpFilter("lua", &luav3.Lua{InlineCode: "x", SourceCodes: map[string]*corev3.DataSource{"a": {}}})
	l.FilterChains[0].Filters[0] = networkFilter("hcm", m)
	if err := Check(l); err == nil || !strings.Contains(err.Error(), "Lua") {
		t.Errorf("a script without a source: got %v, want an error that names Lua", err)
	}
}
