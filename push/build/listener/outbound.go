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

// plaintextHTTP are the protocols that the HTTP inspector reports for HTTP/1.1 and for HTTP/2 without TLS. HTTP/1.0
// goes to TCP chains, because the connection manager refuses it.
var plaintextHTTP = []string{"http/1.1", "h2c"}

const rawBuffer = "raw_buffer"

// connectTimeout is the limit of TLS handshakes, for chains that terminate TLS by their Spec or by a patch (Istio's).
var connectTimeout = durationpb.New(15 * time.Second)

// Build encodes an outbound listener. Patches that Envoy would refuse are left out. The error names the listener, and
// the address or the constraint of Envoy's API that is wrong without patches.
func (o Outbound) Build() (*xds.Resource, error) {
	r, _, err := o.build()
	return r, err
}

func (o Outbound) build() (*xds.Resource, []error, error) {
	addr, err := address(o.Bind, o.Port)
	if err != nil {
		return nil, nil, fmt.Errorf("listener %s: %w", o.Name, err)
	}
	l := &listenerv3.Listener{
		Name:                             o.Name,
		Address:                          addr,
		AdditionalAddresses:              o.additionalAddresses(o.Bind, o.Port),
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
	// A chain that matches everything must be the default chain: Envoy does not backtrack from a partial match.
	l.FilterChains, l.DefaultFilterChain = chains, rest
	o.addInspectors(l, sniffed)
	return o.patchAndEncode(l, outbound)
}

// chains returns the chains with a match, the chain for all other connections, and whether the HTTP inspector is needed
// to tell them apart. If rest is nil, other connections are closed.
func (o Outbound) chains() (chains []*listenerv3.FilterChain, rest *listenerv3.FilterChain, sniffed bool) {
	chains, rest = o.tcpChains()
	if o.Route != "" {
		http := &listenerv3.FilterChain{TransportSocketConnectTimeout: connectTimeout, Filters: o.outboundHTTP(httpTraffic{
			statPrefix: "outbound_" + o.Name, port: o.Port, rds: o.Route, grpcWeb: o.GRPCWeb,
			dynamic: o.Dynamic.All(), unknown: o.Unknown,
		})}
		others := len(chains) > 0 || rest != nil || o.Fallback != ""
		switch {
		case (o.Sniff || others) && o.Caps.Has(xds.CapHTTPInspector):
			http.FilterChainMatch = &listenerv3.FilterChainMatch{TransportProtocol: rawBuffer, ApplicationProtocols: plaintextHTTP}
			chains, sniffed = append(chains, http), true
		case o.Sniff && others:
			// Without an HTTP inspector nothing detects HTTP, so the TCP chains receive HTTP too.
		default:
			rest = http
		}
	}
	if rest == nil && o.Fallback != "" {
		rest = &listenerv3.FilterChain{Name: xds.PassthroughChain, Filters: o.proxyTo(o.Fallback, outbound)}
	}
	return chains, rest, sniffed
}

// addInspectors adds the listener filters. The HTTP inspector reads plain text only, so it comes with a TLS inspector;
// Envoy would otherwise add one itself (https://github.com/envoyproxy/envoy/issues/13601).
func (o Outbound) addInspectors(l *listenerv3.Listener, sniffed bool) {
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

// Build encodes the listener that receives redirected outbound connections. It passes each connection to the listener
// of its original destination, and forwards or closes a connection that has no such listener. Patches that Envoy would
// refuse are left out. The error names the listener and the reason why Envoy would refuse it without patches.
func (v VirtualOutbound) Build() (*xds.Resource, error) {
	r, _, err := v.build()
	return r, err
}

func (v VirtualOutbound) build() (*xds.Resource, []error, error) {
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
		AdditionalAddresses: v.additionalAddresses(v.Families.Wildcard(), v.Port), // connections of both families arrive here
		TrafficDirection:    corev3.TrafficDirection_OUTBOUND,
		AccessLog:           v.unmatchedLog(),
		FilterChains: []*listenerv3.FilterChain{
			{
				// A connection to the listener's own port would otherwise be forwarded to the listener itself, without end.
				Name:             xds.OutboundBlackHoleChain,
				FilterChainMatch: &listenerv3.FilterChainMatch{DestinationPort: wrapperspb.UInt32(v.Port)},
				Filters:          []*listenerv3.Filter{blackHole()},
			},
			{Name: xds.OutboundCatchAllChain, Filters: v.proxyTo(unknown, outbound)},
		},
	}
	if v.ByName {
		v.addHTTPByHost(l)
	}
	if v.Caps.Has(xds.CapOriginalDst) { // Envoy adds the listener filter itself
		l.UseOriginalDst = wrapperspb.Bool(true)
	}
	if v.Transparent {
		l.Transparent = wrapperspb.Bool(true)
	}
	return v.patchAndEncode(l, outbound)
}

// defaultDetectionTimeout is the time that virtualOutbound waits for the first bytes of a connection to detect HTTP,
// unless the mesh sets protocolDetectionTimeout. It is short because every redirected connection waits, also one in
// which the server is the first to send.
var defaultDetectionTimeout = durationpb.New(100 * time.Millisecond)

// addHTTPByHost routes plain HTTP by its host if the destination has no listener. The former last chain becomes the
// default chain, for all other connections.
func (v VirtualOutbound) addHTTPByHost(l *listenerv3.Listener) {
	rest := l.FilterChains[len(l.FilterChains)-1]
	l.DefaultFilterChain = rest
	l.FilterChains[len(l.FilterChains)-1] = &listenerv3.FilterChain{
		Name:             xds.OutboundCatchAllHTTP,
		FilterChainMatch: &listenerv3.FilterChainMatch{TransportProtocol: rawBuffer, ApplicationProtocols: plaintextHTTP},
		Filters:          v.outboundHTTP(httpTraffic{statPrefix: xds.OutboundCatchAllHTTP, rds: xds.AllowAny, unknown: v.Unknown}),
	}
	if v.Caps.Has(xds.CapOriginalDst) {
		// This filter comes first. Envoy's own would come last, and would not run at all if the inspectors run into their
		// timeout, as they do when the server is the first to send.
		l.ListenerFilters = append(l.ListenerFilters, listenerFilter("envoy.filters.listener.original_dst", originalDstConfig))
	}
	l.ListenerFilters = append(l.ListenerFilters, tlsInspector(), httpInspector())
	l.ContinueOnListenerFiltersTimeout = true
	if l.ListenerFiltersTimeout = v.detectionTimeout(); l.ListenerFiltersTimeout.AsDuration() == 0 {
		l.ListenerFiltersTimeout = defaultDetectionTimeout
	}
}
