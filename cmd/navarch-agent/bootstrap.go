package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"

	"navarch.io/navarch/push/istiometrics"
)

// object is one Envoy message as JSON. The agent does not link Envoy's Go types of the bootstrap, which would need a
// third of its memory. A test decodes the rendered bootstrap with these types and has Envoy validate it.
type object = map[string]any

// xdsCluster is the name of the control plane's cluster. Dashboards and Istio's tools expect this name.
const xdsCluster = "xds-grpc"

// statsTags are the regular expressions that extract tags from Envoy's dotted statistic names. The tags are the labels
// that dashboards for istio-proxy use.
var statsTags = [][2]string{
	{"cluster_name", `^cluster\.((.+?(\..+?\.svc\.cluster\.local)?)\.)`},
	{"tcp_prefix", `^tcp\.((.*?)\.)\w+?$`},
	{"response_code", `(_rq(_(\d{3}))$)`},
	{"response_code_class", `(_rq(_(\dxx))$)`},
	{"http_conn_manager_listener_prefix", `^listener(?=\.).*?\.http\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)`},
	{"http_conn_manager_prefix", `^http\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)`},
	{"authz_enforce_result", `rbac(\.(allowed|denied))`},
	{"authz_dry_run_action", `(\.istio_dry_run_(allow|deny)_)`},
	{"authz_dry_run_result", `(\.shadow_(allowed|denied))`},
	{"listener_address", `^listener\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)`},
}

// bootstrapAddresses are the addresses ("ip:port") and socket paths that the bootstrap contains.
type bootstrapAddresses struct {
	admin   string
	metrics string // Envoy's listener for metrics; empty: no such listener
	xds     string // path of the socket on which the agent relays xDS
	sds     string // path of the socket for certificates; empty: no SDS
	idle    string // path of the file by which the agent ends idle connections; empty: no such file
}

// bootstrap renders Envoy's start-up configuration as JSON: node, admin address, delta ADS over the xDS socket, SDS
// over a second socket (if set) and the metrics listener (if set). Errors: the node cannot be encoded as JSON, or an
// address is not IP:port.
func bootstrap(id *identity, at bootstrapAddresses) ([]byte, error) {
	node, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(id.node)
	if err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	admin, err := socketAddress(at.admin)
	if err != nil {
		return nil, fmt.Errorf("admin address %q: %w", at.admin, err)
	}
	clusters := []object{socketCluster(xdsCluster, at.xds)}
	if at.sds != "" {
		clusters = append(clusters, socketCluster(sdsCluster, at.sds))
	}
	static, settings := object{}, object{"re2.max_program_size.error_level": 32768}
	if at.metrics != "" {
		address, err := socketAddress(at.metrics)
		if err != nil {
			return nil, fmt.Errorf("metrics address %q: %w", at.metrics, err)
		}
		static["listeners"] = []object{metricsListener(address)}
		clusters = append(clusters, metricsCluster(admin))
		settings["envoy.resource_limits.listener."+metricsName+".connection_limit"] = 64
	}
	manager := object{}
	if id.selfDiscovery() {
		clusters, manager["local_cluster_name"] = append(clusters, ownCluster()), localCluster
	}
	static["clusters"] = clusters
	whole := object{
		"node":              json.RawMessage(node),
		"admin":             object{"address": admin},
		"cluster_manager":   manager,
		"static_resources":  static,
		"dynamic_resources": dynamicResources(),
		// This resolver is for clusters that EnvoyFilters add without a resolver. Clusters of the control plane have
		// the same settings, for reasons that push/build/cluster gives.
		"typed_dns_resolver_config": object{"name": "envoy.network.dns_resolver.cares", "typed_config": object{
			"@type": caresType, "udp_max_queries": 100, "query_tries": 2, "query_timeout_seconds": 2}},
		"stats_config": statsConfig(id),
		// Envoy creates the statistics of a cluster when the cluster is first used. With 1,000 clusters, the main
		// thread uses 38 % less CPU (measured).
		"deferred_stat_options": object{"enable_deferred_creation_stats": true},
		"layered_runtime": object{"layers": []object{
			{"name": "static", "static_layer": settings},
			{"name": "admin", "admin_layer": object{}},
		}},
	}
	if at.idle != "" {
		whole[overloadKey] = idleOverload(at.idle)
	}
	return json.MarshalIndent(whole, "", " ")
}

// dynamicResources makes Envoy request its configuration by delta ADS from xdsCluster.
func dynamicResources() object {
	// There is no fetch timeout, because an Envoy without configuration must not look ready.
	ads := object{"ads": object{}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}
	return object{
		"cds_config": ads,
		"lds_config": ads,
		"ads_config": object{
			"api_type":              "DELTA_GRPC",
			"transport_api_version": "V3",
			// By default, each request (ACKs included) contains the node, which is 61 KB.
			"set_node_on_first_message_only": true,
			"grpc_services": []object{{"envoy_grpc": object{
				"cluster_name": xdsCluster,
				"retry_policy": object{"retry_back_off": object{"base_interval": "0.100s", "max_interval": "1s"}},
			}}},
		},
	}
}

