package cluster

import (
	"fmt"
	"strings"
	"testing"

	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
)

// A whole cluster for gRPC's own client, and the effect of each setting on it.
func TestProxylessClusters(t *testing.T) {
	const eds = "name: 'outbound|80||" + host + "', type: EDS, eds_cluster_config: {service_name: 'outbound|80||" + host + "', eds_config: {ads: {}, resource_api_version: V3}}"
	const closed = "name: 'outbound|80||" + host + "', type: EDS, eds_cluster_config: {service_name: BlackHoleCluster, eds_config: {ads: {}, resource_api_version: V3}}"
	const unlimited = "circuit_breakers: {thresholds: [{max_requests: 4294967295}]}"
	const provider = "ca_certificate_provider_instance: {instance_name: default}"
	socket := func(names string) string {
		return "transport_socket: {name: envoy.transport_sockets.tls, typed_config: {" + tlsType + ", common_tls_context: {tls_certificate_provider_instance: {instance_name: default}, validation_context: {" +
			provider + ", match_subject_alt_names: [" + names + "]}}}}"
	}
	own := func(s Outbound) Outbound {
		s.Caps, s.Accounts = xds.CapIdentity, strs.List("shop/reviews")
		return s
	}
	grpc := func(policy string) Outbound { return outbound(t, "PROTOCOL_GRPC", "", policy) }
	for _, c := range []struct {
		name     string
		spec     Outbound
		want     string
		problems []string
	}{
		{"nothing stated", grpc(""), eds + ", " + unlimited, nil},
		{"a limit", grpc("{connectionPool: {http: {http2MaxRequests: 7}}}"), eds + ", circuit_breakers: {thresholds: [{max_requests: 7}]}", nil},
		{"a ring hash", grpc("{loadBalancer: {consistentHash: {httpHeaderName: x, ringHash: {minimumRingSize: 64}}}}"),
			eds + ", lb_policy: RING_HASH, ring_hash_lb_config: {minimum_ring_size: 64}, " + unlimited, nil},
		{"maglev", grpc("{loadBalancer: {consistentHash: {useSourceIp: true, maglev: {}}}}"),
			eds + ", lb_policy: RING_HASH, ring_hash_lb_config: {minimum_ring_size: 1024}, " + unlimited, []string{"consistentHash.maglev: ", "consistentHash: "}},
		{"random", grpc("{loadBalancer: {simple: RANDOM}}"), eds + ", " + unlimited, []string{"spec.trafficPolicy.loadBalancer.simple: RANDOM is not supported; ROUND_ROBIN"}},
		{"what has no counterpart", grpc("{outlierDetection: {consecutive5xxErrors: 3}, connectionPool: {tcp: {maxConnections: 1}, http: {idleTimeout: 3s}}, proxyProtocol: {}}"), eds + ", " + unlimited,
			[]string{"trafficPolicy.outlierDetection: ", "connectionPool.tcp: ", "connectionPool.http: ", "spec.trafficPolicy.proxyProtocol: "}},
		{"mTLS that no rule asked for", with(own(grpc("")), func(s *Outbound) { s.TLS = traffic.AutoAll }), eds + ", " + unlimited + ", " + socket("{exact: spiffe://cluster.local/ns/shop/sa/reviews}"), nil},
		{"mTLS by a rule, of accounts that are not known", with(own(grpc("{tls: {mode: ISTIO_MUTUAL}}")), func(s *Outbound) { s.Accounts = strs.List() }),
			eds + ", " + unlimited + ", " + socket("{prefix: 'spiffe://cluster.local/'}"), nil},
		{"mTLS to names of the rule", own(grpc("{tls: {mode: ISTIO_MUTUAL, subjectAltNames: [spiffe://a/b]}}")), eds + ", " + unlimited + ", " + socket("{exact: spiffe://a/b}"), nil},
		{"mTLS that cannot be had", grpc("{tls: {mode: ISTIO_MUTUAL}}"), closed, []string{"spec.trafficPolicy.tls.mode: ISTIO_MUTUAL requires"}},
		{"TLS of others", own(grpc("{tls: {mode: SIMPLE}}")), closed, []string{"tls.mode: SIMPLE is not supported"}},
		{"in the clear", with(own(grpc("{tls: {mode: DISABLE}}")), func(s *Outbound) { s.TLS = traffic.AutoAll }), eds + ", " + unlimited, nil},
		{"of no known address", outbound(t, "PROTOCOL_GRPC", ", resolution: RESOLUTION_NONE", ""), closed + ", " + unlimited, []string{"spec.resolution: NONE"}},
		{"a name", with(outbound(t, "PROTOCOL_GRPC", ", resolution: RESOLUTION_DNS", ""), func(s *Outbound) { s.Members = at("a.example.com") }),
			"name: 'outbound|80||" + host + "', type: LOGICAL_DNS, " + unlimited, nil},
		{"two names", with(outbound(t, "PROTOCOL_GRPC", ", resolution: RESOLUTION_DNS", ""), func(s *Outbound) { s.Members = at("a.example.com", "b.example.com") }),
			closed + ", " + unlimited, []string{"spec.resolution: DNS is supported for exactly one"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, got := build(t, Proxyless{c.spec})
			if got.LoadAssignment != nil && len(got.LoadAssignment.Endpoints) == 1 {
				got.LoadAssignment = nil
			}
			if diff := differs(t, got, "{"+c.want+"}", "eds_cluster_config", "load_assignment", "transport_socket", "transport_socket_matches", "outlier_detection",
				"typed_extension_protocol_options", "connect_timeout", "metadata", "common_lb_config", "lb_policy", "ring_hash_lb_config", "circuit_breakers", "upstream_connection_options"); diff != "" {
				t.Error(diff)
			}
			found := decided(Proxyless{c.spec}).Problems()
			if len(found) != len(c.problems) {
				t.Errorf("problems %v, want %q", found, c.problems)
			}
			for _, want := range c.problems {
				if !strings.Contains(fmt.Sprint(found), want) {
					t.Errorf("problems %v, want one with %q", found, want)
				}
			}
		})
	}
}
