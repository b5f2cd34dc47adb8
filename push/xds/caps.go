package xds

import "slices"

// Caps are the capabilities of a proxy, a set of bits. There is a bit for each extension that Navarch may send, and
// bits for properties of the proxy's agent and bootstrap. Navarch sends an extension only to proxies with the bit of
// the extension. Otherwise Envoy would refuse the whole listener ("Didn't find a registered implementation").
type Caps uint64

// The capabilities. A capability without a comment stands for the extension of Envoy with a name like its own
// (extensions).
const (
	CapMetadataExchange Caps = 1 << iota // Istio's envoy.filters.http.peer_metadata
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
	CapDynamicForward // the cluster and the filters dynamic_forward_proxy
	// The following are access loggers, the CEL filter of access logs, and tracers.
	CapHTTPGRPCLog
	CapTCPGRPCLog
	CapOpenTelemetryLog
	CapCELFilter
	CapZipkin
	CapDatadog
	CapSkyWalking
	CapOpenTelemetry
	// CapIdentity is not an extension. The proxy has a mesh certificate, which it gets by SDS from the static cluster
	// SDSCluster of its bootstrap. Resources that name SDSCluster must not be sent to a proxy without CapIdentity.
	CapIdentity
	CapJWT             // envoy.filters.http.jwt_authn
	CapExtAuthzHTTP    // envoy.filters.http.ext_authz
	CapExtAuthzNetwork // envoy.filters.network.ext_authz
	// CapFileSecrets is not an extension. The agent behind SDSCluster serves secrets from the files in their names
	// (file-cert:CERTIFICATE~KEY, file-root:CERTIFICATES), as Istio's agent does.
	CapFileSecrets
	// CapFileLists is not an extension. The name of a secret with CAs may also contain a file with their revocation
	// lists (FileAuthorities). Only Navarch's agents support that.
	CapFileLists
	CapLua
	CapWasmHTTP
	CapWasmNetwork
	// CapWasmFetch is not an extension. The proxy's agent fetches WebAssembly modules and images with a module, as
	// Istio's agent does.
	CapWasmFetch
	CapHeaderCase // the formatter that preserves the case of HTTP/1 header names
	// CapStatsLog is the access logger envoy.access_loggers.stats of Envoy 1.39 and newer, which has scopes that limit
	// the number of its statistics.
	CapStatsLog
	// CapSelfDiscovery is not an extension. The proxy's bootstrap has the cluster LocalCluster, from which Envoy
	// computes the distribution of its own workload over zones.
	CapSelfDiscovery
	// CapFileOwners is not an extension. The agent bounds the file secrets of each namespace (OwnedFile).
	CapFileOwners
)

// Istio's names in the bootstrap of proxies with CapIdentity.
const (
	SDSCluster = "sds-grpc" // cluster of the bootstrap that serves secrets: the proxy's agent
	SDSDefault = "default"  // secret with the mesh certificate
	SDSRoot    = "ROOTCA"   // secret with the mesh roots
)

// extensions maps the registered name of an extension to its capability.
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
	GRPCWebFilter:                           CapGRPCWeb,
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

// StockCaps are the capabilities of a stock Envoy, without Istio's own extensions. A proxy whose node lists no
// extensions at all counts as having StockCaps, for example an offline node file or a test client.
const StockCaps = CapHTTPInspector | CapTLSInspector | CapOriginalDst | CapCORS | CapFault | CapGRPCStats |
	CapRBACHTTP | CapRBACNetwork | CapSetFilterState | CapFileAccessLog | CapOnDemand |
	CapGRPCWeb | CapOriginalSrc | CapJWT | CapExtAuthzHTTP | CapExtAuthzNetwork |
	CapHTTPGRPCLog | CapTCPGRPCLog | CapOpenTelemetryLog | CapCELFilter |
	CapZipkin | CapDatadog | CapSkyWalking | CapOpenTelemetry |
	CapMongo | CapDynamicForward | CapLua | CapWasmHTTP | CapWasmNetwork | CapHeaderCase

// AgentCaps are the capabilities of a proxy whose Envoy (1.39 or newer) and agent come from this version's image.
const AgentCaps = StockCaps | CapStatsLog | CapIdentity | CapFileSecrets | CapFileLists | CapFileOwners

// CapOf returns the capability for the registered name of an extension, or 0 if Navarch never sends the extension.
func CapOf(extension string) Caps { return extensions[extension] }

// Extensions returns the registered names of the extensions in c, sorted; nil: c has no extension. It leaves out
// capabilities that are not extensions, such as CapIdentity.
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

// Has reports whether c has all of the bits of want. Without bits in want it returns true.
func (c Caps) Has(want Caps) bool { return c&want == want }
