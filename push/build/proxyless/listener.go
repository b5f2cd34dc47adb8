package proxyless

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/push/build/authz"
	"navarch.io/navarch/push/build/identity"
	"navarch.io/navarch/push/xds"
)

// Build encodes the API listener of a gRPC client. The listener refers to the route configuration with the name in
// s.Route. Build fails only if a string is not valid UTF-8. The error names the listener.
func (s Client) Build() (*xds.Resource, error) {
	manager := &hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
			RouteConfigName: s.Route,
			ConfigSource: &corev3.ConfigSource{
				ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
				ResourceApiVersion:    corev3.ApiVersion_V3,
			},
		}},
		HttpFilters: []*hcmv3.HttpFilter{filter(xds.FaultFilter, &faultv3.HTTPFault{}), router()},
	}
	return xds.Encode(xds.Listener, s.Name, &listenerv3.Listener{
		Name: s.Name, ApiListener: &listenerv3.ApiListener{ApiListener: xds.Any(manager)},
	}, xds.Ref{Type: xds.Route, Name: s.Route})
}

// serverName returns the name of the listener that a gRPC server at bind and port requests.
func serverName(bind string, port uint32) string {
	return xds.ServerListener + hostPort(bind, port)
}

// Build encodes the listener of a gRPC server. The listener has one filter chain, which matches every connection. RBAC
// filters enforce the policies, or refuse all calls if Closed is set or Problems reports a policy. Build fails if the
// listener violates a constraint of Envoy's API, or if a string is not valid UTF-8. The error names the listener.
func (s Server) Build() (*xds.Resource, error) {
	name := serverName(s.Bind, s.Port)
	manager := &hcmv3.HttpConnectionManager{
		StatPrefix: fmt.Sprintf("inbound_%d", s.Port),
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			Name: "inbound",
			VirtualHosts: []*routev3.VirtualHost{{Name: "inbound", Domains: []string{"*"}, Routes: []*routev3.Route{{
				Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
				Action: &routev3.Route_NonForwardingAction{NonForwardingAction: &routev3.NonForwardingAction{}},
			}}}},
		}},
		HttpFilters: append(s.rbacFilters(), router()),
	}
	chain := &listenerv3.FilterChain{Name: name, Filters: []*listenerv3.Filter{{
		Name:       "envoy.filters.network.http_connection_manager",
		ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: xds.Any(manager)},
	}}}
	if s.MTLS {
		context := xds.Any(&tlsv3.DownstreamTlsContext{
			CommonTlsContext: identity.Providers(nil), RequireClientCertificate: wrapperspb.Bool(true)})
		chain.TransportSocket = &corev3.TransportSocket{Name: "envoy.transport_sockets.tls",
			ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: context}}
	}
	l := &listenerv3.Listener{
		Name: name,
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: s.Bind, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: s.Port},
		}}},
		FilterChains:     []*listenerv3.FilterChain{chain},
		TrafficDirection: corev3.TrafficDirection_INBOUND,
	}
	if err := l.ValidateAll(); err != nil {
		return nil, fmt.Errorf("listener %s: %w", name, err)
	}
	return xds.Encode(xds.Listener, name, l)
}

// rbacFilters returns the RBAC filters of a server. With mTLS, the first filter refuses callers outside of the mesh's
// trust domains. Envoy would read these domains from the TLS context, but gRPC servers ignore them there.
func (s Server) rbacFilters() (filters []*hcmv3.HttpFilter) {
	add := func(name string, rules *rbacconfigv3.RBAC) {
		if rules != nil {
			filters = append(filters, filter("envoy.filters.http.rbac."+name, &rbacv3.RBAC{Rules: rules}))
		}
	}
	if s.MTLS {
		add("domain", denyOtherDomains(identity.TrustDomains(s.Mesh.Spec)))
	}
	deny, allow := authz.Build(s.Policies.All(), s.Mesh.Spec, authz.Requests).Rules()
	if s.Closed || len(Problems(s.Policies.All())) > 0 {
		deny, allow = nil, &rbacconfigv3.RBAC{Action: rbacconfigv3.RBAC_ALLOW} // ALLOW without policies refuses every call
	}
	add("deny", deny)
	add("allow", allow)
	return filters
}

// filter returns an HTTP filter with a configuration.
func filter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: xds.Any(config)}}
}

// router returns the HTTP filter router, which must be the last filter.
func router() *hcmv3.HttpFilter { return filter("envoy.filters.http.router", &routerv3.Router{}) }
