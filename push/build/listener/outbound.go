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

// plaintextHTTP are the protocols that the HTTP inspector reports for HTTP/1.1 and for HTTP/2 without TLS. HTTP/1.0 is
// not among them, because the connection manager refuses it. Connections with HTTP/1.0 go to TCP chains.
var plaintextHTTP = []string{"http/1.1", "h2c"}

// rawBuffer is the transport protocol of connections without TLS.
const rawBuffer = "raw_buffer"

// connectTimeout is the timeout of TLS handshakes, as in Istio. It affects only chains that terminate TLS because of
// their Spec or of a patch.
var connectTimeout = durationpb.New(15 * time.Second)

// Build encodes the listener. Patches that Envoy would refuse are left out. Build fails if Bind or Port is invalid, if
// the listener violates a constraint of Envoy's API, or if a text is not valid UTF-8. The error names the listener.
func (o Outbound) Build() (*xds.Resource, error) {
	r, _, err := o.build()
	return r, err
}

// build returns the results of Build and Problems.
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

// chains returns the chains with a match, and the chain for all other connections. If the second result is nil,
// connections that no chain matches are closed. The result sniffed states that the chains need the HTTP inspector.
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
			// Without an HTTP inspector HTTP is not detected, so the TCP chains receive HTTP too.
		default:
			rest = http
		}
	}
	if rest == nil && o.Fallback != "" {
		rest = &listenerv3.FilterChain{Name: xds.PassthroughChain, Filters: o.proxyTo(o.Fallback, outbound)}
	}
	return chains, rest, sniffed
}

// addInspectors adds the listener filters that the chains need. The HTTP inspector reads only plain text, so a TLS
// inspector precedes it. If a match needs a TLS inspector that the listener lacks, Envoy adds the inspector by itself
// (https://github.com/envoyproxy/envoy/issues/13601).
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

// Build encodes the listener virtualOutbound, which receives redirected outbound connections. Envoy passes each
// connection to the listener of the connection's original destination. If there is no such listener, virtualOutbound
// forwards or closes the connection. Patches that Envoy would refuse are left out. Build fails if Port is invalid, if
// the listener violates a constraint of Envoy's API, or if a text is not valid UTF-8. The error names the listener.
func (v VirtualOutbound) Build() (*xds.Resource, error) {
	r, _, err := v.build()
	return r, err
}

// build returns the results of Build and Problems.
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
				// Without this chain, a connection to the listener's own port would be forwarded to the listener
				// itself, without end.
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
	if v.Caps.Has(xds.CapOriginalDst) { // with UseOriginalDst, Envoy adds the listener filter by itself
		l.UseOriginalDst = wrapperspb.Bool(true)
	}
	if v.Transparent {
		l.Transparent = wrapperspb.Bool(true)
	}
	return v.patchAndEncode(l, outbound)
}

// defaultDetectionTimeout is the time for which virtualOutbound waits for the first bytes of a connection to detect
// HTTP. It applies unless the mesh sets a protocolDetectionTimeout above 0. It is short because every connection waits
// if its server is the first to send.
var defaultDetectionTimeout = durationpb.New(100 * time.Millisecond)

// addHTTPByHost adds a chain that routes plain HTTP by its host. The chain that was the last one becomes the default
// chain, for all other connections.
func (v VirtualOutbound) addHTTPByHost(l *listenerv3.Listener) {
	rest := l.FilterChains[len(l.FilterChains)-1]
	l.DefaultFilterChain = rest
	l.FilterChains[len(l.FilterChains)-1] = &listenerv3.FilterChain{
		Name:             xds.OutboundCatchAllHTTP,
		FilterChainMatch: &listenerv3.FilterChainMatch{TransportProtocol: rawBuffer, ApplicationProtocols: plaintextHTTP},
		Filters:          v.outboundHTTP(httpTraffic{statPrefix: xds.OutboundCatchAllHTTP, rds: xds.AllowAny, unknown: v.Unknown}),
	}
	if v.Caps.Has(xds.CapOriginalDst) {
		// This filter comes first. The filter that Envoy adds by itself would come last, and would not run after a
		// timeout of the inspectors. The inspectors time out if the server is the first to send.
		l.ListenerFilters = append(l.ListenerFilters, listenerFilter("envoy.filters.listener.original_dst", originalDstConfig))
	}
	l.ListenerFilters = append(l.ListenerFilters, tlsInspector(), httpInspector())
	l.ContinueOnListenerFiltersTimeout = true
	if l.ListenerFiltersTimeout = v.detectionTimeout(); l.ListenerFiltersTimeout.AsDuration() == 0 {
		l.ListenerFiltersTimeout = defaultDetectionTimeout
	}
}
