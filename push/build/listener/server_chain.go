package listener

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/xds"
)

// Fragment encodes the filter chain as one element of the field filter_chains of a Listener. The Needs of the result
// are the route configuration and the extensions that the chain requests over ADS. If Fault returns an error and QUIC
// is not set, the chain closes the connections that it matches. Without the chain these connections would reach a less
// specific chain, which may request no certificate.
//
// Fragment fails in these cases:
//
//   - TCP has SNI or CIDRs.
//   - Names are set without QUIC, and the proxy lacks a TLS inspector.
//   - QUIC is set, and TLS does not permit HTTP/3 (ServerTLS.OverQUIC), or Fault returns an error.
//   - Envoy would refuse the chain, or a string of the chain is not valid UTF-8.
//
// The error names the port and, if there are any, the server names.
func (s ServerChain) Fragment() (*xds.Fragment, error) {
	name := fmt.Sprintf("filter chain of port %d", s.Port)
	if s.Names.Len() > 0 {
		name += " for " + strings.Join(s.Names.All(), ", ")
	}
	chain, err := s.build()
	if err == nil {
		err = patch.Check(chain) // if a message in an Any is invalid, Envoy refuses the whole listener
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f, err := xds.EncodeFragment(name, fieldFilterChains, chain)
	if err != nil {
		return nil, err
	}
	f.Needs = referencesOf(&listenerv3.Listener{FilterChains: []*listenerv3.FilterChain{chain}})
	return f, nil
}

// build returns the filter chain that Fragment encodes.
func (s ServerChain) build() (*listenerv3.FilterChain, error) {
	s.Proxy = s.Proxy.OfGateway()
	if s.TCP.SNI.Len()+s.TCP.CIDRs.Len() > 0 {
		return nil, errors.New("the target of TCP must not match SNI or CIDRs")
	}
	if s.Names.Len() > 0 && !s.QUIC && !s.Caps.Has(xds.CapTLSInspector) {
		return nil, errors.New("the proxy has no TLS inspector, so it cannot read the SNI")
	}
	if s.QUIC && !s.TLS.OverQUIC() {
		return nil, fmt.Errorf("mode %v: HTTP/3 needs a server certificate, and does not support client certificates", s.TLS.Mode)
	}
	chain := &listenerv3.FilterChain{TransportSocketConnectTimeout: connectTimeout}
	if s.Names.Len()+s.Protocols.Len() > 0 {
		chain.FilterChainMatch = &listenerv3.FilterChainMatch{ServerNames: s.Names.All(), ApplicationProtocols: s.Protocols.All()}
	}
	if fault := s.Fault(); fault != nil {
		if s.QUIC {
			return nil, fault
		}
		chain.Filters = []*listenerv3.Filter{blackHole()}
		return chain, nil
	}
	chain.TransportSocket = s.transportSocket()
	policies := s.buildPolicyFilters(s.Policies, s.Authentications, s.Authorizers, true)
	if s.HTTP.Route != "" {
		chain.Filters = s.http(policies)
	} else {
		proxy := slices.Concat(s.bySNI(s.TCP), s.tcpFilters(s.TCP.proxy(), s.TCP.Protocol, gateway))
		chain.Filters = s.policedTCP(s.Port, s.Closed, policies, proxy, gateway)
	}
	return chain, nil
}

// http returns the network filters of an HTTP chain. If the chain is closed, the connection manager answers 403.
// Connections are closed instead if the proxy lacks the RBAC filter, or if a closed extension is a network filter.
func (s ServerChain) http(policies *policyFilters) []*listenerv3.Filter {
	closed := s.Closed || policies.closedHTTP || s.closedByExtension(false, s.Port)
	if s.closedByExtension(true, s.Port) || closed && !s.Caps.Has(xds.CapRBACHTTP) {
		return []*listenerv3.Filter{blackHole()}
	}
	return append(s.networkExtensions(s.Port), s.connectionManager(httpTraffic{
		statPrefix: s.HTTP.StatPrefix, port: s.Port, rds: s.HTTP.Route, grpcWeb: s.HTTP.GRPCWeb, closed: closed, policyFilters: policies,
		server: &serverTraffic{quic: s.QUIC, internal: s.HTTP.Internal.All()},
	}))
}

// serverTraffic holds the settings that only connection managers of gateways have.
type serverTraffic struct {
	quic     bool
	internal []string // networks whose requests are internal
}

// setServer changes a connection manager for clients outside of the mesh. The settings determine from where Envoy takes
// a client's address, and which headers of clients it trusts
// (https://www.envoyproxy.io/docs/envoy/latest/configuration/best_practices/edge). If t is nil, nothing changes.
func (c Common) setServer(m *hcmv3.HttpConnectionManager, t *serverTraffic) {
	if t == nil {
		return
	}
	m.UseRemoteAddress = wrapperspb.Bool(true)
	m.XffNumTrustedHops = c.Proxy.Gateway.TrustedProxies
	if m.HttpProtocolOptions == nil {
		m.HttpProtocolOptions = &corev3.Http1ProtocolOptions{} // as in istiod
	}
	if t.quic {
		m.CodecType, m.Http3ProtocolOptions = hcmv3.HttpConnectionManager_HTTP3, &corev3.Http3ProtocolOptions{}
	}
	if internal, ok := destinations(t.internal); ok && len(internal) > 0 {
		ranges := match{destinations: internal}.filterChainMatch().PrefixRanges
		m.InternalAddressConfig = &hcmv3.HttpConnectionManager_InternalAddressConfig{CidrRanges: ranges}
	}
	m.ForwardClientCertDetails = hcmv3.HttpConnectionManager_SANITIZE_SET
	if stated := c.Proxy.Gateway.ClientCertificates; stated != meshv1.ForwardClientCertDetails_UNDEFINED {
		m.ForwardClientCertDetails = forwardings[stated]
	}
	switch m.ForwardClientCertDetails {
	case hcmv3.HttpConnectionManager_SANITIZE_SET, hcmv3.HttpConnectionManager_APPEND_FORWARD:
		m.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{
			Subject: wrapperspb.Bool(true), Cert: true, Dns: true, Uri: true,
		}
	}
}
