package listener

import (
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	quicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/quic/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/xds"
)

// yamlOf are parts of TLS contexts as Istio's control plane (1.32) sent them, by the names that stand for them below.
var yamlOf = strings.NewReplacer(
	"ADS", "{ads: {}, resource_api_version: V3}",
	"AGENT", "{api_config_source: {api_type: GRPC, grpc_services: [{envoy_grpc: {cluster_name: sds-grpc}}], set_node_on_first_message_only: true, transport_api_version: V3}, resource_api_version: V3}",
	"MESH", "{api_config_source: {api_type: GRPC, grpc_services: [{envoy_grpc: {cluster_name: sds-grpc}}], set_node_on_first_message_only: true, transport_api_version: V3}, initial_fetch_timeout: 0s, resource_api_version: V3}",
	"OUTSIDE", "{api_config_source: {api_type: GRPC, grpc_services: [{envoy_grpc: {cluster_name: sds-external}}], set_node_on_first_message_only: true, transport_api_version: V3}, resource_api_version: V3}",
	"HTTP", "alpn_protocols: [h2, http/1.1]",
)

// ads are secrets of the control plane.
func ads(names ...string) (all []Secret) {
	for _, name := range names {
		all = append(all, Secret{Name: name})
	}
	return all
}

// TLS of every mode and source of certificates is what Istio's control plane makes of it, but for what Envoy refuses.
func TestTLSOfGateways(t *testing.T) {
	const ca, spki, hash = "kubernetes://srv-cacert", "NvqYIYSbgK2vCJpQhObf77vv+bQWtc5ek5RIOwPiC9A=", "DF:6F:F7:2F:E9:11:65:21:26:8F:6F:2D:D4:96:6F:51:DF:47:98:83:FE:70:37:B3:9F:75:91:6A:C3:04:9D:1A"
	istio := networkingv1.ServerTLSSettings_ISTIO_MUTUAL
	for name, c := range map[string]struct {
		tls  ServerTLS
		tcp  bool
		caps xds.Caps // that are missing
		want string
	}{
		"SIMPLE": {tls: ServerTLS{Mode: simple, Secrets: secrets.List(ads("kubernetes://srv")...)},
			want: "{require_client_certificate: false, common_tls_context: {HTTP, tls_certificate_sds_secret_configs: [{name: kubernetes://srv, sds_config: ADS}]}}"},
		"TCP within": {tls: ServerTLS{Mode: simple, Secrets: secrets.List(ads("kubernetes://srv")...)}, tcp: true,
			want: "{require_client_certificate: false, common_tls_context: {HTTP, tls_certificate_sds_secret_configs: [{name: kubernetes://srv, sds_config: ADS}]}}"},
		"two certificates": {tls: ServerTLS{Mode: simple, Secrets: secrets.List(ads("kubernetes://rsa", "kubernetes://ec")...)},
			want: "{require_client_certificate: false, common_tls_context: {HTTP, tls_certificate_sds_secret_configs: [{name: kubernetes://rsa, sds_config: ADS}, {name: kubernetes://ec, sds_config: ADS}]}}"},
		"MUTUAL": {tls: ServerTLS{Mode: mutual, Secrets: secrets.List(ads("kubernetes://srv")...), Trust: Secret{Name: ca}},
			want: `{require_client_certificate: true, common_tls_context: {HTTP, tls_certificate_sds_secret_configs: [{name: kubernetes://srv, sds_config: ADS}],
				combined_validation_context: {default_validation_context: {}, validation_context_sds_secret_config: {name: kubernetes://srv-cacert, sds_config: ADS}}}}`},
		"OPTIONAL_MUTUAL": {tls: ServerTLS{Mode: optional, Secrets: secrets.List(ads("kubernetes://srv")...), Trust: Secret{Name: "configmap://harbor/trust-cacert"}, Unverified: true},
			want: `{require_client_certificate: false, common_tls_context: {HTTP, tls_certificate_sds_secret_configs: [{name: kubernetes://srv, sds_config: ADS}],
				combined_validation_context: {default_validation_context: {trust_chain_verification: ACCEPT_UNTRUSTED}, validation_context_sds_secret_config: {name: configmap://harbor/trust-cacert, sds_config: ADS}}}}`},
		"names and pins": {tls: ServerTLS{Mode: mutual, Secrets: secrets.List(ads("kubernetes://srv")...), Trust: Secret{Name: ca}, Clients: strs.List("one.example.test", "spiffe://other/ns/a/sa/b"),
			Keys: strs.List(spki, "short"), Hashes: strs.List("aa:bb", hash)},
			want: `{require_client_certificate: true, common_tls_context: {HTTP, tls_certificate_sds_secret_configs: [{name: kubernetes://srv, sds_config: ADS}],
				combined_validation_context: {default_validation_context: {match_subject_alt_names: [{exact: one.example.test}, {exact: "spiffe://other/ns/a/sa/b"}],
				verify_certificate_spki: ["` + spki + `"], verify_certificate_hash: ["` + hash + `"]}, validation_context_sds_secret_config: {name: kubernetes://srv-cacert, sds_config: ADS}}}}`},
		"pins that no certificate has": {tls: ServerTLS{Mode: mutual, Secrets: secrets.List(ads("kubernetes://srv")...), Trust: Secret{Name: ca}, Hashes: strs.List("aa:bb")},
			want: `{require_client_certificate: true, common_tls_context: {HTTP, tls_certificate_sds_secret_configs: [{name: kubernetes://srv, sds_config: ADS}],
				combined_validation_context: {default_validation_context: {verify_certificate_hash: ["` + strings.Repeat("0", 64) + `"]}, validation_context_sds_secret_config: {name: kubernetes://srv-cacert, sds_config: ADS}}}}`},
		"names that Envoy does not take without authorities": {tls: ServerTLS{Mode: simple, Secrets: secrets.List(ads("kubernetes://srv")...), Clients: strs.List("one.example.test")},
			want: "{require_client_certificate: false, common_tls_context: {HTTP, tls_certificate_sds_secret_configs: [{name: kubernetes://srv, sds_config: ADS}]}}"},
		"ISTIO_MUTUAL": {tls: ServerTLS{Mode: istio, Clients: strs.List("spiffe://a/ns/b/sa/c")},
			want: `{require_client_certificate: true, common_tls_context: {HTTP, tls_certificate_sds_secret_configs: [{name: default, sds_config: MESH}],
				combined_validation_context: {default_validation_context: {match_typed_subject_alt_names: [{san_type: URI, matcher: {exact: "spiffe://a/ns/b/sa/c"}}]}, validation_context_sds_secret_config: {name: ROOTCA, sds_config: MESH}}}}`},
		"ISTIO_MUTUAL around TCP": {tls: ServerTLS{Mode: istio, Least: networkingv1.ServerTLSSettings_TLSV1_3}, tcp: true,
			want: `{require_client_certificate: true, common_tls_context: {alpn_protocols: [istio-peer-exchange, h2, http/1.1], tls_params: {tls_minimum_protocol_version: TLSv1_3},
				tls_certificate_sds_secret_configs: [{name: default, sds_config: MESH}], combined_validation_context: {default_validation_context: {}, validation_context_sds_secret_config: {name: ROOTCA, sds_config: MESH}}}}`},
		"the mesh's certificate": {tls: ServerTLS{Mode: simple, Secrets: secrets.List(Secret{xds.SDSDefault, xds.SDSCluster})},
			want: "{require_client_certificate: false, common_tls_context: {HTTP, " +
				"tls_certificate_sds_secret_configs: [{name: default, sds_config: MESH}]}}"},
		"another server of secrets": {tls: ServerTLS{Mode: mutual, Secrets: secrets.List(Secret{"sds://x", "sds-external"}), Trust: Secret{"sds://x-cacert", "sds-external"}},
			want: `{require_client_certificate: true, common_tls_context: {HTTP, tls_certificate_sds_secret_configs: [{name: "sds://x", sds_config: OUTSIDE}],
				combined_validation_context: {default_validation_context: {}, validation_context_sds_secret_config: {name: "sds://x-cacert", sds_config: OUTSIDE}}}}`},
		"files": {tls: ServerTLS{Mode: mutual, Certificate: "/etc/b/tls.crt", Key: "/etc/b/tls.key", Authorities: "/etc/b/ca.crt", Revoked: "/etc/b/crl.pem"},
			want: `{require_client_certificate: true, common_tls_context: {HTTP, tls_certificate_sds_secret_configs: [{name: "file-cert:/etc/b/tls.crt~/etc/b/tls.key", sds_config: AGENT}],
				combined_validation_context: {default_validation_context: {crl: {filename: /etc/b/crl.pem}}, validation_context_sds_secret_config: {name: "file-root:/etc/b/ca.crt", sds_config: AGENT}}}}`},
		"two files": {tls: ServerTLS{Mode: simple, Certificate: "/c/rsa.crt", Key: "/c/rsa.key", Certificate2: "/c/ec.crt", Key2: "/c/ec.key"},
			want: `{require_client_certificate: false, common_tls_context: {HTTP, tls_certificate_sds_secret_configs: [
				{name: "file-cert:/c/rsa.crt~/c/rsa.key", sds_config: AGENT}, {name: "file-cert:/c/ec.crt~/c/ec.key", sds_config: AGENT}]}}`},
		"files that Envoy reads": {tls: ServerTLS{Mode: mutual, Certificate: "/c", Key: "/k", Certificate2: "/c2", Key2: "/k2", Authorities: "/ca", Revoked: "/crl"}, caps: xds.CapFileSecrets,
			want: `{require_client_certificate: true, common_tls_context: {HTTP, tls_certificates: [{certificate_chain: {filename: /c}, private_key: {filename: /k}}, {certificate_chain: {filename: /c2}, private_key: {filename: /k2}}],
				validation_context: {trusted_ca: {filename: /ca}, crl: {filename: /crl}}}}`},
		"parameters": {tls: ServerTLS{Mode: simple, Secrets: secrets.List(ads("kubernetes://srv")...), Ciphers: strs.List("AES256-SHA"), Curves: strs.List("P-256", "X25519"),
			Least: networkingv1.ServerTLSSettings_TLSV1_0, Most: networkingv1.ServerTLSSettings_TLSV1_2, ALPN: strs.List("http/1.1")},
			want: `{require_client_certificate: false, common_tls_context: {alpn_protocols: [http/1.1], tls_certificate_sds_secret_configs: [{name: kubernetes://srv, sds_config: ADS}],
				tls_params: {cipher_suites: [AES256-SHA], ecdh_curves: [P-256, X25519], tls_maximum_protocol_version: TLSv1_2, tls_minimum_protocol_version: TLSv1_0}}}`},
	} {
		s := httpServer(gatewayProxy(t), "r", "a.test")
		if c.tcp {
			s = tcpServer(gatewayProxy(t), "db", "a.test")
		}
		s.TLS, s.Caps = c.tls, s.Caps&^c.caps
		got, want := &tlsv3.DownstreamTlsContext{}, &tlsv3.DownstreamTlsContext{}
		if err := chainOf(t, s).TransportSocket.GetTypedConfig().UnmarshalTo(got); err != nil {
			t.Fatal(err)
		}
		unyaml(t, yamlOf.Replace(c.want), want)
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// HTTP/3 ends the same TLS, and answers h3.
func TestTLSOfHTTP3(t *testing.T) {
	s := httpServer(gatewayProxy(t), "r", "a.test")
	s.TLS, s.QUIC = secret("srv"), true
	socket := chainOf(t, s).TransportSocket
	quic, want := &quicv3.QuicDownstreamTransport{}, &tlsv3.DownstreamTlsContext{}
	if err := socket.GetTypedConfig().UnmarshalTo(quic); err != nil || socket.Name != "envoy.transport_sockets.quic" {
		t.Fatal(socket, err)
	}
	unyaml(t, yamlOf.Replace("{require_client_certificate: false, common_tls_context: {alpn_protocols: [h3], tls_certificate_sds_secret_configs: [{name: kubernetes://srv, sds_config: ADS}]}}"), want)
	if diff := cmp.Diff(want, quic.DownstreamTlsContext, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// Envoy refuses a whole listener for one bad chain. So push/gateways keeps the SNI names of a port apart, and some
// settings of servers are left out here.
func TestEnvoyRefusesChains(t *testing.T) {
	envoy := envoytest.Binary(t)
	context := func(edit func(*tlsv3.CommonTlsContext)) func(*listenerv3.Listener) {
		return func(l *listenerv3.Listener) {
			c := &tlsv3.DownstreamTlsContext{}
			if err := l.FilterChains[0].TransportSocket.GetTypedConfig().UnmarshalTo(c); err != nil {
				t.Fatal(err)
			}
			edit(c.CommonTlsContext)
			l.FilterChains[0].TransportSocket.GetTypedConfig().Value = xds.Any(c).Value
		}
	}
	validation := func(text string) func(*listenerv3.Listener) {
		return context(func(c *tlsv3.CommonTlsContext) {
			more := &tlsv3.CommonTlsContext{}
			unyaml(t, text, more)
			proto.Merge(c, more)
		})
	}
	for name, c := range map[string]struct {
		spoil func(*listenerv3.Listener)
		says  string
	}{
		"one SNI twice": {func(l *listenerv3.Listener) { l.FilterChains[1].FilterChainMatch = l.FilterChains[0].FilterChainMatch }, "same matching rules"},
		"two chains without SNI": {func(l *listenerv3.Listener) {
			l.FilterChains[0].FilterChainMatch, l.FilterChains[1].FilterChainMatch = nil, nil
		}, "same matching rules"},
		"names without authorities":    {validation("validation_context: {match_subject_alt_names: [{exact: a.test}]}"), "without trusted CA"},
		"a pin that is no SHA-256":     {validation("validation_context: {verify_certificate_hash: ['aa:bb']}"), "VerifyCertificateHash"},
		"a cipher that it has not":     {validation("tls_params: {cipher_suites: [NO-SUCH-CIPHER]}"), "NO-SUCH-CIPHER"},
		"as it is, with a certificate": {func(*listenerv3.Listener) {}, ""},
	} {
		ours := newAuthority(t)
		ours.issue("a.test")
		a, b := httpServer(stock(t), "r", "a.test"), httpServer(stock(t), "r", "b.test")
		a.TLS = ServerTLS{Mode: simple, Certificate: ours.file("a.test"), Key: ours.file("a.test.key")}
		b.TLS = a.TLS
		_, l := build(t, gatewayOf(t, stock(t), a, b))
		c.spoil(l)
		if got := judge(t, envoy, l); (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s: %q, want %q", name, got, c.says)
		}
	}
}
