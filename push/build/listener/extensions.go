package listener

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	extensionsv1 "istio.io/api/extensions/v1alpha1"

	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// These are the phases of WasmPlugins and TrafficExtensions, in the order of their filters. The filters of a phase
// come before Istio's own filters for the phase's task, such as authentication (istio:
// pilot/pkg/networking/core/listener_builder.go).
const (
	beforeAuthentication = extensionsv1.TrafficExtension_AUTHN
	beforeAuthorization  = extensionsv1.TrafficExtension_AUTHZ
	beforeStatistics     = extensionsv1.TrafficExtension_STATS
	beforeRouter         = extensionsv1.TrafficExtension_UNSPECIFIED
)

// These are the type URLs that Envoy accepts over ECDS for an extension. RBAC is among them because Istio's agent puts
// an RBAC filter in the place of a Wasm module that it cannot fetch.
var (
	wasmHTTPTypes = []string{
		"type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
		"type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC",
	}
	wasmNetworkTypes = []string{
		"type.googleapis.com/envoy.extensions.filters.network.wasm.v3.Wasm",
		"type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC",
	}
	luaTypes = []string{"type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"}
)

// extensions returns the filters of the given phases on a port, in the order of the phases. If onConnections is true,
// these are network filters, else HTTP filters. Filters of closed extensions (closedByExtension) are left out.
func (c Common) extensions(onConnections bool, port uint32, phases ...extension.Phase) (found []extension.Filter) {
	if c.Extensions.Len() == 0 {
		return nil
	}
	for _, phase := range phases {
		for _, f := range c.Extensions.All() {
			if f.OnConnections == onConnections && f.Phase == phase && !f.Closed && f.On(port) {
				found = append(found, f)
			}
		}
	}
	return found
}

// closedByExtension reports whether a closed extension refuses the traffic of a port. A closed extension is one that
// the proxy cannot run, and without which traffic must not pass. If onConnections is true, only network filters count,
// else only HTTP filters.
func (c Common) closedByExtension(onConnections bool, port uint32) bool {
	for _, f := range c.Extensions.All() {
		if f.Closed && f.OnConnections == onConnections && f.On(port) {
			return true
		}
	}
	return false
}

// httpExtensions returns the HTTP filters of the given phases on a port, in the order of the phases.
func (c Common) httpExtensions(port uint32, phases ...extension.Phase) (filters []*hcmv3.HttpFilter) {
	for _, f := range c.extensions(false, port, phases...) {
		types := wasmHTTPTypes
		if f.Lua {
			types = luaTypes
		}
		filters = append(filters, &hcmv3.HttpFilter{
			Name: f.Name(), ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: extensionSource(types)}})
	}
	return filters
}

// networkExtensions returns the network filters of the given phases on a port. If no phase is given, it returns the
// network filters of all phases.
func (c Common) networkExtensions(port uint32, phases ...extension.Phase) (filters []*listenerv3.Filter) {
	if len(phases) == 0 {
		phases = []extension.Phase{beforeAuthentication, beforeAuthorization, beforeStatistics, beforeRouter}
	}
	for _, f := range c.extensions(true, port, phases...) {
		filters = append(filters, &listenerv3.Filter{
			Name: f.Name(), ConfigType: &listenerv3.Filter_ConfigDiscovery{ConfigDiscovery: extensionSource(wasmNetworkTypes)}})
	}
	return filters
}

// extensionSource returns the source of a filter's configuration: ECDS over ADS, with the accepted types. As with
// routes (adsSource), Envoy waits for the configuration without limit. This is safe, because the server answers
// requests for every name.
func extensionSource(types []string) *corev3.ExtensionConfigSource {
	return &corev3.ExtensionConfigSource{ConfigSource: adsSource(), TypeUrls: types}
}

// outboundHTTP returns the network filters of an outbound HTTP chain. If an extension closes the port, the connection
// manager answers 403. A proxy without the RBAC filter closes the connections instead.
func (c Common) outboundHTTP(h httpTraffic) []*listenerv3.Filter {
	if h.closed = c.closedByExtension(false, h.port); h.closed && !c.Caps.Has(xds.CapRBACHTTP) {
		return []*listenerv3.Filter{blackHole()}
	}
	return []*listenerv3.Filter{c.connectionManager(h)}
}

// outboundTCP returns the network filters of an outbound TCP chain whose last filter has the configuration p. If an
// extension closes the port, the connections are closed.
func (o Outbound) outboundTCP(p *tcpv3.TcpProxy, protocol model.Protocol) []*listenerv3.Filter {
	if o.closedByExtension(true, o.Port) {
		return []*listenerv3.Filter{blackHole()}
	}
	return append(o.networkExtensions(o.Port), o.tcpFilters(p, protocol, outbound)...)
}
