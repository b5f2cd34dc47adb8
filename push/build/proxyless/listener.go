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

// Build renders the API listener of a gRPC client. An error means that it does not marshal.
func (s Client) Build() (*xds.Resource, error) {
	manager := &hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
			RouteConfigName: s.Route,
			ConfigSource: &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
				ResourceApiVersion: corev3.ApiVersion_V3},
		}},
		HttpFilters: []*hcmv3.HttpFilter{filter(xds.FaultFilter, &faultv3.HTTPFault{}), router()},
	}
	return xds.Encode(xds.Listener, s.Name, &listenerv3.Listener{
		Name: s.Name, ApiListener: &listenerv3.ApiListener{ApiListener: xds.Any(manager)},
	}, xds.Ref{Type: xds.Route, Name: s.Route})
}

// serverName is the name by which a server that listens at an address asks for its listener.
func serverName(bind string, port uint32) string {
	return xds.ServerListener + joined(bind, port)
}

// Build draws the listener: one chain, for whatever comes. An error: a value breaks a rule of Envoy's protos.
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
		HttpFilters: append(s.authorise(), router()),
	}
	chain := &listenerv3.FilterChain{Name: name, Filters: []*listenerv3.Filter{{
		Name: "envoy.filters.network.http_connection_manager", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: xds.Any(manager)},
	}}}
	if s.MTLS {
		chain.TransportSocket = &corev3.TransportSocket{Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{
			TypedConfig: xds.Any(&tlsv3.DownstreamTlsContext{CommonTlsContext: identity.Providers(nil), RequireClientCertificate: wrapperspb.Bool(true)}),
		}}
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

// authorise are the RBAC filters. Of a server gRPC's client takes no list of whose certificates are good, as Envoy does, so that the
// first filter refuses who is of no trust domain of the mesh.
func (s Server) authorise() (filters []*hcmv3.HttpFilter) {
	add := func(name string, rules *rbacconfigv3.RBAC) {
		if rules != nil {
			filters = append(filters, filter("envoy.filters.http.rbac."+name, &rbacv3.RBAC{Rules: rules}))
		}
	}
	if s.MTLS {
		add("domain", strangers(identity.TrustDomains(s.Mesh.Spec)))
	}
	deny, allow := authz.Draw(s.Policies.All(), s.Mesh.Spec, true).Rules()
	if s.Closed || len(Problems(s.Policies.All())) > 0 {
		deny, allow = nil, &rbacconfigv3.RBAC{Action: rbacconfigv3.RBAC_ALLOW} // of nobody
	}
	add("deny", deny)
	add("allow", allow)
	return filters
}

func filter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: xds.Any(config)}}
}

func router() *hcmv3.HttpFilter { return filter("envoy.filters.http.router", &routerv3.Router{}) }
