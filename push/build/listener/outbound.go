package listener

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/push/xds"
)

// plaintextHTTP is what the HTTP inspector says of HTTP/1.1 and of HTTP/2 without TLS. HTTP/1.0 is left to TCP: the
// connection manager refuses it.
var plaintextHTTP = []string{"http/1.1", "h2c"}

const rawBuffer = "raw_buffer"

// connectTimeout is how long clients may take to agree on TLS, where a patch has a chain end it (Istio's).
var connectTimeout = durationpb.New(15 * time.Second)

// Build draws an outbound listener. The error names the listener and what of its address is wrong.
func (o Outbound) Build() (*xds.Resource, error) {
	r, _, err := o.draw()
	return r, err
}

func (o Outbound) draw() (*xds.Resource, []error, error) {
	addr, err := address(o.Bind, o.Port)
	if err != nil {
		return nil, nil, fmt.Errorf("listener %s: %w", o.Name, err)
	}
	l := &listenerv3.Listener{
		Name:                             o.Name,
		Address:                          addr,
		AdditionalAddresses:              o.also(o.Bind, o.Port),
		TrafficDirection:                 corev3.TrafficDirection_OUTBOUND,
		ContinueOnListenerFiltersTimeout: true,
	}
	if !o.BindToPort && !strings.HasPrefix(o.Bind, unixPrefix) { // nothing is redirected to a Unix socket
		l.BindToPort = wrapperspb.Bool(false)
	}
	chains, rest, sniffed := o.chains()
	if len(chains) == 0 && rest != nil {
		chains, rest = []*listenerv3.FilterChain{rest}, nil
	}
	// What matches everything is the default chain: Envoy does not go back from a chain that matched in part.
	l.FilterChains, l.DefaultFilterChain = chains, rest
	o.inspect(l, sniffed)
	return o.finish(l, outbound)
}

// chains is the chains that match something, the one for the rest (nil: it is closed), and whether the HTTP inspector
// has to tell them apart.
func (o Outbound) chains() (chains []*listenerv3.FilterChain, rest *listenerv3.FilterChain, sniffed bool) {
	chains, rest = o.tcpChains()
	if o.Route != "" {
		http := &listenerv3.FilterChain{TransportSocketConnectTimeout: connectTimeout, Filters: o.outboundHTTP(httpTraffic{
			statPrefix: "outbound_" + o.Name, port: o.Port, rds: o.Route, grpcWeb: o.GRPCWeb, dynamic: o.Dynamic.All(), unknown: o.Unknown})}
		others := len(chains) > 0 || rest != nil || o.Fallback != ""
		switch {
		case (o.Sniff || others) && o.Caps.Has(xds.CapHTTPInspector):
			http.FilterChainMatch = &listenerv3.FilterChainMatch{TransportProtocol: rawBuffer, ApplicationProtocols: plaintextHTTP}
			chains, sniffed = append(chains, http), true
		case o.Sniff && others:
			// Nothing tells HTTP from the rest: TCP carries both.
		default:
			rest = http
		}
	}
	if rest == nil && o.Fallback != "" {
		rest = &listenerv3.FilterChain{Name: xds.PassthroughChain, Filters: o.proxyTo(o.Fallback, outbound)}
	}
	return chains, rest, sniffed
}

// inspect adds the listener filters. The TLS inspector comes with the HTTP inspector, which looks at plain text only,
// and Envoy would otherwise add one of its own (https://github.com/envoyproxy/envoy/issues/13601).
func (o Outbound) inspect(l *listenerv3.Listener, sniffed bool) {
	names := false
	for _, c := range l.FilterChains {
		names = names || len(c.GetFilterChainMatch().GetServerNames()) > 0
	}
	l.ListenerFiltersTimeout = durationpb.New(0)
	if (names || sniffed) && o.Caps.Has(xds.CapTLSInspector) {
		l.ListenerFilters = append(l.ListenerFilters, tlsInspector())
	}
	if sniffed {
		l.ListenerFilters = append(l.ListenerFilters, httpInspector())
		l.ListenerFiltersTimeout = o.detectionTimeout()
	}
}

// Build draws the listener that redirected connections arrive at; it hands them to the listener of their original
// destination, and keeps those that have none. An error: Envoy would refuse it; patches that it would refuse it for are left out.
func (v VirtualOutbound) Build() (*xds.Resource, error) {
	r, _, err := v.draw()
	return r, err
}

func (v VirtualOutbound) draw() (*xds.Resource, []error, error) {
	addr, err := address(v.Families.Wildcard(), v.Port)
	if err != nil {
		return nil, nil, fmt.Errorf("listener %s: %w", xds.VirtualOutbound, err)
	}
	unknown := xds.BlackHole
	if v.Passthrough {
		unknown = cmp.Or(v.EgressProxy, xds.Passthrough)
	}
	l := &listenerv3.Listener{
		Name:                xds.VirtualOutbound,
		Address:             addr,
		AdditionalAddresses: v.also(v.Families.Wildcard(), v.Port), // redirection takes connections of both families
		TrafficDirection:    corev3.TrafficDirection_OUTBOUND,
		AccessLog:           v.unmatchedLog(),
		FilterChains: []*listenerv3.FilterChain{
			{
				// Who dials the port itself would be passed on to it, again and again.
				Name:             xds.OutboundBlackHoleChain,
				FilterChainMatch: &listenerv3.FilterChainMatch{DestinationPort: wrapperspb.UInt32(v.Port)},
				Filters:          []*listenerv3.Filter{blackHole()},
			},
			{Name: xds.OutboundCatchAllChain, Filters: v.proxyTo(unknown, outbound)},
		},
	}
	if v.ByName {
		v.byName(l)
	}
	if v.Caps.Has(xds.CapOriginalDst) { // Envoy adds the listener filter itself
		l.UseOriginalDst = wrapperspb.Bool(true)
	}
	if v.Transparent {
		l.Transparent = wrapperspb.Bool(true)
	}
	return v.finish(l, outbound)
}

// speaks is how long the listener waits for the first bytes of a connection where it tells HTTP from the rest, and the mesh says no other time
// (protocolDetectionTimeout): all redirected connections come by it, those too in which the server is the first to speak.
var speaks = durationpb.New(100 * time.Millisecond)

// byName has plain HTTP to where no listener is go by its host. The rest matches nothing, so it is the default chain's.
func (v VirtualOutbound) byName(l *listenerv3.Listener) {
	rest := l.FilterChains[len(l.FilterChains)-1]
	l.DefaultFilterChain = rest
	l.FilterChains[len(l.FilterChains)-1] = &listenerv3.FilterChain{
		Name:             xds.OutboundCatchAllHTTP,
		FilterChainMatch: &listenerv3.FilterChainMatch{TransportProtocol: rawBuffer, ApplicationProtocols: plaintextHTTP},
		Filters:          v.outboundHTTP(httpTraffic{statPrefix: xds.OutboundCatchAllHTTP, rds: xds.AllowAny, unknown: v.Unknown}),
	}
	if v.Caps.Has(xds.CapOriginalDst) { // first: Envoy's own comes last, and not at all where the others wait in vain, as for servers that speak first
		l.ListenerFilters = append(l.ListenerFilters, listenerFilter("envoy.filters.listener.original_dst", originalDstConfig))
	}
	l.ListenerFilters = append(l.ListenerFilters, tlsInspector(), httpInspector())
	l.ContinueOnListenerFiltersTimeout = true
	if l.ListenerFiltersTimeout = v.detectionTimeout(); l.ListenerFiltersTimeout.AsDuration() == 0 {
		l.ListenerFiltersTimeout = speaks
	}
}