// localCluster is the name of the cluster of the proxy's own workload, as with Istio's agents. The control plane
// sends the cluster's endpoints.
const localCluster = "local_cluster"

// ownCluster returns localCluster as an EDS cluster. Envoy waits at most 15 s (Envoy's default) for the endpoints,
// because a control plane that does not know the workload may send none.
func ownCluster() object {
	return object{"name": localCluster, "type": "EDS", "connect_timeout": "1s",
		"eds_cluster_config": object{"eds_config": object{"ads": object{}, "resource_api_version": "V3"}}}
}

// sdsCluster is the name of the cluster that serves SDS. The control plane's configuration uses this name, as with
// Istio's agents.
const sdsCluster = "sds-grpc"

const (
	metricsName    = "envoy-prometheus"
	metricsBackend = "prometheus_stats" // Istio's agents use the same name

	hcmType    = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	routerType = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
	caresType  = "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig"
	httpType   = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
)

// metricsListener returns a listener that forwards requests for /stats/prometheus, and no others, to the admin port.
// A runtime setting limits the number of connections, and timeouts limit their duration.
func metricsListener(address object) object {
	route := object{"match": object{"path": metricsPath}, "route": object{"cluster": metricsBackend, "timeout": "60s"}}
	hcm := object{
		"@type":                        hcmType,
		"stat_prefix":                  "stats",
		"request_timeout":              "10s",
		"stream_idle_timeout":          "30s",
		"common_http_protocol_options": object{"idle_timeout": "60s"},
		"route_config": object{"virtual_hosts": []object{
			{"name": "stats", "domains": []string{"*"}, "routes": []object{route}},
		}},
		"http_filters": []object{{"name": "envoy.filters.http.router", "typed_config": object{"@type": routerType}}},
	}
	filter := object{"name": "envoy.filters.network.http_connection_manager", "typed_config": hcm}
	return object{
		"name": metricsName, "stat_prefix": metricsName, "address": address,
		"filter_chains": []object{{"filters": []object{filter}}},
	}
}

// metricsCluster returns the cluster of Envoy's own admin port, for metricsListener.
func metricsCluster(admin object) object {
	return object{
		"name": metricsBackend, "type": "STATIC", "connect_timeout": "1s",
		"load_assignment": assignment(metricsBackend, admin),
	}
}

// socketCluster returns an HTTP/2 cluster whose one endpoint is a Unix socket of the agent. The keepalive detects a
// socket that no longer answers.
func socketCluster(name, socket string) object {
	keepalive := object{"interval": "10s", "timeout": "5s"}
	return object{
		"name": name, "type": "STATIC", "connect_timeout": "1s",
		"typed_extension_protocol_options": object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
			"@type":                httpType,
			"explicit_http_config": object{"http2_protocol_options": object{"connection_keepalive": keepalive}},
		}},
		"load_assignment": assignment(name, object{"pipe": object{"path": socket}}),
	}
}

// assignment returns the endpoints of a cluster with one address.
func assignment(cluster string, address object) object {
	endpoint := object{"endpoint": object{"address": address}}
	return object{"cluster_name": cluster, "endpoints": []object{{"lb_endpoints": []object{endpoint}}}}
}

// statsConfig returns the settings of Envoy's statistics. Without patterns in the proxy's configuration all statistics
// are kept. With patterns, only matching statistics and the statistics that the agent or dashboards need are kept.
func statsConfig(id *identity) object {
	m := id.proxy.GetProxyStatsMatcher()
	var tags, want []object
	for _, t := range statsTags {
		tags = append(tags, object{"tag_name": t[0], "regex": t[1]})
	}
	cfg := object{"use_all_default_tags": false, "stats_tags": tags}
	for _, v := range m.GetInclusionPrefixes() {
		want = append(want, object{"prefix": v})
	}
	for _, v := range m.GetInclusionSuffixes() {
		want = append(want, object{"suffix": v})
	}
	for _, v := range m.GetInclusionRegexps() {
		want = append(want, object{"safe_regex": object{"regex": v}})
	}
	if len(want) == 0 {
		return cfg
	}
	// The statistics below are always kept. They serve readiness, draining and dashboards. They include Istio's
	// metrics, and the counters of authorisation, also in a dry run.
	for _, v := range []string{"cluster_manager", "listener_manager", "server", "cluster." + xdsCluster, istiometrics.Prefix} {
		want = append(want, object{"prefix": v})
	}
	for _, v := range []string{activeConnections, "rbac.allowed", "rbac.denied", "shadow_allowed", "shadow_denied"} {
		want = append(want, object{"suffix": v})
	}
	if id.isRouter() {
		want = append(want, object{"suffix": acceptedConnections})
	}
	cfg["stats_matcher"] = object{"inclusion_list": object{"patterns": want}}
	return cfg
}

// socketAddress converts "ip:port" to Envoy's SocketAddress. The error reports a text without a port, a host that is
// not an IP address, or a port that is not a number of 16 bits.
func socketAddress(hostPort string) (object, error) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if _, bad := netip.ParseAddr(host); err != nil || bad != nil {
		return nil, fmt.Errorf("want IP:port")
	}
	return object{"socket_address": object{"address": host, "port_value": n}}, nil
}
