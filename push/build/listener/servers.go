package listener

import (
	"errors"
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/xds"
)

// gateway is the patch context of gateways.
const gateway = networkingv1.EnvoyFilter_GATEWAY

// fieldFilterChains is the number of the field Listener.filter_chains.
const fieldFilterChains = 3

var proxyProtocolConfig = xds.Any(&proxyprotocolv3.ProxyProtocol{})

// Build encodes the listener as a rope: the encoded head (all fields except filter_chains), then the fragments of
// Chains unchanged. If the Spec has patches, Build decodes the chains, patches the whole listener, and encodes the
// listener again. Chains that no patch changes keep their fragments. Patches for which Envoy would refuse the listener
// are left out. If patches remove all chains, the listener closes its connections. The result has the name Name, and
// its Needs are the resources that the chains request over ADS.
//
// Build fails if Chains is empty, if Bind or Port is invalid, or if QUIC is set with a Unix socket. It also fails if
// the head violates a constraint of Envoy's API, or contains a string that is not valid UTF-8. With patches, it also
// fails if a chain does not decode, or violates a constraint. The error names the listener.
func (s Servers) Build() (*xds.Resource, error) {
	r, _, err := s.build()
	return r, err
}

// build returns the results of Build and Problems.
func (s Servers) build() (*xds.Resource, []error, error) {
	s.Proxy = s.Proxy.OfGateway()
	head, err := s.head()
	if err == nil && s.Chains.Len() == 0 {
		err = errors.New("filter chains are missing")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("listener %s: %w", s.Name, err)
	}
	if s.Patches.Len() > 0 {
		return s.patched(head)
	}
	if err := head.ValidateAll(); err != nil {
		return nil, nil, fmt.Errorf("listener %s: %w", s.Name, err)
	}
	r, err := xds.EncodeRope(xds.Listener, s.Name, head, s.Chains.All(), s.needs()...)
	return r, nil, err
}

// needs returns the resources that the chains request over ADS, each once, in order.
func (s Servers) needs() []xds.Ref {
	n := references{seen: map[xds.Ref]bool{}}
	for _, f := range s.Chains.All() {
		for _, ref := range f.Needs {
			n.addOnce(ref)
		}
	}
	return n.refs
}

// patched decodes the chains into l, applies the patches and encodes the listener. The second result has the errors
// that Problems returns.
func (s Servers) patched(l *listenerv3.Listener) (*xds.Resource, []error, error) {
	fail := func(err error) (*xds.Resource, []error, error) {
		return nil, nil, fmt.Errorf("listener %s: %w", s.Name, err)
	}
	known := map[xds.Hash]*xds.Fragment{}
	for _, f := range s.Chains.All() {
		known[f.Hash] = f
		if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(f.Bytes, l); err != nil {
			return fail(err)
		}
	}
	l, problems := s.trace.Listener(l, gateway, s.Patches.All(), nil)
	if len(l.FilterChains) == 0 && l.DefaultFilterChain == nil {
		l.FilterChains = []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{blackHole()}}} // as in patchAndEncode
	}
	if err := l.ValidateAll(); err != nil {
		return fail(err)
	}
	needs := referencesOf(l)
	var chains []*xds.Fragment
	for _, c := range l.FilterChains {
		f, err := xds.EncodeFragment(s.Name, fieldFilterChains, c)
		if err != nil {
			return fail(err)
		}
		if same := known[f.Hash]; same != nil {
			f = same
		}
		chains = append(chains, f)
	}
	l.FilterChains = nil
	r, err := xds.EncodeRope(xds.Listener, s.Name, l, chains, needs...)
	return r, problems, err
}

// head returns the listener without its filter chains.
//
// istiod adds the TLS inspector as soon as a chain has TLS. Navarch adds the inspector with the first server, unless
// Opaque is set (the only server is TCP without TLS). If the inspector were added later, Envoy would replace the
// listener and drain the connections of all servers. A connection on which the client sends nothing passes the
// inspector after 15 s, Envoy's default. Clients may therefore connect long before their first request. With the PROXY
// protocol, Envoy closes such a connection after this time, because a connection without the PROXY header must not
// pass.
func (s Servers) head() (*listenerv3.Listener, error) {
	addr, err := address(s.Bind, s.Port)
	if err != nil {
		return nil, err
	}
	l := &listenerv3.Listener{
		Name:                                 s.Name,
		Address:                              addr,
		AdditionalAddresses:                  s.additionalAddresses(s.Bind, s.Port),
		TrafficDirection:                     corev3.TrafficDirection_OUTBOUND,
		AccessLog:                            s.unmatchedLog(),
		MaxConnectionsToAcceptPerSocketEvent: wrapperspb.UInt32(acceptsPerEvent),
	}
	s.setBuffer(l)
	if s.QUIC {
		return l, overUDP(l)
	}
	if s.Proxy.Gateway.ProxyProtocol { // this filter is the first, because the PROXY header precedes all other bytes
		l.ListenerFilters = append(l.ListenerFilters, listenerFilter("envoy.filters.listener.proxy_protocol", proxyProtocolConfig))
	}
	if !s.Opaque && s.Caps.Has(xds.CapTLSInspector) {
		l.ListenerFilters = append(l.ListenerFilters, tlsInspector())
		l.ContinueOnListenerFiltersTimeout = !s.Proxy.Gateway.ProxyProtocol
	}
	return l, nil
}

// overUDP changes a listener to serve HTTP/3. It fails if the listener has a Unix socket.
func overUDP(l *listenerv3.Listener) error {
	all := []*corev3.Address{l.Address}
	for _, other := range l.AdditionalAddresses {
		all = append(all, other.Address)
	}
	for _, a := range all {
		if a.GetSocketAddress() == nil {
			return errors.New("bind: HTTP/3 is not served on a Unix socket")
		}
		a.GetSocketAddress().Protocol = corev3.SocketAddress_UDP
	}
	l.UdpListenerConfig = &listenerv3.UdpListenerConfig{
		DownstreamSocketConfig: &corev3.UdpSocketConfig{}, QuicOptions: &listenerv3.QuicProtocolOptions{},
	}
	return nil
}
