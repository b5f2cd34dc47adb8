package listener

import (
	"slices"
	"strings"
	"testing"

	// The names that the patches of these tests match.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/connection_limit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/echo/v3"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/xds"
)

const luaBeforeRouter = `
- applyTo: HTTP_FILTER
  match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}}
  patch:
    operation: INSERT_BEFORE
    value: {name: lua, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, default_source_code: {inline_string: "function envoy_on_request(h) end"}}}
`

// Patches are part of the Spec of each builder, and Envoy accepts the patched listeners.
func TestPatched(t *testing.T) {
	envoy := envoytest.Binary(t)
	all := specs(t)
	lua := patches.List(envoyFilter(t, luaBeforeRouter)...)
	out, vin, ing := all["http"].(Outbound), all["virtual inbound"].(VirtualInbound), all["ingress"].(Ingress)
	vout := all["virtual outbound"].(VirtualOutbound)
	out.Patches, vin.Patches, ing.Patches = lua, lua, lua
	vout.Patches = patches.List(envoyFilter(t, `
- applyTo: NETWORK_FILTER
  match: {context: SIDECAR_OUTBOUND}
  patch: {operation: ADD, value: {name: limit, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit, stat_prefix: l, max_connections: 9}}}`)...)
	for name, b := range map[string]builder{"outbound": out, "virtual inbound": vin, "ingress": ing, "virtual outbound": vout} {
		t.Run(name, func(t *testing.T) {
			_, l := build(t, b)
			managers := 0
			for _, c := range l.FilterChains {
				if c.Filters[len(c.Filters)-1].Name != hcmName {
					continue
				}
				managers++
				if names := filterNames(manager(t, c)); !slices.Equal(names[len(names)-2:], []string{"lua", "envoy.filters.http.router"}) {
					t.Errorf("chain %s has %v", c.Name, names)
				}
			}
			if name == "virtual outbound" {
				wantLines(t, shape(t, l), []string{"chain virtualOutbound-blackhole port=15001 +limit > tcp BlackHoleCluster",
					"chain virtualOutbound-catchall-tcp +limit > tcp PassthroughCluster"})
			} else if managers == 0 {
				t.Error("no connection manager")
			}
			if complaint := judge(t, envoy, l); complaint != "" {
				t.Error(complaint)
			}
		})
	}
}

// Each operation, as users write it, on a listener that Navarch builds: Envoy accepts every result.
func TestEnvoyAcceptsPatched(t *testing.T) {
	envoy := envoytest.Binary(t)
	value := map[string]string{
		"LISTENER":        `{per_connection_buffer_limit_bytes: 65536}`,
		"LISTENER_FILTER": `{name: dst, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.original_dst.v3.OriginalDst}}`,
		"FILTER_CHAIN":    `{name: added, filter_chain_match: {destination_port: 7}, filters: [{name: echo, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo}}]}`,
		"NETWORK_FILTER":  `{name: limit, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit, stat_prefix: l, max_connections: 9}}`,
		"HTTP_FILTER":     `{name: limit, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit, stat_prefix: l}}`,
	}
	match := map[string]string{
		"LISTENER_FILTER": `listenerFilter: envoy.filters.listener.tls_inspector`,
		"FILTER_CHAIN":    `filterChain: {transportProtocol: raw_buffer}`,
		"NETWORK_FILTER":  `filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}`,
		"HTTP_FILTER":     `filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.fault}}}`,
	}
	merge := map[string]string{
		"LISTENER":       value["LISTENER"],
		"FILTER_CHAIN":   `{transport_socket_connect_timeout: 3s}`,
		"NETWORK_FILTER": `{typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, server_name: mine}}`,
		"HTTP_FILTER":    `{typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault, max_active_faults: 3}}`,
	}
	for applyTo, operations := range map[string][]string{
		"LISTENER":        {"MERGE"},
		"LISTENER_FILTER": {"ADD", "REMOVE", "REPLACE", "INSERT_BEFORE", "INSERT_AFTER", "INSERT_FIRST"},
		"FILTER_CHAIN":    {"ADD", "MERGE", "REMOVE"},
		"NETWORK_FILTER":  {"ADD", "MERGE", "REMOVE", "INSERT_BEFORE", "INSERT_AFTER", "INSERT_FIRST"},
		"HTTP_FILTER":     {"ADD", "MERGE", "REMOVE", "REPLACE", "INSERT_BEFORE", "INSERT_AFTER", "INSERT_FIRST"},
	} {
		for _, operation := range operations {
			t.Run(applyTo+" "+operation, func(t *testing.T) {
				v := value[applyTo]
				if operation == "MERGE" {
					v = merge[applyTo]
				}
				spec := specs(t)["http"].(Outbound)
				plain, _ := build(t, spec)
				spec.Patches = patches.List(envoyFilter(t, "- applyTo: "+applyTo+"\n  match: {listener: {"+match[applyTo]+"}}\n  patch: {operation: "+operation+", value: "+v+"}")...)
				patched, l := build(t, spec)
				if patched.Version == plain.Version {
					t.Fatal("the patch changes nothing")
				}
				if complaint := judge(t, envoy, l); complaint != "" {
					t.Error(complaint)
				}
			})
		}
	}
}

