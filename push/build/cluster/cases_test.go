package cluster

import (
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

var strs intern.Table[string]

type testCase struct {
	spec    spec
	want    string // the fields that matter
	absent  []string
	problem string // the one problem contains it; empty: none
}

// meshSocket is the mesh's own TLS: SDS from the proxy's agent, and servers with a matching URI.
func meshSocket(sni, alpn string, uris ...string) string {
	sds := func(name string) string {
		return `{name: ` + name + `, sds_config: {resource_api_version: V3, initial_fetch_timeout: 0s, api_config_source: {api_type: GRPC, transport_api_version: V3, set_node_on_first_message_only: true,
			grpc_services: [{envoy_grpc: {cluster_name: sds-grpc}}]}}}`
	}
	var sans []string
	for _, u := range uris {
		sans = append(sans, "{san_type: URI, matcher: "+u+"}")
	}
	return `{name: envoy.transport_sockets.tls, typed_config: {` + tlsType + `, sni: ` + sni + `, common_tls_context: {
		tls_params: {tls_minimum_protocol_version: TLSv1_2, tls_maximum_protocol_version: TLSv1_3}, alpn_protocols: [istio-peer-exchange, istio` + alpn + `],
		tls_certificate_sds_secret_configs: [` + sds("default") + `],
		combined_validation_context: {validation_context_sds_secret_config: ` + sds("ROOTCA") + `, default_validation_context: {match_typed_subject_alt_names: [` + strings.Join(sans, ", ") + `]}}}}}`
}

// cases is a broad set: the tests of content, of references, of determinism and of Envoy's own validation run over all.
func cases(t testing.TB) map[string]testCase {
	all := map[string]testCase{}
	for _, set := range []map[string]testCase{locations(t), policies(t), balancers(t), security(t), others(t), patched(t)} {
		for label, c := range set {
			if _, twice := all[label]; twice {
				t.Fatalf("%s stands twice", label)
			}
			all[label] = c
		}
	}
	return all
}

func locations(t testing.TB) map[string]testCase {
	noEDS := []string{"eds_cluster_config", "load_assignment"}
	return map[string]testCase{
		"dns": {spec: with(external(t, "resolution: RESOLUTION_DNS"), func(s *Outbound) { s.Members = at("b.example.com", "10.0.0.1", "unix:///no") }),
			want: `{type: STRICT_DNS, dns_lookup_family: V4_ONLY, respect_dns_ttl: true, dns_refresh_rate: 60s, dns_jitter: 0.1s,
				dns_failure_refresh_rate: {base_interval: 2s, max_interval: 60s}, typed_dns_resolver_config: {name: envoy.network.dns_resolver.cares,
					typed_config: {"@type": type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig,
						udp_max_queries: 100, query_tries: 2, query_timeout_seconds: "2"}},
				metadata: {filter_metadata: {istio: {default_original_port: 80, external: true, services: [{host: ` + host + `, name: ext, namespace: shop}]}}},
				load_assignment: {cluster_name: "` + name + `", endpoints: [{load_balancing_weight: 2, lb_endpoints: [
					{health_status: HEALTHY, load_balancing_weight: 1, endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 8080}}}, metadata: {filter_metadata: {istio: {workload: ";shop;;latest;"}}}},
					{health_status: HEALTHY, load_balancing_weight: 1, endpoint: {address: {socket_address: {address: b.example.com, port_value: 8080}}}, metadata: {filter_metadata: {istio: {workload: ";shop;;latest;"}}}}]}]}}`,
			absent: []string{"eds_cluster_config"}},
		"dns without endpoints": {spec: with(external(t, "resolution: RESOLUTION_DNS"), func(s *Outbound) { s.Mesh = mesh(t, "dnsRefreshRate: 5s") }),
			want: `{type: STRICT_DNS, dns_refresh_rate: 5s, dns_failure_refresh_rate: {base_interval: 2s, max_interval: 5s}, load_assignment: {cluster_name: "` + name + `"}}`},
		"dns that is refreshed each second": {spec: with(external(t, "resolution: RESOLUTION_DNS"), func(s *Outbound) { s.Mesh = mesh(t, "dnsRefreshRate: 1s") }),
			want: `{dns_refresh_rate: 1s, dns_failure_refresh_rate: {base_interval: 1s, max_interval: 1s}}`},
		"dns round robin": {spec: with(external(t, "resolution: RESOLUTION_DNS_ROUND_ROBIN"), func(s *Outbound) { s.Members = at("a.example.com") }),
			want: `{type: LOGICAL_DNS, load_assignment: {cluster_name: "` + name + `", endpoints: [{load_balancing_weight: 1, lb_endpoints: [
				{health_status: HEALTHY, load_balancing_weight: 1, endpoint: {address: {socket_address: {address: a.example.com, port_value: 8080}}}, metadata: {filter_metadata: {istio: {workload: ";shop;;latest;"}}}}]}]}}`},
		"dns round robin of two": {spec: with(external(t, "resolution: RESOLUTION_DNS_ROUND_ROBIN"), func(s *Outbound) { s.Members = at("b.example.com", "a.example.com") }),
			want: `{type: LOGICAL_DNS, load_assignment: {cluster_name: "` + name + `", endpoints: [{load_balancing_weight: 1, lb_endpoints: [
				{health_status: HEALTHY, load_balancing_weight: 1, endpoint: {address: {socket_address: {address: a.example.com, port_value: 8080}}}, metadata: {filter_metadata: {istio: {workload: ";shop;;latest;"}}}}]}]}}`,
			problem: "ServiceEntry shop/ext: spec.endpoints: resolution DNS_ROUND_ROBIN takes one endpoint"},
		"dns round robin of two localities": {spec: with(external(t, "resolution: RESOLUTION_DNS_ROUND_ROBIN"), func(s *Outbound) {
			s.Members = members.List(model.Member{Endpoint: &model.Endpoint{Address: "b.example.com", Locality: "b"}, Port: 1}, model.Member{Endpoint: &model.Endpoint{Address: "c.example.com", Locality: "a"}, Port: 2})
		}), want: `{type: LOGICAL_DNS, load_assignment: {cluster_name: "` + name + `", endpoints: [{locality: {region: a}, load_balancing_weight: 1, lb_endpoints: [
				{health_status: HEALTHY, load_balancing_weight: 1, endpoint: {address: {socket_address: {address: c.example.com, port_value: 2}}}, metadata: {filter_metadata: {istio: {workload: ";;;latest;"}}}}]}]}}`,
			problem: "takes one endpoint"},
		"dns round robin of none": {spec: external(t, "resolution: RESOLUTION_DNS_ROUND_ROBIN"), want: `{type: STATIC}`,
			absent: append(noEDS, "dns_refresh_rate", "respect_dns_ttl", "dns_jitter", "dns_failure_refresh_rate", "typed_dns_resolver_config")},
		"dynamic dns, names of headers keep their case": {spec: with(external(t, "resolution: RESOLUTION_DYNAMIC_DNS"), func(s *Outbound) { s.HeaderCase = true }),
			want: `{lb_policy: CLUSTER_PROVIDED}`, absent: noEDS},
		"original destination": {spec: external(t, "resolution: RESOLUTION_NONE"), want: `{type: ORIGINAL_DST, lb_policy: CLUSTER_PROVIDED}`, absent: noEDS},
		"original destination does not balance": {spec: with(external(t, "resolution: RESOLUTION_NONE"), func(s *Outbound) {
			s.Rule = rule(t, "r", `{host: a, trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true}}}}`)
		}), want: `{type: ORIGINAL_DST, lb_policy: CLUSTER_PROVIDED}`, absent: append(noEDS, "ring_hash_lb_config")},
		"headless":       {spec: outbound(t, "PROTOCOL_HTTP", ", headless: true", ""), want: `{type: ORIGINAL_DST, lb_policy: CLUSTER_PROVIDED}`, absent: noEDS},
		"static entry":   {spec: external(t, "resolution: RESOLUTION_EDS"), want: `{type: EDS}`},
		"tcp":            {spec: outbound(t, "PROTOCOL_TCP", "", ""), want: `{type: EDS}`, absent: []string{"typed_extension_protocol_options"}},
		"http2":          {spec: outbound(t, "PROTOCOL_HTTP2", "", ""), want: `{typed_extension_protocol_options: {` + httpKey + `: {` + httpType + `, explicit_http_config: {http2_protocol_options: {}}}}}`},
		"grpc":           {spec: outbound(t, "PROTOCOL_GRPC", "", ""), want: `{typed_extension_protocol_options: {` + httpKey + `: {` + httpType + `, explicit_http_config: {http2_protocol_options: {}}}}}`},
		"auto":           {spec: outbound(t, "PROTOCOL_AUTO", "", ""), want: `{typed_extension_protocol_options: {` + httpKey + `: {` + httpType + `, use_downstream_protocol_config: {http_protocol_options: {}, http2_protocol_options: {}}}}}`},
		"mesh's timeout": {spec: with(outbound(t, "PROTOCOL_TCP", "", ""), func(s *Outbound) { s.Mesh = mesh(t, "{connectTimeout: 3s, tcpKeepalive: {time: 30s}}") }), want: `{connect_timeout: 3s, upstream_connection_options: {tcp_keepalive: {keepalive_time: 30}}}`},
		"stat name": {spec: with(outbound(t, "PROTOCOL_HTTP", "", ""), func(s *Outbound) {
			s.Mesh = mesh(t, `outboundClusterStatName: "%SERVICE%_%SERVICE_NAME%_%SERVICE_PORT%_%SERVICE_PORT_NAME%_%SUBSET_NAME%_%SERVICE_FQDN%"`)
			s.Subset = "v1"
		}), want: `{alt_stat_name: "reviews.shop_reviews_80_http_v1_` + host + `;"}`},
	}
}

func policies(t testing.TB) map[string]testCase {
	levels := rule(t, "levels", `{host: a, trafficPolicy: {connectionPool: {tcp: {connectTimeout: 1s}}, loadBalancer: {simple: RANDOM},
		portLevelSettings: [{port: {number: 81}, loadBalancer: {simple: ROUND_ROBIN}}]}, subsets: [
		{name: v1}, {name: v2, trafficPolicy: {loadBalancer: {simple: ROUND_ROBIN}}},
		{name: v3, trafficPolicy: {connectionPool: {tcp: {connectTimeout: 3s}}, portLevelSettings: [{port: {number: 80}, outlierDetection: {interval: 7s}}]}}]}`)
	port := rule(t, "port", `{host: a, trafficPolicy: {connectionPool: {tcp: {connectTimeout: 1s}}, portLevelSettings: [{port: {number: 80}, loadBalancer: {simple: ROUND_ROBIN}}]},
		subsets: [{name: v1, trafficPolicy: {connectionPool: {tcp: {connectTimeout: 4s}}}}]}`)
	subset := func(name string, host, sub *model.DestinationRule) Outbound {
		return with(outbound(t, "PROTOCOL_HTTP", "", ""), func(s *Outbound) { s.Subset, s.Rule, s.SubsetRule = name, host, sub })
	}
	return map[string]testCase{
		"pool": {spec: outbound(t, "PROTOCOL_HTTP", "", `{connectionPool: {tcp: {maxConnections: 1, connectTimeout: 2s, idleTimeout: 9s, maxConnectionDuration: 60s, tcpKeepalive: {probes: 3, time: 7200s, interval: 75s}},
				http: {http1MaxPendingRequests: 2, http2MaxRequests: 3, maxRequestsPerConnection: 4, maxRetries: 5, idleTimeout: 6s}}}`),
			want: `{connect_timeout: 2s, upstream_connection_options: {tcp_keepalive: {keepalive_probes: 3, keepalive_time: 7200, keepalive_interval: 75}},
				circuit_breakers: {thresholds: [{max_connections: 1, max_pending_requests: 2, max_requests: 3, max_retries: 5, track_remaining: true}]},
				typed_extension_protocol_options: {` + httpKey + `: {` + httpType + `, common_http_protocol_options: {idle_timeout: 6s, max_requests_per_connection: 4, max_connection_duration: 60s}, explicit_http_config: {http_protocol_options: {}}}}}`},
		"http2 pool": {spec: outbound(t, "PROTOCOL_HTTP2", "", `{connectionPool: {tcp: {idleTimeout: 0s}, http: {maxConcurrentStreams: 7, http2KeepAlive: {interval: 5s, timeout: 1s}}}}`),
			want: `{typed_extension_protocol_options: {` + httpKey + `: {` + httpType + `, common_http_protocol_options: {idle_timeout: 0s},
				explicit_http_config: {http2_protocol_options: {max_concurrent_streams: 7, connection_keepalive: {interval: 5s, timeout: 1s}}}}}}`},
		"rubbish durations": {spec: outbound(t, "PROTOCOL_HTTP", "", `{connectionPool: {tcp: {connectTimeout: 0s, maxConnections: -1, maxConnectionDuration: -1s, idleTimeout: -1s}, http: {idleTimeout: -3s}}, outlierDetection: {interval: 0s, baseEjectionTime: -1s, maxEjectionPercent: 200, minHealthPercent: -5}}`),
			want: `{connect_timeout: 10s, outlier_detection: {enforcing_success_rate: 0, max_ejection_percent: 100}, common_lb_config: {healthy_panic_threshold: {}}}`, absent: []string{"typed_extension_protocol_options"}},
		"retry budget": {spec: outbound(t, "PROTOCOL_HTTP", "", `{retryBudget: {percent: 40}}`),
			want: `{circuit_breakers: {thresholds: [{max_connections: ` + open32 + `, max_pending_requests: ` + open32 + `, max_requests: ` + open32 + `, max_retries: ` + open32 + `, track_remaining: true, retry_budget: {budget_percent: {value: 40}, min_retry_concurrency: 3}}]}}`},
		"upgrade": {spec: outbound(t, "PROTOCOL_AUTO", "", `{connectionPool: {http: {h2UpgradePolicy: UPGRADE}}}`),
			want: `{typed_extension_protocol_options: {` + httpKey + `: {` + httpType + `, explicit_http_config: {http2_protocol_options: {}}}}}`},
		"mesh upgrades http": {spec: with(outbound(t, "PROTOCOL_HTTP", "", ""), func(s *Outbound) { s.Mesh = mesh(t, "h2UpgradePolicy: UPGRADE") }),
			want: `{typed_extension_protocol_options: {` + httpKey + `: {` + httpType + `, explicit_http_config: {http2_protocol_options: {}}}}}`},
		"mesh upgrades no tcp": {spec: with(outbound(t, "PROTOCOL_TCP", "", ""), func(s *Outbound) { s.Mesh = mesh(t, "h2UpgradePolicy: UPGRADE") }),
			want: `{type: EDS}`, absent: []string{"typed_extension_protocol_options"}},
		"the client's protocol": {spec: with(outbound(t, "PROTOCOL_HTTP", "", `{connectionPool: {http: {useClientProtocol: true, h2UpgradePolicy: UPGRADE}}}`), func(s *Outbound) { s.Mesh = mesh(t, "h2UpgradePolicy: UPGRADE") }),
			want: `{typed_extension_protocol_options: {` + httpKey + `: {` + httpType + `, use_downstream_protocol_config: {http_protocol_options: {}, http2_protocol_options: {}}}}}`},
		"outlier": {spec: outbound(t, "PROTOCOL_HTTP", "", `{outlierDetection: {consecutive5xxErrors: 7, failurePercentageThreshold: 60, consecutiveGatewayErrors: 0, interval: 2s, baseEjectionTime: 400s, maxEjectionPercent: 50, minHealthPercent: 30,
				splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailures: 4}}`),
			want: `{common_lb_config: {healthy_panic_threshold: {value: 30}}, outlier_detection: {failure_percentage_threshold: 60, enforcing_failure_percentage: 100, consecutive_5xx: 7, enforcing_consecutive_5xx: 100, consecutive_gateway_failure: 0, enforcing_consecutive_gateway_failure: 0,
				interval: 2s, base_ejection_time: 400s, max_ejection_percent: 50, enforcing_success_rate: 0, split_external_local_origin_errors: true,
				consecutive_local_origin_failure: 4, enforcing_consecutive_local_origin_failure: 100, enforcing_local_origin_success_rate: 0}}`},
		"outlier, deprecated": {spec: outbound(t, "PROTOCOL_HTTP", "", `{outlierDetection: {consecutiveErrors: 5}}`),
			want: `{outlier_detection: {consecutive_5xx: 5, enforcing_consecutive_5xx: 100, enforcing_success_rate: 0}}`},
		"outlier, by one code": {spec: outbound(t, "PROTOCOL_HTTP", "", `{outlierDetection: {outlierDetectionHttpErrorCodes: [429]}}`),
			want: `{typed_extension_protocol_options: {` + httpKey + `: {` + httpType + `, explicit_http_config: {http_protocol_options: {}}, outlier_detection: {error_matcher: {http_response_headers_match: {headers: [{name: ":status", string_match: {exact: "429"}}]}}}}}}`},
		"outlier, by several codes": {spec: outbound(t, "PROTOCOL_HTTP", "", `{outlierDetection: {outlierDetectionHttpErrorCodes: [429, 503]}}`),
			want: `{typed_extension_protocol_options: {` + httpKey + `: {` + httpType + `, explicit_http_config: {http_protocol_options: {}}, outlier_detection: {error_matcher: {or_match: {rules: [
				{http_response_headers_match: {headers: [{name: ":status", string_match: {exact: "429"}}]}},
				{http_response_headers_match: {headers: [{name: ":status", string_match: {exact: "503"}}]}}]}}}}}}`},
		"subset without a policy": {spec: subset("v1", levels, levels), want: `{name: "outbound|80|v1|` + host + `", connect_timeout: 1s, lb_policy: RANDOM,
			metadata: {filter_metadata: {istio: {subset: v1, config: /apis/networking.istio.io/v1/namespaces/shop/destination-rule/levels, default_original_port: 80, services: [{host: ` + host + `, name: reviews, namespace: shop}]}}},
			eds_cluster_config: {service_name: "outbound|80|v1|` + host + `", eds_config: {ads: {}, initial_fetch_timeout: 0s, resource_api_version: V3}}}`},
		"subset over host":                  {spec: subset("v2", levels, levels), want: `{connect_timeout: 1s, lb_policy: ROUND_ROBIN}`},
		"port of a subset is all":           {spec: subset("v3", levels, levels), want: `{connect_timeout: 10s, outlier_detection: {interval: 7s, enforcing_success_rate: 0}, lb_policy: LEAST_REQUEST}`},
		"other port":                        {spec: subset("", levels, nil), want: `{connect_timeout: 1s, lb_policy: RANDOM}`},
		"port replaces host":                {spec: subset("", port, nil), want: `{connect_timeout: 10s}`},
		"subset over port of host":          {spec: subset("v1", port, port), want: `{connect_timeout: 4s}`},
		"subset of another rule":            {spec: subset("v2", port, levels), want: `{connect_timeout: 10s, metadata: {filter_metadata: {istio: {subset: v2, config: /apis/networking.istio.io/v1/namespaces/shop/destination-rule/levels, default_original_port: 80, services: [{host: ` + host + `, name: reviews, namespace: shop}]}}}}`},
		"subset of a rule, none for a host": {spec: subset("v2", nil, levels), want: `{connect_timeout: 10s}`},
	}
}

func balancers(t testing.TB) map[string]testCase {
	lb := func(text string) Outbound { return outbound(t, "PROTOCOL_HTTP", "", "{loadBalancer: {"+text+"}}") }
	zoned := func(s *Outbound) { // of proxies that know the cluster of their own workload
		s.Caps |= xds.CapSelfDiscovery
		s.Localities = traffic.Effective(s.Rule, nil, 0, 80).Over(s.Mesh).Localities(s.Service, s.Mesh, true)
	}
	return map[string]testCase{
		"random":        {spec: lb("simple: RANDOM"), want: `{lb_policy: RANDOM}`},
		"least request": {spec: lb("simple: LEAST_REQUEST"), want: `{lb_policy: LEAST_REQUEST}`},
		"least conn":    {spec: lb("simple: LEAST_CONN"), want: `{lb_policy: LEAST_REQUEST}`},
		"passthrough":   {spec: lb("simple: PASSTHROUGH"), want: `{type: ORIGINAL_DST, lb_policy: CLUSTER_PROVIDED}`, absent: []string{"eds_cluster_config"}},
		"warmup": {spec: lb("simple: ROUND_ROBIN, warmup: {duration: 30s, aggression: 2}"),
			want: `{type: EDS, round_robin_lb_config: {slow_start_config: {slow_start_window: 30s, aggression: {default_value: 2, runtime_key: "("}, min_weight_percent: {value: 10}}}}`},
		"warmup, deprecated": {spec: lb("warmupDurationSecs: 9s"), want: `{least_request_lb_config: {slow_start_config: {slow_start_window: 9s}}}`},
		"ring":               {spec: lb("consistentHash: {httpHeaderName: x, ringHash: {minimumRingSize: 64}}"), want: `{lb_policy: RING_HASH, ring_hash_lb_config: {minimum_ring_size: 64}}`},
		"ring, deprecated":   {spec: lb("consistentHash: {httpHeaderName: x, minimumRingSize: 65}"), want: `{lb_policy: RING_HASH, ring_hash_lb_config: {minimum_ring_size: 65}}`},
		"ring by default":    {spec: lb("consistentHash: {useSourceIp: true}"), want: `{lb_policy: RING_HASH, ring_hash_lb_config: {minimum_ring_size: 1024}}`},
		"ring too large": {spec: lb("consistentHash: {useSourceIp: true, ringHash: {minimumRingSize: 99999999}}"), want: `{lb_policy: RING_HASH, ring_hash_lb_config: {minimum_ring_size: 8388608}}`,
			problem: "spec.trafficPolicy.loadBalancer.consistentHash: minimumRingSize 99999999: at most 8388608"},
		"maglev":            {spec: lb("consistentHash: {useSourceIp: true, maglev: {tableSize: 65537}}"), want: `{lb_policy: MAGLEV, maglev_lb_config: {table_size: 65537}}`},
		"maglev by default": {spec: lb("consistentHash: {useSourceIp: true, maglev: {}}"), want: `{lb_policy: MAGLEV}`, absent: []string{"maglev_lb_config"}},
		"maglev of no prime": {spec: lb("consistentHash: {useSourceIp: true, maglev: {tableSize: 65536}}"), want: `{lb_policy: MAGLEV}`, absent: []string{"maglev_lb_config"},
			problem: "spec.trafficPolicy.loadBalancer.consistentHash.maglev.tableSize: 65536: want a prime"},
		"locality": {spec: lb("localityLbSetting: {failover: [{from: a, to: b}]}"), want: `{lb_policy: LEAST_REQUEST}`},
		"zones":    {spec: with(lb("zoneAwareLbSetting: {enabled: true, minClusterSize: 3}"), zoned), want: `{common_lb_config: {healthy_panic_threshold: {}, zone_aware_lb_config: {routing_enabled: {value: 100}, min_cluster_size: 3}}}`},
		"zones, and Envoy's own minimum": {spec: with(lb("zoneAwareLbSetting: {enabled: true}"), zoned), want: `{common_lb_config: {healthy_panic_threshold: {}, zone_aware_lb_config: {routing_enabled: {value: 100}}}}`,
			absent: []string{"min_cluster_size"}},
		"no zones":             {spec: with(lb("zoneAwareLbSetting: {enabled: false}"), zoned), want: `{common_lb_config: {healthy_panic_threshold: {}, zone_aware_lb_config: {routing_enabled: {value: 0}}}}`},
		"zones, nobody asks":   {spec: with(lb("simple: RANDOM"), zoned), want: `{common_lb_config: {healthy_panic_threshold: {}, zone_aware_lb_config: {routing_enabled: {value: 0}}}}`},
		"zones, not its own":   {spec: lb("zoneAwareLbSetting: {enabled: true}"), want: `{lb_policy: LEAST_REQUEST}`, absent: []string{"zone_aware_lb_config"}},
		"weights before zones": {spec: with(lb("localityLbSetting: {distribute: [{from: a, to: {b: 100}}]}"), zoned), want: `{common_lb_config: {healthy_panic_threshold: {}, locality_weighted_lb_config: {}}}`, absent: []string{"zone_aware_lb_config"}},
		"no locality":          {spec: lb("localityLbSetting: {enabled: false}"), want: `{lb_policy: LEAST_REQUEST}`},
	}
}

func security(t testing.TB) map[string]testCase {
	closed := []string{"eds_cluster_config", "load_assignment", "transport_socket"}
	versions := `tls_params: {tls_minimum_protocol_version: TLSv1_2, tls_maximum_protocol_version: TLSv1_3}`
	byAgent := func(name string) string {
		return `{name: "` + name + `", sds_config: {resource_api_version: V3, api_config_source: {api_type: GRPC, transport_api_version: V3, set_node_on_first_message_only: true,
			grpc_services: [{envoy_grpc: {cluster_name: sds-grpc}}]}}}`
	}
	names := external(t, "subjectAltNames: [spiffe://a/b, 10.0.0.1, a.example.com]")
	names.Rule = rule(t, "r", `{host: a, trafficPolicy: {tls: {mode: SIMPLE, sni: s.example.com}}}`)
	return map[string]testCase{
		"disabled": {spec: outbound(t, "PROTOCOL_HTTP", "", `{tls: {mode: DISABLE}}`), want: `{type: EDS}`, absent: []string{"transport_socket"}},
		"simple": {spec: outbound(t, "PROTOCOL_HTTP", "", `{tls: {mode: SIMPLE}}`),
			want: `{type: EDS, transport_socket: {name: envoy.transport_sockets.tls, typed_config: {` + tlsType + `, common_tls_context: {` + versions + `, validation_context: {trusted_ca: {filename: ` + systemCAs + `}}}}},
				metadata: {filter_metadata: {istio: {alpn_override: "false", config: /apis/networking.istio.io/v1/namespaces/shop/destination-rule/reviews, default_original_port: 80, services: [{host: ` + host + `, name: reviews, namespace: shop}]}}},
				typed_extension_protocol_options: {` + httpKey + `: {` + httpType + `, upstream_http_protocol_options: {auto_sni: true, auto_san_validation: true}, explicit_http_config: {http_protocol_options: {}}}}}`},
		"names of the entry": {spec: names,
			want: `{transport_socket: {name: envoy.transport_sockets.tls, typed_config: {` + tlsType + `, sni: s.example.com, common_tls_context: {` + versions + `, validation_context: {trusted_ca: {filename: ` + systemCAs + `},
				match_subject_alt_names: [{exact: spiffe://a/b}, {exact: 10.0.0.1}, {exact: a.example.com}]}}}}}`,
			absent: []string{"typed_extension_protocol_options"}},
		"unverified, over http2": {spec: outbound(t, "PROTOCOL_GRPC", "", `{tls: {mode: SIMPLE, insecureSkipVerify: true, sni: x}}`),
			want: `{transport_socket: {name: envoy.transport_sockets.tls, typed_config: {` + tlsType + `, sni: x, common_tls_context: {` + versions + `, alpn_protocols: [h2], validation_context: {}}}}}`},
		"mutual": {spec: with(outbound(t, "PROTOCOL_HTTP", "", `{tls: {mode: MUTUAL, clientCertificate: /c.pem, privateKey: /k.pem, caCertificates: /ca.pem, subjectAltNames: [a.b], sni: x}}`), func(s *Outbound) {
			s.Mesh = mesh(t, "tlsDefaults: {cipherSuites: [ECDHE-RSA-AES256-GCM-SHA384]}")
		}), want: `{transport_socket: {name: envoy.transport_sockets.tls, typed_config: {` + tlsType + `, sni: x, common_tls_context: {
				tls_params: {tls_minimum_protocol_version: TLSv1_2, tls_maximum_protocol_version: TLSv1_3, cipher_suites: [ECDHE-RSA-AES256-GCM-SHA384]},
				tls_certificates: [{certificate_chain: {filename: /c.pem}, private_key: {filename: /k.pem}}],
				validation_context: {trusted_ca: {filename: /ca.pem}, match_subject_alt_names: [{exact: a.b}]}}}}}`},
		"mutual, files and lists by the agent": {spec: with(outbound(t, "PROTOCOL_HTTP", "", `{tls: {mode: MUTUAL, clientCertificate: /c.pem, privateKey: /k.pem, caCertificates: /ca.pem, caCrl: /crl.pem, sni: x}}`), func(s *Outbound) {
			s.Caps = xds.CapFileSecrets | xds.CapFileLists
		}), want: `{transport_socket: {name: envoy.transport_sockets.tls, typed_config: {` + tlsType + `, sni: x, common_tls_context: {
				` + versions + `, tls_certificate_sds_secret_configs: [` + byAgent("file-cert:/c.pem~/k.pem") + `],
				combined_validation_context: {default_validation_context: {}, validation_context_sds_secret_config: ` + byAgent("file-root:/ca.pem~/crl.pem") + `}}}}}`},
		"mutual without certificates": {spec: outbound(t, "PROTOCOL_HTTP", "", `{tls: {mode: MUTUAL, clientCertificate: /c.pem}}`), want: `{type: STATIC}`, absent: closed,
			problem: "DestinationRule shop/reviews: spec.trafficPolicy.tls: MUTUAL requires"},
		"the mesh's own": {spec: outbound(t, "PROTOCOL_HTTP", "", `{tls: {mode: ISTIO_MUTUAL}}`), want: `{type: STATIC, lb_policy: LEAST_REQUEST}`, absent: closed,
			problem: "DestinationRule shop/reviews: spec.trafficPolicy.tls.mode: ISTIO_MUTUAL requires a certificate"},
		"the mesh's own with an identity": {spec: with(outbound(t, "PROTOCOL_HTTP", "", `{tls: {mode: ISTIO_MUTUAL}}`), func(s *Outbound) {
			s.Caps, s.Accounts = xds.CapIdentity, strs.List("shop/a", "shop/b")
			s.Mesh = mesh(t, "{trustDomain: td, trustDomainAliases: [old]}")
		}), want: `{transport_socket: ` + meshSocket("outbound_.80_._."+host, "", "{exact: spiffe://td/ns/shop/sa/a}", "{exact: spiffe://td/ns/shop/sa/b}",
			"{exact: spiffe://old/ns/shop/sa/a}", "{exact: spiffe://old/ns/shop/sa/b}") + `}`, absent: []string{"transport_socket_matches"}},
		"the mesh's own to whom the rule names": {spec: with(outbound(t, "PROTOCOL_GRPC", "", `{tls: {mode: ISTIO_MUTUAL, sni: x, subjectAltNames: ["spiffe://a/b"]}}`), func(s *Outbound) {
			s.Caps, s.Accounts = xds.CapIdentity, strs.List("shop/a")
		}), want: `{transport_socket: ` + meshSocket("x", ", h2", "{exact: spiffe://a/b}") + `}`},
		"mTLS by endpoint": {spec: with(outbound(t, "PROTOCOL_HTTP", "", ""), func(s *Outbound) { s.Caps, s.TLS = xds.CapIdentity, traffic.AutoEndpoints }),
			want: `{transport_socket_matches: [{name: tlsMode-istio, match: {tlsMode: istio}, transport_socket: ` + meshSocket("outbound_.80_._."+host, "", `{prefix: "spiffe://cluster.local/"}`) + `},
				{name: tlsMode-disabled, match: {}, transport_socket: {name: envoy.transport_sockets.raw_buffer, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer}}}]}`},
		"the mesh's own without who is denied": {spec: with(outbound(t, "PROTOCOL_HTTP", "", ""), func(s *Outbound) {
			s.Caps, s.TLS, s.Accounts, s.Denied = xds.CapIdentity, traffic.AutoAll, strs.List("shop/a", "shop/b", "shop/c"), strs.List("spiffe://old/ns/shop/sa/c", "spiffe://td/ns/shop/sa/b")
			s.Mesh = mesh(t, "{trustDomain: td, trustDomainAliases: [old]}")
		}), want: `{transport_socket: ` + meshSocket("outbound_.80_._."+host, "", "{exact: spiffe://td/ns/shop/sa/a}", "{exact: spiffe://td/ns/shop/sa/c}", "{exact: spiffe://old/ns/shop/sa/a}") + `}`},
		"all are denied": {spec: with(outbound(t, "PROTOCOL_HTTP", "", `{tls: {mode: ISTIO_MUTUAL, sni: x, subjectAltNames: ["spiffe://a/b"]}}`), func(s *Outbound) {
			s.Caps, s.Denied = xds.CapIdentity, strs.List("spiffe://a/b")
		}), want: `{transport_socket: ` + meshSocket("x", "", `{exact: "spiffe://cluster.local/ns//sa/"}`) + `}`},
		"mTLS to all":              {spec: with(outbound(t, "PROTOCOL_HTTP", "", ""), func(s *Outbound) { s.Caps, s.TLS = xds.CapIdentity, traffic.AutoAll }), want: `{transport_socket: ` + meshSocket("outbound_.80_._."+host, "", `{prefix: "spiffe://cluster.local/"}`) + `}`},
		"mTLS that a rule forbids": {spec: with(outbound(t, "PROTOCOL_HTTP", "", `{tls: {mode: DISABLE}}`), func(s *Outbound) { s.Caps, s.TLS = xds.CapIdentity, traffic.AutoEndpoints }), want: `{type: EDS}`, absent: []string{"transport_socket", "transport_socket_matches"}},
		"mTLS without an identity": {spec: with(outbound(t, "PROTOCOL_HTTP", "", ""), func(s *Outbound) { s.TLS = traffic.AutoAll }), want: `{type: EDS}`, absent: []string{"transport_socket", "transport_socket_matches"}},
		"the mesh's own, hashed and resolved": {spec: with(external(t, "resolution: RESOLUTION_DNS"), func(s *Outbound) {
			s.Members = at("a.example.com")
			s.Rule = rule(t, "r", `{host: a, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}, loadBalancer: {consistentHash: {useSourceIp: true}}}}`)
		}), want: `{type: STATIC, lb_policy: LEAST_REQUEST}`, absent: append(closed, "ring_hash_lb_config", "dns_refresh_rate"), problem: "ISTIO_MUTUAL"},
		"credential of a port": {spec: outbound(t, "PROTOCOL_HTTP", "", `{portLevelSettings: [{port: {number: 80}, tls: {mode: SIMPLE, credentialName: c}}]}`), want: `{type: STATIC}`, absent: closed,
			problem: "DestinationRule shop/reviews: spec.trafficPolicy.portLevelSettings[0].tls.credentialName: is for gateways"},
		"proxy protocol": {spec: outbound(t, "PROTOCOL_TCP", "", `{proxyProtocol: {version: V2}}`),
			want: `{transport_socket: {name: envoy.transport_sockets.upstream_proxy_protocol, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport,
				config: {version: V2}, transport_socket: {name: raw_buffer, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer}}}}}`},
	}
}

func others(t testing.TB) map[string]testCase {
	service := outbound(t, "PROTOCOL_HTTP", "", "").Service
	inbound := func(change func(*Inbound)) Inbound {
		return with(Inbound{Port: 8080, Service: service, Host: host, Mesh: model.DefaultMesh()}, change)
	}
	bound := `upstream_bind_config: {source_address: {address: 127.0.0.6, port_value: 0}}`
	target := func(address string) string {
		return `{type: STATIC, load_assignment: {cluster_name: inbound|8080||, endpoints: [{lb_endpoints: [{endpoint: {address: ` + address + `}}]}]}`
	}
	open := `circuit_breakers: {thresholds: [{max_connections: ` + open32 + `, max_pending_requests: ` + open32 + `, max_requests: ` + open32 + `, max_retries: ` + open32 + `, track_remaining: true}]}`
	idle := `typed_extension_protocol_options: {` + httpKey + `: {` + httpType + `, common_http_protocol_options: {idle_timeout: 300s}, use_downstream_protocol_config: {http_protocol_options: {}, http2_protocol_options: {}}}}`
	return map[string]testCase{
		"inbound": {spec: inbound(func(*Inbound) {}),
			want: `{name: inbound|8080||, alt_stat_name: inbound|8080||;, type: ORIGINAL_DST, lb_policy: CLUSTER_PROVIDED, connect_timeout: 10s, ` + bound + `, ` + open + `, cleanup_interval: 9208512000s, common_lb_config: {},
				metadata: {filter_metadata: {istio: {services: [{host: ` + host + `, name: reviews, namespace: shop}]}}}}`, absent: []string{"typed_extension_protocol_options"}},
		"inbound without a service": {spec: inbound(func(s *Inbound) { s.Service = nil }), want: `{type: ORIGINAL_DST}`, absent: []string{"metadata"}},
		"inbound http2":             {spec: inbound(func(s *Inbound) { s.HTTP2, s.Auto = true, true }), want: `{typed_extension_protocol_options: {` + httpKey + `: {` + httpType + `, explicit_http_config: {http2_protocol_options: {}}}}}`},
		"inbound auto":              {spec: inbound(func(s *Inbound) { s.Auto = true }), want: `{typed_extension_protocol_options: {` + httpKey + `: {` + httpType + `, use_downstream_protocol_config: {http_protocol_options: {}, http2_protocol_options: {}}}}}`},
		"inbound to localhost":      {spec: inbound(func(s *Inbound) { s.Target = "127.0.0.1:81" }), want: target(`{socket_address: {address: 127.0.0.1, port_value: 81}}`) + `}`, absent: []string{"upstream_bind_config", "cleanup_interval"}},
		"inbound to an address":     {spec: inbound(func(s *Inbound) { s.Target = "127.0.1.5:81" }), want: target(`{socket_address: {address: 127.0.1.5, port_value: 81}}`) + `, ` + bound + `}`},
		"inbound to v6":             {spec: inbound(func(s *Inbound) { s.Target = "[fd00::1]:81" }), want: target(`{socket_address: {address: "fd00::1", port_value: 81}}`) + `, upstream_bind_config: {source_address: {address: "::6", port_value: 0}}}`},
		"inbound to a socket":       {spec: inbound(func(s *Inbound) { s.Target = "unix:///run/app" }), want: target(`{pipe: {path: /run/app}}`) + `}`, absent: []string{"upstream_bind_config"}},
		"inbound pool": {spec: inbound(func(s *Inbound) {
			s.Pool = &networkingv1.ConnectionPoolSettings{}
			fromYAML(t, `{tcp: {maxConnections: 1, tcpKeepalive: {probes: 4}}, http: {http2MaxRequests: 2, idleTimeout: 3s}}`, s.Pool)
		}),
			want: `{circuit_breakers: {thresholds: [{max_connections: 1, max_pending_requests: ` + open32 + `, max_requests: 2, max_retries: ` + open32 + `, track_remaining: true}]}, upstream_connection_options: {tcp_keepalive: {keepalive_probes: 4}},
				typed_extension_protocol_options: {` + httpKey + `: {` + httpType + `, common_http_protocol_options: {idle_timeout: 3s}, explicit_http_config: {http_protocol_options: {}}}}}`},
		"inbound stat name": {spec: inbound(func(s *Inbound) { s.Mesh = mesh(t, `inboundClusterStatName: "%SERVICE%_%SERVICE_PORT%_%TARGET_PORT%"`) }), want: `{alt_stat_name: reviews.shop_80_8080;}`},
		"black hole":        {spec: Static{Name: xds.BlackHole, Mesh: model.DefaultMesh()}, want: `{name: BlackHoleCluster, alt_stat_name: BlackHoleCluster;, type: STATIC, connect_timeout: 10s}`, absent: []string{"load_assignment", "circuit_breakers"}},
		"static passthrough": {spec: Static{Name: xds.Passthrough, Mesh: model.DefaultMesh()},
			want: `{name: PassthroughCluster, alt_stat_name: PassthroughCluster;, type: ORIGINAL_DST, lb_policy: CLUSTER_PROVIDED, ` + open + `, ` + idle + `}`, absent: []string{"upstream_bind_config"}},
		"inbound passthrough": {spec: Static{Name: xds.InboundPassthrough, Mesh: model.DefaultMesh()},
			want: `{name: InboundPassthroughCluster, type: ORIGINAL_DST, lb_policy: CLUSTER_PROVIDED, ` + open + `, ` + idle + `, ` + bound + `}`},
		"static passthrough, with the mesh's default pool": {spec: Static{Name: xds.Passthrough, Mesh: mesh(t, `defaultTrafficPolicy: {connectionPool: {tcp: {maxConnections: 7, connectTimeout: 3s, tcpKeepalive: {time: 7s}}, http: {idleTimeout: 20s, maxRequestsPerConnection: 5}}}`)},
			want: `{connect_timeout: 3s, upstream_connection_options: {tcp_keepalive: {keepalive_time: 7}}, circuit_breakers: {thresholds: [{max_connections: 7, max_pending_requests: ` + open32 + `, max_requests: ` + open32 + `, max_retries: ` + open32 + `, track_remaining: true}]},
				typed_extension_protocol_options: {` + httpKey + `: {` + httpType + `, common_http_protocol_options: {idle_timeout: 20s, max_requests_per_connection: 5}, use_downstream_protocol_config: {http_protocol_options: {}, http2_protocol_options: {}}}}}`},
		"added": {spec: Added{Patch: filters(t, `[{applyTo: CLUSTER, patch: {operation: ADD, value: {name: mine, type: STATIC, connect_timeout: 1s}}}]`).All()[0]}, want: `{name: mine, type: STATIC, connect_timeout: 1s}`},
		"added with EDS": {spec: Added{Patch: filters(t, `[{applyTo: CLUSTER, patch: {operation: ADD, value: {name: mine2, type: EDS, eds_cluster_config: {service_name: x, eds_config: {ads: {}, resource_api_version: V3}}}}}]`).All()[0]},
			want: `{name: mine2, type: EDS}`},
	}
}

func patched(t testing.TB) map[string]testCase {
	merge := func(s Outbound, values ...string) Outbound {
		text := ""
		for _, v := range values {
			text += `{applyTo: CLUSTER, patch: {operation: MERGE, value: ` + v + `}}, `
		}
		s.Patches = filters(t, "["+text+"]")
		return s
	}
	plain := outbound(t, "PROTOCOL_HTTP", "", "")
	return map[string]testCase{
		"patches in order": {spec: merge(plain, `{connect_timeout: 2s, lb_policy: RANDOM}`, `{connect_timeout: 3s}`), want: `{connect_timeout: 3s, lb_policy: RANDOM, type: EDS}`},
		"a patch that does not decode is skipped": {spec: merge(plain, `{lb_polizy: RANDOM}`, `{connect_timeout: 3s}`), want: `{connect_timeout: 3s, lb_policy: LEAST_REQUEST}`,
			problem: `EnvoyFilter shop/f: spec.configPatches[0].patch.value: unknown field "lb_polizy"`},
		"a patch that Envoy would refuse is skipped": {spec: merge(plain, `{connect_timeout: 3s}`, `{connect_timeout: -1s}`), want: `{connect_timeout: 3s}`,
			problem: `EnvoyFilter shop/f: spec.configPatches[1].patch.value: invalid Cluster.ConnectTimeout`},
		"the name stands":          {spec: merge(plain, `{name: other, connect_timeout: 3s}`), want: `{name: "` + name + `", connect_timeout: 3s}`, problem: "name: the name of a cluster cannot be patched"},
		"a patch changes the type": {spec: merge(plain, `{type: STRICT_DNS, load_assignment: {cluster_name: a}}`), want: `{type: STRICT_DNS, load_assignment: {cluster_name: a}}`, absent: []string{"eds_cluster_config"}},
		"a patch into TLS": {spec: merge(outbound(t, "PROTOCOL_TCP", "", `{tls: {mode: SIMPLE, insecureSkipVerify: true, sni: a}}`), `{transport_socket: {name: envoy.transport_sockets.tls, typed_config: {`+tlsType+`, allow_renegotiation: true}}}`),
			want: `{transport_socket: {name: envoy.transport_sockets.tls, typed_config: {` + tlsType + `, sni: a, allow_renegotiation: true, common_tls_context: {tls_params: {tls_minimum_protocol_version: TLSv1_2, tls_maximum_protocol_version: TLSv1_3}, validation_context: {}}}}}`},
		"a patch of the black hole": {spec: Static{Name: xds.BlackHole, Mesh: model.DefaultMesh(), Patches: merge(plain, `{lb_policy: RANDOM}`).Patches}, want: `{lb_policy: RANDOM, type: STATIC}`},
	}
}
