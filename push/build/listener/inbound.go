package listener

import (
	"fmt"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

const (
	inboundCatchAllChain     = xds.VirtualInbound
	inboundCatchAllHTTPChain = "virtualInbound-catchall-http"

	// acceptsPerEvent keeps one worker from taking all the connections of a burst (Istio's default).
	acceptsPerEvent = 1
)

// inboundTraffic is the traffic of one port, and how its chains are called.
type inboundTraffic struct {
	InboundPort
	httpChain, tcpChain string
	statPrefix          string
	// match is the destination port; 0: any.
	match   uint32
	closed  bool
	demands *demands
	left    *[]error // the patches that its routes are drawn without
}

func isHTTP(p model.Protocol) bool {
	return p == model.Protocol_PROTOCOL_HTTP || p == model.Protocol_PROTOCOL_HTTP2 || isGRPC(p)
}

func isGRPC(p model.Protocol) bool {
	return p == model.Protocol_PROTOCOL_GRPC || p == model.Protocol_PROTOCOL_GRPC_WEB
}

// detected says whether HTTP is found out at a port.
func (c Common) detected(p model.Protocol) bool {
	return p == model.Protocol_PROTOCOL_AUTO && c.Caps.Has(xds.CapHTTPInspector)
}

// sniffed says whether the HTTP inspector has to look at a port: where all is mTLS of the mesh, its ALPN says what is within.
func (c Common) sniffed(p model.Protocol, m MTLS) bool { return c.detected(p) && m != Strict }

// inboundHTTP is the filters of an HTTP chain, extensions that are network filters first. A closed one answers 403 by its RBAC filter, and its
// route ends nowhere for proxies that have no such filter and against patches that take it away; its routes are not patched.
func (c Common) inboundHTTP(t inboundTraffic, mtls bool) []*listenerv3.Filter {
	if c.shut(true, t.Port) {
		return []*listenerv3.Filter{blackHole()}
	}
	t.closed = t.closed || t.demands.closedHTTP || c.shut(false, t.Port)
	cluster := t.Cluster
	if t.closed {
		cluster = xds.BlackHole
	}
	http2 := isGRPC(t.Protocol) || t.Protocol == model.Protocol_PROTOCOL_HTTP2
	routes := inboundRoutes(t.Cluster, fmt.Sprintf("inbound|http|%d", t.ServicePort), cluster, fmt.Sprintf("%s:%d/*", t.Host, t.ServicePort), http2)
	if !t.closed {
		patched, left := patch.RouteConfiguration(routes, patch.InboundRoutes(t.Cluster), c.Patches.All())
		routes, *t.left = patched, append(*t.left, left...)
	}
	return append(c.networkExtensions(t.Port), c.connectionManager(httpTraffic{
		statPrefix: t.statPrefix,
		port:       t.Port,
		routes:     routes,
		http2:      http2,
		grpcWeb:    t.Protocol == model.Protocol_PROTOCOL_GRPC_WEB,
		closed:     t.closed,
		mtls:       mtls,
		demands:    t.demands,
	}))
}

// inboundTCP is the filters of a TCP chain. A closed one ends nowhere whether or not there is an RBAC filter: that
// filter waits for the client's first bytes, and a server that speaks first would be heard.
func (c Common) inboundTCP(t inboundTraffic) []*listenerv3.Filter {
	t.closed = t.closed || t.demands.closedTCP || c.shut(true, t.Port)
	if !t.closed {
		providers, rules := t.demands.tcp[:t.demands.providersTCP], t.demands.tcp[t.demands.providersTCP:]
		return slices.Concat(providers, c.networkExtensions(t.Port, beforeAuthentication, beforeAuthorization), rules,
			c.networkExtensions(t.Port, beforeStatistics, beforeRouter), c.tcpFilters(proxyOf(t.Cluster), t.Protocol, inbound))
	}
	filters := c.proxyTo(xds.BlackHole, inbound)
	if c.Caps.Has(xds.CapRBACNetwork) {
		filters = slices.Insert(filters, 0, packed(networkRBAC, denyTCPConfig))
	}
	return filters
}

// Build draws the listener that connections to the workload are redirected to: a chain (or two) for each port, and
// chains for all other ports. Envoy closes what arrives at a port that has chains of which none matches; the chains for
// all ports do not take it (measured). An error: Envoy would refuse it; patches that it would refuse it for are left out.
func (v VirtualInbound) Build() (*xds.Resource, error) {
	r, _, err := v.draw()
	return r, err
}

func (v VirtualInbound) draw() (*xds.Resource, []error, error) {
	addr, err := address(v.Families.Wildcard(), v.Port)
	if err != nil {
		return nil, nil, fmt.Errorf("listener %s: %w", xds.VirtualInbound, err)
	}
	l := inboundListener(xds.VirtualInbound, addr, v.Common)
	var left []error
	policies := v.demanded(v.Policies, v.Authentications, v.Authorizers)
	l.AdditionalAddresses = v.also(v.Families.Wildcard(), v.Port)
	l.FilterChains = []*listenerv3.FilterChain{{
		// Who dials the port itself would be passed on to it, again and again.
		Name:             xds.InboundBlackHoleChain,
		FilterChainMatch: &listenerv3.FilterChainMatch{DestinationPort: wrapperspb.UInt32(v.Port)},
		Filters:          []*listenerv3.Filter{blackHole()},
	}}
	sniff, tls := inspected{off: []uint32{v.Port}}, inspected{off: []uint32{v.Port}}
	l.FilterChains = append(l.FilterChains, v.inboundChains(inboundTraffic{
		InboundPort: InboundPort{Protocol: model.Protocol_PROTOCOL_AUTO, Cluster: xds.InboundPassthrough, MTLS: v.Rest},
		httpChain:   inboundCatchAllHTTPChain, tcpChain: inboundCatchAllChain,
		statPrefix: xds.InboundPassthrough, closed: v.Closed, demands: policies, left: &left,
	})...)
	sniff.rest = v.sniffed(model.Protocol_PROTOCOL_AUTO, v.Rest)
	tls.rest = v.Rest.mesh()
	seen := map[uint32]bool{0: true, v.Port: true}
	for _, p := range v.Ports.All() {
		if seen[p.Port] {
			continue
		}
		name := xds.ListenerName(v.Families.Wildcard(), p.Port)
		chains := v.inboundChains(inboundTraffic{
			InboundPort: p, httpChain: name, tcpChain: name, statPrefix: "inbound_" + name, match: p.Port, closed: v.Closed, demands: policies, left: &left,
		})
		if chains == nil {
			continue
		}
		seen[p.Port] = true
		l.FilterChains = append(l.FilterChains, chains...)
		sniff.add(p.Port, v.sniffed(p.Protocol, p.MTLS))
		tls.add(p.Port, v.inspectsTLS(p))
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
	l.ListenerFilters = append(l.ListenerFilters, tls.by(tlsInspector())...)
	l.ListenerFilters = append(l.ListenerFilters, sniff.by(httpInspector())...)
	r, problems, err := v.finish(l, inbound)
	return r, append(left, problems...), err
}

// Build draws the listener of one ingress of a Sidecar that is not redirected to but binds its own address.
// An error: Envoy would refuse it; patches that it would refuse it for are left out.
func (i Ingress) Build() (*xds.Resource, error) {
	r, _, err := i.draw()
	return r, err
}

func (i Ingress) draw() (*xds.Resource, []error, error) {
	addr, err := address(i.Bind, i.Inner.Port)
	if err != nil {
		return nil, nil, fmt.Errorf("listener %s: %w", i.Name, err)
	}
	l := inboundListener(i.Name, addr, i.Common)
	l.AdditionalAddresses = i.also(i.Bind, i.Inner.Port)
	for _, ip := range i.Also.All() {
		other, err := address(ip, i.Inner.Port)
		if err != nil {
			return nil, nil, fmt.Errorf("listener %s: %w", i.Name, err)
		}
		l.AdditionalAddresses = append(l.AdditionalAddresses, &listenerv3.AdditionalAddress{Address: other})
	}
	var left []error
	t := inboundTraffic{
		InboundPort: i.Inner, httpChain: i.Name, tcpChain: i.Name, statPrefix: "inbound_" + i.Name, closed: i.Closed,
		demands: i.demanded(i.Policies, i.Authentications, i.Authorizers), left: &left,
	}
	if addr.GetSocketAddress() != nil { // connections to a Unix socket have no port
		t.match = i.Inner.Port
	}
	l.FilterChains = i.inboundChains(t)
	if i.inspectsTLS(i.Inner) {
		l.ListenerFilters = append(l.ListenerFilters, tlsInspector())
	}
	if i.sniffed(i.Inner.Protocol, i.Inner.MTLS) {
		l.ListenerFilters = append(l.ListenerFilters, httpInspector())
	}
	r, problems, err := i.finish(l, inbound)
	return r, append(left, problems...), err
}

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