func TestPatchedEdges(t *testing.T) {
	spec := specs(t)["http"].(Outbound)
	spec.Patches = patches.List(envoyFilter(t, `
- applyTo: FILTER_CHAIN
  patch: {operation: REMOVE}`)...)
	r, l := build(t, spec)
	wantLines(t, shape(t, l), []string{"chain  > tcp BlackHoleCluster"})
	if len(r.Needs) != 0 {
		t.Errorf("needs %v, want nothing: its connection manager is gone", r.Needs)
	}

	spec.Patches = patches.List(envoyFilter(t, `
- applyTo: LISTENER
  patch: {operation: MERGE, value: {name: other, transparent: true}}`)...)
	if r, l = build(t, spec); r.Name != "0.0.0.0_80" || !l.Transparent.GetValue() {
		t.Errorf("%s, transparent %v: want the manifest's name and the merge", r.Name, l.Transparent)
	}

	spec.Patches = patches.List(envoyFilter(t, `
- applyTo: LISTENER
  match: {context: SIDECAR_INBOUND}
  patch: {operation: MERGE, value: {transparent: true}}`)...)
	plain, _ := build(t, specs(t)["http"])
	if r, _ = build(t, spec); r.Version != plain.Version {
		t.Error("an inbound patch changed an outbound listener")
	}
}

func TestAdded(t *testing.T) {
	added := func(value string) Added {
		return Added{Patch: envoyFilter(t, "- applyTo: LISTENER\n  patch: {operation: ADD, value: "+value+"}")[0]}
	}
	r, l := build(t, added(`{name: mine, address: {socket_address: {address: 127.0.0.1, port_value: 7777}}, filter_chains: [{filters: [
  {name: hcm, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, stat_prefix: s,
   rds: {route_config_name: "80", config_source: {ads: {}, resource_api_version: V3}}, http_filters: [{name: r, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]}}]}]}`))
	if l.Name != "mine" || !slices.Equal(r.Needs, []xds.Ref{{Type: xds.Route, Name: "80"}}) {
		t.Errorf("%s needs %v", l.Name, r.Needs)
	}
	if complaint := judge(t, envoytest.Binary(t), l); complaint != "" {
		t.Error(complaint)
	}
	for value, want := range map[string]string{
		`{name: 3}`: "EnvoyFilter shop/f: spec.configPatches[0].patch.value: ",
		`{address: {socket_address: {address: 127.0.0.1, port_value: 7777}}}`:   "spec.configPatches[0].patch.value: name is missing",
		`{name: x, address: {socket_address: {address: a, port_value: 77777}}}`: "PortValue",
	} {
		if _, err := added(value).Build(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q in it", value, err, want)
		}
	}
}
