package e2e

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/loopback"
)

// farNetwork puts the server of shopMesh into a network behind a gateway; the client is in its own network.
const farNetwork = `
apiVersion: v1
kind: Pod
metadata: {name: client-0, namespace: shop, labels: {app: client, topology.istio.io/network: near}}
spec: {serviceAccountName: client}
status: {phase: Running, podIP: 127.0.88.1}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data:
  meshNetworks: "networks: {far: {gateways: [{address: 127.0.88.3, port: 15443}]}}"
`

// passthrough returns an Envoy that forwards TLS connections from one address to another, if they name a server of the
// mesh there (SNI). It has no certificate.
func passthrough(t *testing.T, from, to, sni string) *envoytest.Envoy {
	t.Helper()
	address := func(at string) string {
		host, port, err := net.SplitHostPort(at)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`{"socket_address":{"address":%q,"port_value":%s}}`, host, port)
	}
	return envoytest.Start(t, envoytest.JSON(t, fmt.Appendf(nil, `{"node":{"id":"gateway","cluster":"gateway"},"static_resources":{
"listeners":[{"name":"passthrough","address":%s,
"listener_filters":[{"name":"tls","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"}}],
"filter_chains":[{"filters":[
{"name":"sni","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.network.sni_cluster.v3.SniCluster"}},
{"name":"tcp","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy","stat_prefix":"passthrough","cluster":"nowhere"}}]}]}],
"clusters":[{"name":%q,"type":"STATIC","connect_timeout":"5s","load_assignment":{"cluster_name":%q,"endpoints":[{"lb_endpoints":[{"endpoint":{"address":%s}}]}]}}]}}`,
		address(from), sni, sni, address(to))))
}

// A client in one network calls a server in another, whose address it does not receive. It uses mTLS to the server's
// proxy through a gateway that forwards TLS by the SNI alone. The three proxies are real Envoys, two of them with
// Navarch's configuration.
func TestGatewayBetweenNetworks(t *testing.T) {
	parallel(t)
	at := loopback.NetFor(t)
	seenBy(t, at+".2:9080")
	gateway := passthrough(t, at+".3:15443", at+".2:8080", "outbound_.8000_._.server.shop.svc.cluster.local")
	gateway.Live()
	data, dir := t.TempDir(), t.TempDir()
	far := strings.Replace(shopMesh, "security.istio.io/tlsMode: istio", "security.istio.io/tlsMode: istio, topology.istio.io/network: far", 1)
	write(t, dir, "mesh.yaml", strings.ReplaceAll(far+"---"+farNetwork, someNet, at))
	write(t, dir, "peers.yaml", peers("STRICT"))
	d := start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, d.ready)
	startAgent(t, d, data, "server", at+".2")
	client := runAgentWith(t, d, data, filepath.Join(data, "root-cert.pem"), "client", at+".1", []string{"ISTIO_META_NETWORK=near"})

	passed := func() int {
		stats, err := envoytest.Stats(gateway.Admin)
		if err != nil {
			t.Fatal(err)
		}
		return stats["tcp.passthrough.downstream_cx_total"]
	}
	eventually(t, patience, func() error {
		status, seen, err := call(at + ".1:8000")
		if err != nil || status != 200 || !strings.Contains(seen, "URI=spiffe://cluster.local/ns/shop/sa/client") {
			return fmt.Errorf("through the gateway: %d %q %v", status, seen, err)
		}
		return nil
	})
	if passed() == 0 {
		t.Error("nothing went through the gateway")
	}
	clusters, err := get(client.admin, "/clusters")
	if err != nil || strings.Contains(clusters, at+".2:8080") || !strings.Contains(clusters, at+".3:15443") {
		t.Errorf("the client knows the server's own address, or no gateway: %v\n%s", err, clusters)
	}
}
