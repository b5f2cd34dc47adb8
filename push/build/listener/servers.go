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

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/xds"
)

const gateway = networkingv1.EnvoyFilter_GATEWAY

// fieldFilterChains is the field Listener.filter_chains.
const fieldFilterChains = 3

var proxyProtocolConfig = xds.Any(&proxyprotocolv3.ProxyProtocol{})

// Build draws the listener as a rope: the head, and the filter chains as they are. Where patches may match, chains are
// decoded, patched as parts of the whole listener, and encoded again; chains that no patch changes keep their bytes.
// An error: there is no chain, or Envoy would refuse the head. Patches for which Envoy would refuse the listener are
// left out.
func (s Servers) Build() (*xds.Resource, error) {
	r, _, err := s.draw()
	return r, err
}

func (s Servers) draw() (*xds.Resource, []error, error) {
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

// needs are the resources that the chains ask for, each once, in order.
func (s Servers) needs() []xds.Ref {
	n := references{seen: map[xds.Ref]bool{}}
	for _, f := range s.Chains.All() {
		for _, ref := range f.Needs {
			n.once(ref)
		}
	}
	return n.refs
}

// patched is the listener with its patches. The problems are the patches that it is drawn without.
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
	l, problems := patch.Listener(l, gateway, s.Patches.All())
	if len(l.FilterChains) == 0 && l.DefaultFilterChain == nil {
		l.FilterChains = []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{blackHole()}}} // as finish
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

// head is the listener without its filter chains.
//
// Istio's control plane adds the TLS inspector once a chain has TLS. Here the inspector is there from the first server
// on: were it added later, Envoy would replace the listener and drain the connections of all servers. A connection that
// sends nothing passes the inspector after Envoy's 15 s, so clients may connect ahead of their first request. Behind
// the PROXY protocol it ends, because no connection without that header may pass.
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
	if s.Proxy.Gateway.ProxyProtocol { // first: its header comes before all other bytes
		l.ListenerFilters = append(l.ListenerFilters, listenerFilter("envoy.filters.listener.proxy_protocol", proxyProtocolConfig))
	}
	if !s.Opaque && s.Caps.Has(xds.CapTLSInspector) {
		l.ListenerFilters = append(l.ListenerFilters, tlsInspector())
		l.ContinueOnListenerFiltersTimeout = !s.Proxy.Gateway.ProxyProtocol
	}
	return l, nil
}

// overUDP makes the listener one of HTTP/3. An error: it has a Unix socket.
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
