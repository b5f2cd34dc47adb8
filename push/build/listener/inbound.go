package listener

import (
	"fmt"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Istio's names of the TCP and HTTP filter chains for ports that no service has, and a limit for inbound listeners.
const (
	inboundCatchAllChain     = xds.VirtualInbound
	inboundCatchAllHTTPChain = "virtualInbound-catchall-http"

	// acceptsPerEvent is the number of connections that a worker accepts at once. With 1, Istio's default, the workers
	// share a burst of connections.
	acceptsPerEvent = 1
)

// inboundTraffic is the traffic of one port, with the names of its filter chains.
type inboundTraffic struct {
	InboundPort
	httpChain, tcpChain string
	statPrefix          string
	// match is the destination port that the chains match; 0: any port.
	match         uint32
	closed        bool // all traffic is refused
	policyFilters *policyFilters
	omitted       *[]error // collects the errors of patches that are left out of the routes
}

// isGRPC reports whether a protocol is gRPC or gRPC-Web.
func isGRPC(p model.Protocol) bool {
	return p == model.Protocol_PROTOCOL_GRPC || p == model.Protocol_PROTOCOL_GRPC_WEB
}

// detectsHTTP reports whether the proxy detects HTTP on a port with the protocol p.
func (c Common) detectsHTTP(p model.Protocol) bool {
	return p == model.Protocol_PROTOCOL_AUTO && c.Caps.Has(xds.CapHTTPInspector)
}

// needsHTTPInspector reports whether a port needs the HTTP inspector. A port with Strict mTLS does not need the
// inspector, because the client's ALPN names the protocol.
func (c Common) needsHTTPInspector(p model.Protocol, m MTLS) bool {
	return c.detectsHTTP(p) && m != Strict
}

// inboundHTTP returns the network filters of an HTTP chain: extensions, then the connection manager. The parameter mtls
// states that clients may present a certificate. In a closed chain an RBAC filter answers 403. The proxy may lack this
// filter, or a patch may remove it. Therefore the route of a closed chain leads to the cluster xds.BlackHole, which has
// no endpoints. Patches do not apply to this route.
func (c Common) inboundHTTP(t inboundTraffic, mtls bool) []*listenerv3.Filter {
	if c.closedByExtension(true, t.Port) {
		return []*listenerv3.Filter{blackHole()}
	}
	t.closed = t.closed || t.policyFilters.closedHTTP || c.closedByExtension(false, t.Port)
	cluster := t.Cluster
	if t.closed {
		cluster = xds.BlackHole
	}
	http2 := isGRPC(t.Protocol) || t.Protocol == model.Protocol_PROTOCOL_HTTP2
	vhost, operation := fmt.Sprintf("inbound|http|%d", t.ServicePort), fmt.Sprintf("%s:%d/*", t.Host, t.ServicePort)
	routes := inboundRoutes(t.Cluster, vhost, cluster, operation, http2)
	if !t.closed {
		patched, omitted := c.trace.RouteConfiguration(routes, patch.InboundRoutes(t.Cluster), c.Patches.All())
		routes, *t.omitted = patched, append(*t.omitted, omitted...)
	}
	return append(c.networkExtensions(t.Port), c.connectionManager(httpTraffic{
		statPrefix:    t.statPrefix,
		port:          t.Port,
		routes:        routes,
		http2:         http2,
		grpcWeb:       t.Protocol == model.Protocol_PROTOCOL_GRPC_WEB,
		closed:        t.closed,
		mtls:          mtls,
		policyFilters: t.policyFilters,
	}))
}

// inboundTCP returns the network filters of a TCP chain.
func (c Common) inboundTCP(t inboundTraffic) []*listenerv3.Filter {
	return c.policedTCP(t.Port, t.closed, t.policyFilters, c.tcpFilters(tcpProxyTo(t.Cluster), t.Protocol, inbound), inbound)
}

// policedTCP returns the network filters of a TCP chain: the filters of policies and extensions, then the filters in
// the parameter rest. A closed chain has an RBAC filter that refuses all connections, if the proxy has this filter. A
// closed chain always leads to the cluster xds.BlackHole, which has no endpoints. The RBAC filter alone does not
// suffice, because it waits for the client's first bytes. Data of a server that sends first would reach the client.
func (c Common) policedTCP(port uint32, closed bool, d *policyFilters, rest []*listenerv3.Filter,
	context networkingv1.EnvoyFilter_PatchContext,
) []*listenerv3.Filter {
	if !closed && !d.closedTCP && !c.closedByExtension(true, port) {
		return slices.Concat(d.tcp[:d.providersTCP], c.networkExtensions(port, beforeAuthentication, beforeAuthorization), d.tcp[d.providersTCP:],
			c.networkExtensions(port, beforeStatistics, beforeRouter), rest)
	}
	filters := c.proxyTo(xds.BlackHole, context)
	if c.Caps.Has(xds.CapRBACNetwork) {
		filters = slices.Insert(filters, 0, packedFilter(networkRBAC, denyTCPConfig))
	}
	return filters
}

// Build encodes the listener that receives the redirected connections to the workload. It has chains for each element
// of Ports, and chains for all other ports. Envoy closes a connection to a port of Ports if no chain of this port
// matches. In this case Envoy does not use the chains for all other ports. Elements with UDP, port 0 or the listener's
// own Port are skipped. If several of the remaining elements have the same number, the first is used. Patches that
// Envoy would refuse are left out.
//
// Build fails if Port is invalid, if the listener violates a constraint of Envoy's API, or if a text is not valid
// UTF-8. The error names the listener.
func (v VirtualInbound) Build() (*xds.Resource, error) {
	r, _, err := v.build()
	return r, err
}

// build returns the results of Build and Problems.
func (v VirtualInbound) build() (*xds.Resource, []error, error) {
	addr, err := address(v.Families.Wildcard(), v.Port)
	if err != nil {
		return nil, nil, fmt.Errorf("listener %s: %w", xds.VirtualInbound, err)
	}
	l := inboundListener(xds.VirtualInbound, addr, v.Common)
	var omitted []error
	policies := v.buildPolicyFilters(v.Policies, v.Authentications, v.Authorizers, false)
	l.AdditionalAddresses = v.additionalAddresses(v.Families.Wildcard(), v.Port)
	l.FilterChains = []*listenerv3.FilterChain{{
		// Without this chain, a connection to the listener's own port would be forwarded to the listener itself,
		// without end.
		Name:             xds.InboundBlackHoleChain,
		FilterChainMatch: &listenerv3.FilterChainMatch{DestinationPort: wrapperspb.UInt32(v.Port)},
		Filters:          []*listenerv3.Filter{blackHole()},
	}}
	sniff, tls := inspectedPorts{off: []uint32{v.Port}}, inspectedPorts{off: []uint32{v.Port}}
	l.FilterChains = append(l.FilterChains, v.inboundChains(inboundTraffic{
		InboundPort: InboundPort{Protocol: model.Protocol_PROTOCOL_AUTO, Cluster: xds.InboundPassthrough, MTLS: v.Rest},
		httpChain:   inboundCatchAllHTTPChain, tcpChain: inboundCatchAllChain,
		statPrefix: xds.InboundPassthrough, closed: v.Closed, policyFilters: policies, omitted: &omitted,
	})...)
	sniff.rest = v.needsHTTPInspector(model.Protocol_PROTOCOL_AUTO, v.Rest)
	tls.rest = v.Rest.terminatesMeshTLS()
	seen := map[uint32]bool{0: true, v.Port: true}
	for _, p := range v.Ports.All() {
		if seen[p.Port] {
			continue
		}
		name := xds.ListenerName(v.Families.Wildcard(), p.Port)
		chains := v.inboundChains(inboundTraffic{
			InboundPort: p, httpChain: name, tcpChain: name, statPrefix: "inbound_" + name, match: p.Port,
			closed: v.Closed, policyFilters: policies, omitted: &omitted,
		})
		if v.pieces.next(); chains == nil {
			continue
		}
		seen[p.Port] = true
		l.FilterChains = append(l.FilterChains, chains...)
		sniff.add(p.Port, v.needsHTTPInspector(p.Protocol, p.MTLS))
		tls.add(p.Port, v.needsTLSInspector(p))
	}
	if v.Caps.Has(xds.CapOriginalDst) {
		l.ListenerFilters = append(l.ListenerFilters, listenerFilter("envoy.filters.listener.original_dst", originalDstConfig))
	}
	if v.Transparent {
		l.Transparent = wrapperspb.Bool(true)
		if v.Caps.Has(xds.CapOriginalSrc) {
			l.ListenerFilters = append(l.ListenerFilters, listenerFilter("envoy.filters.listener.original_src", originalSrcConfig))
		}
	}
	l.ListenerFilters = append(l.ListenerFilters, tls.restrict(tlsInspector())...)
	l.ListenerFilters = append(l.ListenerFilters, sniff.restrict(httpInspector())...)
	r, problems, err := v.patchAndEncode(l, inbound)
	return r, append(omitted, problems...), err
}

// Build encodes the listener of one ingress of a Sidecar with captureMode NONE. The listener binds its own address and
// receives no redirected connections. Patches that Envoy would refuse are left out. Build fails if an address (Bind or
// Also) or the port is invalid, if the listener violates a constraint of Envoy's API, or if a text is not valid UTF-8.
// The error names the listener.
func (i Ingress) Build() (*xds.Resource, error) {
	r, _, err := i.build()
	return r, err
}

// build returns the results of Build and Problems.
func (i Ingress) build() (*xds.Resource, []error, error) {
	addr, err := address(i.Bind, i.Inner.Port)
	if err != nil {
		return nil, nil, fmt.Errorf("listener %s: %w", i.Name, err)
	}
	l := inboundListener(i.Name, addr, i.Common)
	l.AdditionalAddresses = i.additionalAddresses(i.Bind, i.Inner.Port)
	for _, ip := range i.Also.All() {
		other, err := address(ip, i.Inner.Port)
		if err != nil {
			return nil, nil, fmt.Errorf("listener %s: %w", i.Name, err)
		}
		l.AdditionalAddresses = append(l.AdditionalAddresses, &listenerv3.AdditionalAddress{Address: other})
	}
	var omitted []error
	t := inboundTraffic{
		InboundPort: i.Inner, httpChain: i.Name, tcpChain: i.Name, statPrefix: "inbound_" + i.Name, closed: i.Closed,
		policyFilters: i.buildPolicyFilters(i.Policies, i.Authentications, i.Authorizers, false), omitted: &omitted,
	}
	if addr.GetSocketAddress() != nil { // connections to a Unix socket have no port
		t.match = i.Inner.Port
	}
	l.FilterChains = i.inboundChains(t)
	if i.needsTLSInspector(i.Inner) {
		l.ListenerFilters = append(l.ListenerFilters, tlsInspector())
	}
	if i.needsHTTPInspector(i.Inner.Protocol, i.Inner.MTLS) {
		l.ListenerFilters = append(l.ListenerFilters, httpInspector())
	}
	r, problems, err := i.patchAndEncode(l, inbound)
	return r, append(omitted, problems...), err
}

// inboundListener returns an inbound listener without chains and listener filters.
func inboundListener(name string, addr *corev3.Address, c Common) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name:                                 name,
		Address:                              addr,
		TrafficDirection:                     corev3.TrafficDirection_INBOUND,
		AccessLog:                            c.unmatchedLog(),
		ContinueOnListenerFiltersTimeout:     true,
		ListenerFiltersTimeout:               c.detectionTimeout(),
		MaxConnectionsToAcceptPerSocketEvent: wrapperspb.UInt32(acceptsPerEvent),
	}
}
