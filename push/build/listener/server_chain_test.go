package listener

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// istiosManager is a connection manager that Istio's control plane (1.32) sent to a gateway, without filters and spans.
const istiosManager = `
stat_prefix: "outbound_0.0.0.0_8443;"
rds: {config_source: {ads: {}, initial_fetch_timeout: 0s, resource_api_version: V3}, route_config_name: http.8080}
forward_client_cert_details: SANITIZE_SET
set_current_client_cert_details: {cert: true, dns: true, subject: true, uri: true}
http_protocol_options: {}
normalize_path: true
path_with_escaped_slashes_action: KEEP_UNCHANGED
proxy_100_continue: true
server_name: istio-envoy
stream_idle_timeout: 0s
upgrade_configs: [{upgrade_type: websocket}]
use_remote_address: true
`

// The connection manager towards clients outside of the mesh, by ProxyConfig and node: what differs from Istio's usual.
func TestManagerOfGateway(t *testing.T) {
	usual := func(text string, edit func(*ServerChain), drop ...string) (ServerChain, *hcmv3.HttpConnectionManager) {
		s := httpServer(configured(t, gatewayProxy(t), text), "http.8080")
		if edit != nil {
			edit(&s)
		}
		want := &hcmv3.HttpConnectionManager{}
		unyaml(t, istiosManager, want)
		return s, want
	}
	const edge = `
common_http_protocol_options: {headers_with_underscores_action: REJECT_REQUEST, idle_timeout: 3600s}
http2_protocol_options: {initial_connection_window_size: 1048576, initial_stream_window_size: 65536, max_concurrent_streams: 100}
merge_slashes: true
path_with_escaped_slashes_action: UNESCAPE_AND_REDIRECT
request_headers_timeout: 60s
request_timeout: 300s
stream_idle_timeout: 300s`
	for name, c := range map[string]struct {
		config string
		edit   func(*ServerChain)
		other  string // fields that differ
		clear  func(*hcmv3.HttpConnectionManager)
	}{
		"usual":            {config: "{}"},
		"trusted hops":     {"gatewayTopology: {numTrustedProxies: 2, forwardClientCertDetails: APPEND_FORWARD}", nil, "{xff_num_trusted_hops: 2, forward_client_cert_details: APPEND_FORWARD}", nil},
		"forwarded only":   {"gatewayTopology: {forwardClientCertDetails: FORWARD_ONLY}", nil, "{forward_client_cert_details: FORWARD_ONLY}", func(m *hcmv3.HttpConnectionManager) { m.SetCurrentClientCertDetails = nil }},
		"always forwarded": {"gatewayTopology: {forwardClientCertDetails: ALWAYS_FORWARD_ONLY}", nil, "{forward_client_cert_details: ALWAYS_FORWARD_ONLY}", func(m *hcmv3.HttpConnectionManager) { m.SetCurrentClientCertDetails = nil }},
		"headers of the proxy, but of certificates": {"proxyHeaders: {forwardedClientCert: SANITIZE, requestId: {disabled: true}, server: {value: own}}", nil, "{server_name: own, generate_request_id: false}", nil},
		"EDGE": {"connectionSettings: {profile: EDGE}", nil, edge, nil},
		"EDGE, and more": {"connectionSettings: {profile: EDGE, httpIdleTimeout: 60s, httpMaxConcurrentStreams: 55, httpMergeSlashes: false}", nil,
			strings.NewReplacer("3600s", "60s", ": 100", ": 55", "merge_slashes: true", "").Replace(edge), nil},
		"some settings": {"connectionSettings: {httpIdleTimeout: 60s, httpStreamIdleTimeout: 10s}", nil, "{common_http_protocol_options: {idle_timeout: 60s}, stream_idle_timeout: 10s}", nil},
		"the node's":    {"{}", func(s *ServerChain) { s.HTTP10, s.Idle = true, 5*time.Second }, "{common_http_protocol_options: {idle_timeout: 5s}, http_protocol_options: {accept_http_10: true}}", nil},
		"networks": {"{}", func(s *ServerChain) { s.HTTP.Internal = strs.List("10.2.0.0/16", "10.2.0.0/16", "fd00::1") },
			"{internal_address_config: {cidr_ranges: [{address_prefix: 10.2.0.0, prefix_len: 16}, {address_prefix: 'fd00::1', prefix_len: 128}]}}", nil},
		"all networks": {"{}", func(s *ServerChain) { s.HTTP.Internal = strs.List("0.0.0.0/0") }, "{}", nil},
		"HTTP/3":       {"{}", func(s *ServerChain) { s.QUIC, s.TLS = true, secret("a") }, "{codec_type: HTTP3, http3_protocol_options: {}}", nil},
	} {
		s, want := usual(c.config, c.edit)
		merged(t, want, c.other)
		if c.clear != nil {
			c.clear(want)
		}
		got := manager(t, chainOf(t, s))
		if diff := cmp.Diff(want, got, protocmp.Transform(), protocmp.IgnoreFields(got, "http_filters", "tracing")); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// merged merges fields, as YAML, into a connection manager.
func merged(t testing.TB, m *hcmv3.HttpConnectionManager, text string) {
	t.Helper()
	if text == "" {
		return
	}
	other := &hcmv3.HttpConnectionManager{}
	unyaml(t, text, other)
	proto.Merge(m, other)
}

// Filters stand in Istio's order, those of policies and extensions among them. A client's Host names no destination in
// metrics.
func TestFiltersOfGateway(t *testing.T) {
	c := extended(gatewayProxy(t), nil)
	c.Caps |= istioCaps | xds.CapMongo
	c.Mesh = mesh(t, func(m *meshv1.MeshConfig) {
		m.DefaultProviders = &meshv1.MeshConfig_DefaultProviders{Metrics: []string{"prometheus"}}
	})
	policed := func(s ServerChain) ServerChain {
		const tokens = `{jwtRules: [{issuer: a, jwks: '{"keys":[]}'}]}`
		const deny = "{action: DENY, rules: [{from: [{source: {ipBlocks: [10.0.0.0/8]}}]}]}"
		s.Policies = policyLists.List(policyOf(t, model.KindAuthorizationPolicy, "deny", 0, deny))
		s.Authentications = policyLists.List(policyOf(t, model.KindRequestAuthentication, "tokens", 0, tokens))
		return s
	}
	web, db := policed(httpServer(c, "http.8080")), policed(tcpServer(c, "db"))
	web.HTTP.GRPCWeb, db.TCP.Protocol = true, model.Protocol_PROTOCOL_MONGO
	const http, network = "envoy.filters.http.", "envoy.filters.network."
	chain := chainOf(t, web)
	for _, check := range []struct {
		what      string
		got, want []string
	}{
		{"HTTP", filterNames(manager(t, chain)), []string{"istio.metadata_exchange", "authn", http + "jwt_authn", "authz", http + "rbac", "stats", "unspecified",
			http + "grpc_web", http + "grpc_stats", "istio.alpn", http + "fault", http + "cors", "istio.stats", http + "router"}},
		{"around HTTP", networkNames(chain), []string{"authn", "authz", "stats", "unspecified", hcmName}},
		{"TCP", networkNames(chainOf(t, db)), []string{"authn", "authz", networkRBAC, "stats", "unspecified", "istio.stats", network + "mongo_proxy", tcpProxyName}},
		{"plain", filterNames(manager(t, chainOf(t, httpServer(gatewayProxy(t), "r")))), []string{http + "grpc_stats", http + "fault", http + "cors", http + "router"}},
	} {
		if got, want := short(check.got), strings.Join(check.want, " "); got != want {
			t.Errorf("%s: %s, want %s", check.what, got, want)
		}
	}
	const off = "disable_host_header_fallback"
	metrics := manager(t, chain).HttpFilters[12].GetTypedConfig().GetValue()
	if db := fragmentOf(t, db).Bytes; !bytes.Contains(metrics, []byte(off)) || !bytes.Contains(db, []byte(off)) {
		t.Errorf("metrics: %q, %q", metrics, db)
	}
}

// A chain matches SNI names and ALPN, or everything; targets of TCP are as they are outbound.
func TestServerChains(t *testing.T) {
	c := gatewayProxy(t)
	auto := tcpServer(c, "outbound_.80_.v1_.web.shop", "outbound_.80_.v1_.web.shop")
	auto.Protocols = strs.List("istio", "istio-h2")
	weighted := tcpServer(c, "v1")
	weighted.TCP = chainTo(Chain{}, "v1", "v2")
	weighted.TCP.StatPrefix = "t1.bank"
	dynamic := tcpServer(c, "any", "*.wild.test")
	dynamic.TCP.Dynamic, dynamic.TCP.DynamicPort = "*.wild.test", 443
	for want, s := range map[string]ServerChain{
		"chain  > rds http.8080":                                                                       httpServer(c, "http.8080"),
		"chain  sni=*.b.test sni=a.test > rds https.443.a.gw.shop":                                     httpServer(c, "https.443.a.gw.shop", "*.b.test", "a.test"),
		"chain  sni=outbound_.80_.v1_.web.shop [istio istio-h2] > tcp outbound_.80_.v1_.web.shop":      auto,
		"chain  > tcp v1:50 v2:50 ":                                                                    weighted,
		"chain  sni=*.wild.test +envoy.extensions.filters.network.sni_dynamic_forward_proxy > tcp any": dynamic,
	} {
		chain := chainOf(t, s)
		wantLines(t, shape(t, &listenerv3.Listener{FilterChains: []*listenerv3.FilterChain{chain}}), []string{want})
		if chain.TransportSocketConnectTimeout.AsDuration() != 15*time.Second || chain.TransportSocket != nil || chain.Name != "" {
			t.Errorf("%s: %v", want, chain)
		}
	}
	if p := proxy(t, chainOf(t, weighted)); p.StatPrefix != "t1.bank" {
		t.Errorf("statistics of %q", p.StatPrefix)
	}
}

// A chain whose policies cannot be enforced lets nothing pass: HTTP is answered 403, and other connections end.
func TestClosedServerChains(t *testing.T) {
	closed := func(f *extension.Filter) { f.Closed = true }
	deny := policyLists.List(policyOf(t, model.KindAuthorizationPolicy, "deny", 0, "{action: DENY, rules: [{}]}"))
	for name, c := range map[string]struct {
		edit      func(*ServerChain)
		http, tcp string
	}{
		"a policy":                               {func(s *ServerChain) { s.Closed = true }, "rbac", networkRBAC},
		"a policy that the proxy cannot enforce": {func(s *ServerChain) { s.Policies, s.Caps = deny, s.Caps&^(xds.CapRBACHTTP|xds.CapRBACNetwork) }, "", ""},
		"a policy, and no filter":                {func(s *ServerChain) { s.Closed, s.Caps = true, s.Caps&^(xds.CapRBACHTTP|xds.CapRBACNetwork) }, "", ""},
		"a filter of HTTP": {func(s *ServerChain) {
			s.Common = extended(s.Common, func(f *extension.Filter) { f.Closed = !f.OnConnections })
		}, "rbac", "open"},
		"a filter of connections":  {func(s *ServerChain) { s.Common = extended(s.Common, closed) }, "", networkRBAC},
		"a filter of another port": {func(s *ServerChain) { s.Common = extended(s.Common, closed, 9) }, "open", "open"},
	} {
		web, db := httpServer(gatewayProxy(t), "r"), tcpServer(gatewayProxy(t), "db")
		c.edit(&web)
		c.edit(&db)
		got := "open"
		if chain := chainOf(t, web); networkNames(chain)[len(chain.Filters)-1] != hcmName {
			if got = ""; proxy(t, chain).GetCluster() != xds.BlackHole {
				t.Errorf("%s: HTTP goes to %s", name, proxy(t, chain).GetCluster())
			}
		} else if m := manager(t, chain); slices.ContainsFunc(m.HttpFilters, func(f *hcmv3.HttpFilter) bool {
			return bytes.Equal(f.GetTypedConfig().GetValue(), denyHTTPConfig.Value)
		}) {
			got = "rbac"
		}
		if got != c.http {
			t.Errorf("%s: HTTP is %q, want %q", name, got, c.http)
		}
		want := []string{xds.BlackHole, c.tcp}
		if c.tcp == "open" {
			want = []string{"db", short(networkNames(chainOf(t, db))[:1])}
		}
		chain := chainOf(t, db)
		first := ""
		if len(chain.Filters) > 1 || c.tcp == "open" {
			first = short(networkNames(chain)[:1])
		}
		if got := []string{proxy(t, chain).GetCluster(), first}; !slices.Equal(got, want) {
			t.Errorf("%s: TCP is %q, want %q", name, got, want)
		}
	}
}

// Of TLS that cannot be ended the connections end, and the chain still takes its names: otherwise a wildcard of another
// server would take them, which perhaps asks clients for no certificate. A chain that no plan should make is an error.
// Promise: security-gateways.md#make-a-gateway-fail, security-gateways.md#take-hosts-ports-and-traffic
func TestServerChainsThatCannotBe(t *testing.T) {
	ended := func(tls ServerTLS, edit func(*ServerChain)) ServerChain {
		s := httpServer(gatewayProxy(t), "r", "a.test")
		if s.TLS = tls; edit != nil {
			edit(&s)
		}
		return s
	}
	alone := func(s *ServerChain) { s.Caps &^= xds.CapIdentity }
	quic := func(s *ServerChain) { s.QUIC = true }
	own := secrets.List(Secret{Name: "kubernetes://a"})
	asks := func(mode networkingv1.ServerTLSSettings_TLSmode) ServerTLS {
		return ServerTLS{Mode: mode, Secrets: own, Trust: Secret{Name: "kubernetes://a-cacert"}}
	}
	filed := ServerTLS{Mode: mutual, Certificate: "/c", Key: "/k", Authorities: "/ca", Revoked: "/crl", Foreign: "evil"}
	caps := func(add xds.Caps) func(*ServerChain) {
		return func(s *ServerChain) { s.Caps = s.Caps&^(xds.CapFileSecrets|xds.CapFileLists) | add }
	}
	for _, c := range []struct {
		s            ServerChain
		fault, fatal string
	}{
		{ended(ServerTLS{Mode: networkingv1.ServerTLSSettings_ISTIO_MUTUAL}, alone), "tls.mode: the proxy has no certificate of the mesh", ""},
		{ended(ServerTLS{Mode: simple, Secrets: secrets.List(Secret{xds.SDSDefault, xds.SDSCluster})}, alone), "tls.mode: the proxy has no certificate of the mesh", ""},
		{ended(ServerTLS{Mode: mutual, Secrets: own, Trust: Secret{xds.SDSRoot, xds.SDSCluster}}, alone), "tls.mode: the proxy has no certificate of the mesh", ""},
		{ended(ServerTLS{Mode: simple, Certificate: "/c"}, nil), "tls.serverCertificate: ", ""},
		{ended(ServerTLS{Mode: simple, Key: "/k"}, nil), "tls.serverCertificate: ", ""},
		{ended(ServerTLS{Mode: mutual, Secrets: own}, nil), "tls.caCertificates: mode MUTUAL", ""},
		{ended(ServerTLS{Mode: optional, Secrets: own}, nil), "tls.caCertificates: mode OPTIONAL_MUTUAL", ""},
		{ended(ServerTLS{Mode: simple, Secrets: own, Least: networkingv1.ServerTLSSettings_TLSV1_3, Most: networkingv1.ServerTLSSettings_TLSV1_2}, nil), "tls.minProtocolVersion: TLSV1_3 is above", ""},
		{ended(ServerTLS{Mode: simple, Secrets: own, Least: 9}, nil), "tls.minProtocolVersion: versions 9 and 0 are not known", ""},
		{ended(secret("a"), func(s *ServerChain) { s.Caps &^= xds.CapTLSInspector }), "", "the proxy has no TLS inspector"},
		{ended(secret("a"), func(s *ServerChain) { s.TCP.SNI = strs.List("b.test") }), "", "the target of TCP must not match SNI or CIDRs"},
		{ended(ServerTLS{}, quic), "", "mode PASSTHROUGH: HTTP/3 needs a server certificate"},
		{ended(asks(mutual), quic), "", "mode MUTUAL: HTTP/3 needs a server certificate, and does not support client certificates"},
		{ended(asks(optional), quic), "", "mode OPTIONAL_MUTUAL: HTTP/3"},
		{ended(ServerTLS{Mode: networkingv1.ServerTLSSettings_ISTIO_MUTUAL}, quic), "", "mode ISTIO_MUTUAL: HTTP/3"},
		{ended(ServerTLS{Mode: simple, Secrets: secrets.List(Secret{Cluster: "c"})}, nil), "", "envoy.extensions.transport_sockets.tls"},
		{ended(filed, alone), "tls: the gateway's agent does not serve these files", ""},
		{ended(filed, caps(xds.CapFileSecrets)), "tls: the gateway's agent does not serve these files", ""}, // the lists
		{ended(filed, caps(xds.CapFileSecrets|xds.CapFileLists)), "", ""},
		{ended(secret("a"), nil), "", ""},
		{ended(ServerTLS{}, nil), "", ""},
	} {
		fault := c.s.Fault()
		if (fault == nil) != (c.fault == "") ||
			fault != nil && (!strings.HasPrefix(fault.Error(), c.fault) || !strings.HasSuffix(fault.Error(), "; connections are closed")) {
			t.Errorf("fault %v, want %s", fault, c.fault)
		}
		_, err := c.s.Fragment()
		if (err == nil) != (c.fatal == "") || err != nil && !strings.HasPrefix(err.Error(), "filter chain of port 8443 for a.test: "+c.fatal) {
			t.Errorf("error %v, want %s", err, c.fatal)
		}
		if c.fault != "" && err == nil {
			l := &listenerv3.Listener{FilterChains: []*listenerv3.FilterChain{chainOf(t, c.s)}}
			wantLines(t, shape(t, l), []string{"chain  sni=a.test > tcp BlackHoleCluster"})
		}
	}
}
