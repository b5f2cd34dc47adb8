package listener

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"navarch.io/navarch/push/envoytest"
)

// http3Client is a listener whose requests an Envoy passes on by HTTP/3, to the port UPSTREAM with the SNI a.test. It
// trusts the certificates of ROOTS.
const http3Client = `{"listener": {"name": "client", "address": {"socket_address": {"address": "127.0.0.1", "port_value": PORT}},
 "filter_chains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": {
  "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "client",
  "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
  "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "http3"}}]}]}}}]}]},
"cluster": {"name": "http3", "type": "STATIC", "connect_timeout": "5s",
 "load_assignment": {"cluster_name": "http3", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {
  "address": "127.0.0.1", "port_value": UPSTREAM}}}}]}]},
 "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
  "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions", "explicit_http_config": {"http3_protocol_options": {}}}},
 "transport_socket": {"name": "envoy.transport_sockets.quic", "typed_config": {
  "@type": "type.googleapis.com/envoy.extensions.transport_sockets.quic.v3.QuicUpstreamTransport", "upstream_tls_context": {"sni": "a.test",
  "common_tls_context": {"validation_context": {"trusted_ca": {"filename": "ROOTS"}}}}}}}}`

// A client that speaks HTTP/3, an Envoy too, is served by a gateway's UDP listener.
func TestHTTP3ThroughEnvoy(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("X-Forwarded-Proto"))
	}))
	defer app.Close()
	ours := newAuthority(t)
	ours.issue("a.test")
	chain := httpServer(stock(t), "r", "a.test")
	chain.QUIC, chain.TLS = true, ServerTLS{Mode: simple, Certificate: ours.file("a.test"), Key: ours.file("a.test.key")}
	servers := gatewayOf(t, stock(t), chain)
	servers.QUIC = true
	port, gateway := at(t, servers)
	bootstrap := fold(t, inboundRoutes("r", "v", "app", "o", false), map[string]int{"app": app.Listener.Addr().(*net.TCPAddr).Port}, gateway)
	from := freePort(t)
	var client struct{ Listener, Cluster json.RawMessage }
	text := strings.NewReplacer("PORT", fmt.Sprint(from), "UPSTREAM", fmt.Sprint(port), "ROOTS", ours.file("ca")).Replace(http3Client)
	if err := json.Unmarshal([]byte(text), &client); err != nil {
		t.Fatal(err)
	}
	static := bootstrap["static_resources"].(map[string]any)
	static["listeners"] = append(static["listeners"].([]any), client.Listener)
	clusters := []any{client.Cluster}
	for _, c := range static["clusters"].([]map[string]any) {
		clusters = append(clusters, c)
	}
	static["clusters"] = clusters
	envoy := envoytest.Start(t, bootstrap)
	envoy.Live()
	if got := answer(t, dial(t, from)); got != "200 https" {
		t.Errorf("by HTTP/3: %q", got)
	}
	stats, err := envoytest.Stats(envoy.Admin)
	if err != nil {
		t.Fatal(err)
	}
	if stats["http.outbound_0.0.0.0_8443;.downstream_cx_http3_total"] != 1 {
		t.Errorf("connections by HTTP/3: %v", stats)
	}
}
