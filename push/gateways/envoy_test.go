package gateways

import (
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/push/envoytest"
)

// Envoy refuses the listeners that the property calls refused, and accepts the others.
func TestEnvoyRefuses(t *testing.T) {
	binary := envoytest.Binary(t)
	for _, servers := range [][]string{
		{"HTTPS+SIMPLE 443 a.com b.com", "HTTPS+SIMPLE 443 b.com"},
		{"HTTPS+SIMPLE 443 ns1/a.com", "HTTPS+SIMPLE 443 ns2/a.com"},
		{"HTTPS+SIMPLE 443 a.com", "HTTPS+SIMPLE 443 *.a.com", "HTTPS+SIMPLE 443 *", "TLS+PASSTHROUGH 443 x.a.com"},
		{"HTTPS+SIMPLE 443 *", "HTTP 443 a.com"},
		{"HTTPS+SIMPLE 443 a.com", "HTTP 443 a.com", "HTTP 443 b.com"},
		{"TCP 443 *", "HTTP 443 *"},
		{"HTTPS+SIMPLE 443 *-a.com"},
		{"HTTPS+SIMPLE 443 *-a.com *"},
		{"TLS+SIMPLE 443 a.com", "TLS+PASSTHROUGH 443 b/a.com"},
		{"HTTPS+SIMPLE 443 10.0.0.1 a.com."},
	} {
		g := gateway("a/a@1", servers...)
		var chains []chain
		var drawn []any
		for i, spec := range g.Spec.Servers {
			chains = append(chains, chainsOf(Server{Gateway: g, Index: i, Hosts: hostsOf(spec.Hosts, "a")})...)
		}
		for i, c := range chains {
			if !slices.ContainsFunc(chains[:i], func(o chain) bool { return o.of == c.of }) { // servers of plain HTTP share one
				drawn = append(drawn, filterChain(c.names))
			}
		}
		said := envoytest.Validate(binary, envoytest.File(t, bootstrap(drawn)))
		if why := refused(chains); (why != "") != (said != "") {
			t.Errorf("%s: the property says %q, Envoy %q", strings.Join(servers, ", "), why, said)
		}
	}
}

type object = map[string]any

// filterChain is a chain for these names of SNI.
func filterChain(names []string) object {
	const tcp = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
	chain := object{"filters": []any{object{"name": "tcp", "typed_config": object{"@type": tcp, "stat_prefix": "x", "cluster": "x"}}}}
	if len(names) > 0 {
		chain["filter_chain_match"] = object{"server_names": names}
	}
	return chain
}

// bootstrap has one listener with these chains.
func bootstrap(chains []any) envoytest.Bootstrap {
	const inspector = "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"
	return envoytest.Bootstrap{"static_resources": object{
		"clusters": []any{object{"name": "x", "type": "STATIC", "connect_timeout": "1s"}},
		"listeners": []any{object{"name": "l", "address": object{"socket_address": object{"address": "127.0.0.1", "port_value": 1443}},
			"listener_filters": []any{object{"name": "tls", "typed_config": object{"@type": inspector}}}, "filter_chains": chains}},
	}}
}
