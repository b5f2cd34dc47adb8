package xds

import "slices"

// Caps is what a proxy is able to do, as far as a builder asks: one bit for each extension that Navarch may send. A
// proxy that does not list an extension in node.extensions is never sent it (Envoy would refuse the whole listener:
// "Didn't find a registered implementation").
type Caps uint64

const (
	CapMetadataExchange Caps = 1 << iota // istio.metadata_exchange (HTTP)
	CapALPN                              // istio.alpn
	CapIstioStats                        // istio.stats
	CapHTTPInspector
	CapTLSInspector
	CapOriginalDst
	CapCORS
	CapFault
	CapGRPCStats
	CapRBACHTTP
	CapRBACNetwork
	CapSetFilterState
	CapFileAccessLog
	CapOnDemand
	CapGRPCWeb
	CapOriginalSrc
	CapMongo
	CapDynamicForward // all of envoy.*.dynamic_forward_proxy
	// Access loggers, their filter by CEL, and tracers.
	CapHTTPGRPCLog
	CapTCPGRPCLog
	CapOpenTelemetryLog
	CapCELFilter
	CapZipkin
	CapDatadog
	CapSkyWalking
	CapOpenTelemetry
	// CapIdentity is no extension: the proxy has a certificate of the mesh, which it gets by SDS over the static cluster
	// SDSCluster of its bootstrap. To a proxy without that cluster what names it must not be sent.
	CapIdentity
	CapJWT             // envoy.filters.http.jwt_authn
	CapExtAuthzHTTP    // envoy.filters.http.ext_authz
	CapExtAuthzNetwork // envoy.filters.network.ext_authz
	// CapFileSecrets is no extension either: the agent behind SDSCluster reads files that a secret's name says, as Istio's does
	// (file-cert:CERTIFICATE~KEY, file-root:CERTIFICATES).
	CapFileSecrets
	// CapFileLists is none either: the secret of authorities may name a file of their revocation lists too (FileAuthorities), as Navarch's agents read it.
	CapFileLists
	CapLua
	CapWasmHTTP
	CapWasmNetwork
	// CapWasmFetch is no extension: the proxy's agent fetches modules of WebAssembly, and images that have one (Istio's agent does).
	CapWasmFetch
	CapHeaderCase // the formatter of HTTP/1 headers that keeps their case
	// CapStatsLog is the access logger envoy.access_loggers.stats of an Envoy that has its scopes, which bound how much it counts: 1.39 and newer.
	CapStatsLog
	// CapSelfDiscovery is no extension: the proxy's bootstrap has the cluster LocalCluster, by which Envoy knows how its own workload is spread over zones.
	CapSelfDiscovery
)

// The secrets of a proxy with CapIdentity, and the cluster of its bootstrap that serves them (as Istio's agent names
// them).
const (
	SDSCluster = "sds-grpc"
	SDSDefault = "default"
	SDSRoot    = "ROOTCA"
)

var extensions = map[string]Caps{
	"istio.alpn":                            CapALPN,
	"istio.stats":                           CapIstioStats,
	"envoy.filters.http.peer_metadata":      CapMetadataExchange,
	"envoy.filters.listener.http_inspector": CapHTTPInspector,
	"envoy.filters.listener.tls_inspector":  CapTLSInspector,
	"envoy.filters.listener.original_dst":   CapOriginalDst,
	"envoy.filters.http.cors":               CapCORS,
	"envoy.filters.http.fault":              CapFault,
	"envoy.filters.http.grpc_stats":         CapGRPCStats,
	"envoy.filters.http.rbac":               CapRBACHTTP,
	"envoy.filters.network.rbac":            CapRBACNetwork,
	"envoy.filters.http.set_filter_state":   CapSetFilterState,
	"envoy.access_loggers.file":             CapFileAccessLog,
	"envoy.filters.http.on_demand":          CapOnDemand,
	"envoy.filters.http.grpc_web":           CapGRPCWeb,
	"envoy.filters.listener.original_src":   CapOriginalSrc,
	"envoy.filters.http.jwt_authn":          CapJWT,
	"envoy.filters.http.ext_authz":          CapExtAuthzHTTP,
	"envoy.filters.network.ext_authz":       CapExtAuthzNetwork,
	"envoy.filters.http.lua":                CapLua,
	"envoy.filters.http.wasm":               CapWasmHTTP,
	"envoy.filters.network.wasm":            CapWasmNetwork,

	"envoy.http.stateful_header_formatters.preserve_case": CapHeaderCase,

	"envoy.access_loggers.stats":                 CapStatsLog,
	"envoy.access_loggers.http_grpc":             CapHTTPGRPCLog,
	"envoy.access_loggers.tcp_grpc":              CapTCPGRPCLog,
	"envoy.access_loggers.open_telemetry":        CapOpenTelemetryLog,
	"envoy.access_loggers.extension_filters.cel": CapCELFilter,
	"envoy.tracers.zipkin":                       CapZipkin,
	"envoy.tracers.datadog":                      CapDatadog,
	"envoy.tracers.skywalking":                   CapSkyWalking,
	"envoy.tracers.opentelemetry":                CapOpenTelemetry,
	"envoy.filters.network.mongo_proxy":          CapMongo,
	"envoy.clusters.dynamic_forward_proxy":       CapDynamicForward,
}

// StockCaps is assumed of a proxy that lists no extensions at all (an offline node file, a test client): what a stock
// Envoy has, and nothing of Istio's own.
const StockCaps = CapHTTPInspector | CapTLSInspector | CapOriginalDst | CapCORS | CapFault | CapGRPCStats |
	CapRBACHTTP | CapRBACNetwork | CapSetFilterState | CapFileAccessLog | CapOnDemand |
	CapGRPCWeb | CapOriginalSrc | CapJWT | CapExtAuthzHTTP | CapExtAuthzNetwork |
	CapHTTPGRPCLog | CapTCPGRPCLog | CapOpenTelemetryLog | CapCELFilter |
	CapZipkin | CapDatadog | CapSkyWalking | CapOpenTelemetry |
	CapMongo | CapDynamicForward | CapLua | CapWasmHTTP | CapWasmNetwork | CapHeaderCase

// AgentCaps are those of a proxy in a Pod whose Envoy and agent are of this version's image (of Envoy since 1.39), with a certificate of the mesh.
const AgentCaps = StockCaps | CapStatsLog | CapIdentity | CapFileSecrets | CapFileLists

// CapOf is the bit of one extension by its registered name; 0 where Navarch never sends it.
func CapOf(extension string) Caps { return extensions[extension] }

// Extensions are the names of the extensions in c, sorted. CapIdentity and CapWasmFetch are none.
func Extensions(c Caps) []string {
	var names []string
	for name, bit := range extensions {
		if c.Has(bit) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Has says whether all of the wanted bits are there.
func (c Caps) Has(want Caps) bool { return c&want == want }
