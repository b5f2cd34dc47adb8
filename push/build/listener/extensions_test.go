package listener

import (
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	extensionsv1 "istio.io/api/extensions/v1alpha1"

	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

var (
	extensionLists intern.Table[extension.Filter]
	portLists      intern.Table[uint32]
)

// httpPort is the HTTP port of allPorts.
const httpPort = 8000 + uint32(model.Protocol_PROTOCOL_HTTP)

// extended has an extension of each phase, named by the phase: HTTP and network filters, for some ports.
func extended(c Common, edit func(*extension.Filter), ports ...uint32) Common {
	var all []extension.Filter
	for _, onConnections := range []bool{false, true} {
		for _, phase := range []extension.Phase{extensionsv1.TrafficExtension_UNSPECIFIED, extensionsv1.TrafficExtension_STATS, extensionsv1.TrafficExtension_AUTHZ, extensionsv1.TrafficExtension_AUTHN} {
			f := extension.Filter{Extension: model.Key{Kind: model.KindWasmPlugin, Namespace: "n", Name: strings.ToLower(phase.String())}, Phase: phase,
				OnConnections: onConnections, Ports: portLists.List(ports...)}
			if edit != nil {
				edit(&f)
			}
			all = append(all, f)
		}
	}
	c.Extensions = extensionLists.List(all...)
	return c
}

// short returns the phases of extensions, as short names.
func short(names []string) string {
	return strings.ReplaceAll(strings.Join(names, " "), "extenstions.istio.io/wasmplugin/n.", "")
}

func networkNames(c *listenerv3.FilterChain) (names []string) {
	for _, f := range c.GetFilters() {
		names = append(names, f.Name)
	}
	return names
}

// Filters of extensions are placed around Istio's own by their phase, whatever their order in the list, and only on
// their ports.
func TestExtensionsStandByPhase(t *testing.T) {
	c := extended(stock(t), nil, 80, httpPort)
	v := allPorts(c)
	v.Closed = true
	_, l := build(t, v)
	seen := 0
	for _, chain := range l.FilterChains {
		port := chain.FilterChainMatch.GetDestinationPort().GetValue()
		if names := networkNames(chain); slices.Contains(names, hcmName) {
			want, http := "authn authz stats unspecified "+hcmName, "authn authz envoy.filters.http.rbac stats unspecified "
			if port != httpPort {
				want, http = hcmName, "envoy.filters.http.rbac "
			}
			if got := short(names); got != want {
				t.Errorf("port %d: %s, want %s", port, got, want)
			}
			if got := short(filterNames(manager(t, chain))); !strings.HasPrefix(got, http) {
				t.Errorf("port %d: %s, want %s", port, got, http)
			}
			seen++
		}
	}
	if seen < 2 {
		t.Fatalf("%d chains are HTTP", seen)
	}
	_, l = build(t, Outbound{Common: c, Name: "0.0.0.0_80", Bind: "0.0.0.0", Port: 80, Route: "80", TCP: chains.List(chainTo(Chain{CIDRs: strs.List("10.9.0.1")}, "a"))})
	if got := short(networkNames(l.FilterChains[0])); got != "authn authz stats unspecified "+tcpProxyName {
		t.Errorf("TCP: %s", got)
	}
	http := slices.IndexFunc(l.FilterChains, func(c *listenerv3.FilterChain) bool { return slices.Contains(networkNames(c), hcmName) })
	if http < 0 {
		t.Fatal("no chain is HTTP")
	}
	if got := short(networkNames(l.FilterChains[http])); got != hcmName {
		t.Errorf("outbound HTTP: %s", got)
	}
	if got := short(filterNames(manager(t, l.FilterChains[http]))); !strings.HasPrefix(got, "authn authz stats unspecified ") {
		t.Errorf("outbound HTTP: %s", got)
	}
}

// A listener references the configurations of its extension filters.
func TestExtensionsAreNeeded(t *testing.T) {
	for kind, edit := range map[string]func(*extension.Filter){"wasm": nil, "lua": func(f *extension.Filter) { f.Lua = true }} {
		r, l := build(t, Outbound{Common: extended(stock(t), edit), Name: "0.0.0.0_80", Bind: "0.0.0.0", Port: 80, Route: "80"})
		want := xds.Ref{Type: xds.Extension, Name: "extenstions.istio.io/wasmplugin/n.authn"}
		if !slices.Contains(r.Needs, want) || len(r.Needs) != 5 {
			t.Errorf("needs %v", r.Needs)
		}
		first := manager(t, l.FilterChains[0]).HttpFilters[0].GetConfigDiscovery()
		if first.GetConfigSource().GetAds() == nil || !strings.Contains(first.GetTypeUrls()[0], kind) {
			t.Errorf("%s is discovered by %v", kind, first)
		}
	}
}

// An extension that the proxy cannot run closes its traffic and no other: HTTP by 403, or by the black hole if the
// proxy has no RBAC filter.
func TestExtensionsClose(t *testing.T) {
	closing := func(onConnections bool) func(*extension.Filter) {
		return func(f *extension.Filter) { f.Closed = f.OnConnections == onConnections }
	}
	tcp := chains.List(chainTo(Chain{CIDRs: strs.List("10.9.0.1")}, "a"))
	ends := func(c Common, port uint32) (http, plain string) {
		_, l := build(t, Outbound{Common: c, Name: "0.0.0.0_80", Bind: "0.0.0.0", Port: port, Route: "80", TCP: tcp})
		for _, chain := range append(l.FilterChains, l.DefaultFilterChain) {
			switch last := networkNames(chain); {
			case chain == nil:
			case len(chain.GetFilterChainMatch().GetPrefixRanges()) > 0:
				plain = proxy(t, chain).GetCluster()
			case last[len(last)-1] == hcmName:
				http = "open"
				if slices.Contains(filterNames(manager(t, chain)), "envoy.filters.http.rbac") {
					http = "403"
				}
			default:
				http = proxy(t, chain).GetCluster()
			}
		}
		return http, plain
	}
	withoutRBAC := stock(t)
	withoutRBAC.Caps &^= xds.CapRBACHTTP
	for _, c := range []struct {
		name        string
		common      Common
		port        uint32
		http, plain string
	}{
		{"HTTP", extended(stock(t), closing(false), 80), 80, "403", "a"},
		{"another port", extended(stock(t), closing(false), 80), 81, "open", "a"},
		{"HTTP without RBAC", extended(withoutRBAC, closing(false)), 80, xds.BlackHole, "a"},
		{"connections", extended(stock(t), closing(true), 80), 80, "open", xds.BlackHole},
	} {
		if http, plain := ends(c.common, c.port); http != c.http || plain != c.plain {
			t.Errorf("%s: HTTP %s, TCP %s; want %s and %s", c.name, http, plain, c.http, c.plain)
		}
	}
	_, l := build(t, allPorts(extended(stock(t), closing(true))))
	for _, chain := range l.FilterChains {
		if p := proxy(t, chain); p.GetCluster() != xds.BlackHole {
			t.Errorf("inbound: a connection gets to %s", p.GetCluster())
		}
	}
	_, l = build(t, allPorts(extended(stock(t), closing(false), httpPort)))
	closed := 0
	for _, chain := range l.FilterChains {
		if !slices.Contains(networkNames(chain), hcmName) {
			continue
		}
		to := manager(t, chain).GetRouteConfig().VirtualHosts[0].Routes[0].GetRoute().GetCluster()
		if is := chain.FilterChainMatch.GetDestinationPort().GetValue() == httpPort; is != (to == xds.BlackHole) {
			t.Errorf("inbound HTTP at %v leads to %s", chain.FilterChainMatch, to)
		} else if is {
			closed++
		}
	}
	if closed == 0 {
		t.Error("nothing is closed inbound")
	}
}
