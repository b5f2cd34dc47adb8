package xds

import "slices"

// Caps is a set of capabilities of a proxy, one bit for each. A bit stands for an extension of Envoy, or for a property
// of the proxy's agent or bootstrap. If an extension has a bit, Navarch sends the extension only to proxies with this
// bit. An Envoy without the extension would refuse the whole listener ("Didn't find a registered implementation").
type Caps uint64

// The capabilities. The variable extensions has the names of the extensions for which capabilities stand.
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
	CapDynamicForward // the cluster type and the filters that are named dynamic_forward_proxy
	// The next eight are access loggers, the CEL filter of access logs, and tracers.
	CapHTTPGRPCLog
	CapTCPGRPCLog
	CapOpenTelemetryLog
	CapCELFilter
	CapZipkin
	CapDatadog
	CapSkyWalking
	CapOpenTelemetry
	// CapIdentity is not an extension. A proxy with CapIdentity has a mesh certificate. It receives the certificate by
	// SDS from SDSCluster, a static cluster of its bootstrap. Resources that name SDSCluster must not be sent to other
	// proxies.
	CapIdentity
	CapJWT             // envoy.filters.http.jwt_authn
	CapExtAuthzHTTP    // envoy.filters.http.ext_authz
	CapExtAuthzNetwork // envoy.filters.network.ext_authz
	// CapFileSecrets is not an extension. The agent behind SDSCluster serves secrets from files, as Istio's agent does.
	// The name of such a secret contains the files' paths: file-cert:CERTIFICATE~KEY or file-root:CERTIFICATES.
	CapFileSecrets
	// CapFileLists is not an extension. The name of a file secret with CAs may also contain the path of a file with
	// revocation lists (FileAuthorities). Only Navarch's agents support such names.
	CapFileLists
	CapLua
	CapWasmHTTP
	CapWasmNetwork
	// CapWasmFetch is not an extension. The proxy's agent downloads WebAssembly modules, also from container images, as
	// Istio's agent does.
	CapWasmFetch
	CapHeaderCase // the formatter that preserves the case of HTTP/1 header names
	// CapStatsLog is the access logger envoy.access_loggers.stats of Envoy 1.39 and newer. In these versions the scopes
	// of the logger limit the number of statistics.
	CapStatsLog
	// CapSelfDiscovery is not an extension. The proxy's bootstrap has the cluster LocalCluster. From this cluster Envoy
	// computes the distribution of the proxy's workload over zones.
	CapSelfDiscovery
	// CapFileOwners is not an extension. The agent limits the number of file secrets that the objects of one namespace
	// request (OwnedFile).
	CapFileOwners
)

// Istio's names in the bootstrap of proxies with CapIdentity.
const (
	SDSCluster = "sds-grpc" // bootstrap cluster of the proxy's agent, which serves secrets
	SDSDefault = "default"  // secret with the mesh certificate
	SDSRoot    = "ROOTCA"   // secret with the mesh's root certificates
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
// extensions is assumed to have StockCaps. Examples are test clients, and node files of offline tools.
const StockCaps = CapHTTPInspector | CapTLSInspector | CapOriginalDst | CapCORS | CapFault | CapGRPCStats |
	CapRBACHTTP | CapRBACNetwork | CapSetFilterState | CapFileAccessLog | CapOnDemand |
	CapGRPCWeb | CapOriginalSrc | CapJWT | CapExtAuthzHTTP | CapExtAuthzNetwork |
	CapHTTPGRPCLog | CapTCPGRPCLog | CapOpenTelemetryLog | CapCELFilter |
	CapZipkin | CapDatadog | CapSkyWalking | CapOpenTelemetry |
	CapMongo | CapDynamicForward | CapLua | CapWasmHTTP | CapWasmNetwork | CapHeaderCase

// AgentCaps are the capabilities of a proxy from the proxy image of this Navarch version (Envoy 1.39 or newer, with
// Navarch's agent).
const AgentCaps = StockCaps | CapStatsLog | CapIdentity | CapFileSecrets | CapFileLists | CapFileOwners

// CapOf returns the capability for the registered name of an extension, or 0 if no capability stands for the extension.
func CapOf(extension string) Caps { return extensions[extension] }

// Extensions returns the registered names of the extensions in c, sorted. Capabilities that are not extensions, such as
// CapIdentity, are left out. The result is nil if c has no extension.
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

// Has reports whether c has all of the bits of want. If want is 0, Has returns true.
func (c Caps) Has(want Caps) bool { return c&want == want }
