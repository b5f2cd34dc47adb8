package main

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	cdsType = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	ldsType = "type.googleapis.com/envoy.config.listener.v3.Listener"
)

// fakeADS answers CDS and LDS with one resource each, unless the request claims it.
type fakeADS struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	resources map[string]*discoveryv3.Resource // by type
	first     chan seenStream                  // the first request of each type of each stream, ACKs left out
	// afterRefusal has listeners to send after a refusal, each in a separate response.
	afterRefusal chan *discoveryv3.Resource
}

type seenStream struct {
	headers metadata.MD
	request *discoveryv3.DeltaDiscoveryRequest
}

func (f *fakeADS) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	md, _ := metadata.FromIncomingContext(s.Context())
	for {
		req, err := s.Recv()
		if err != nil {
			return nil
		}
		if req.ErrorDetail != nil && f.afterRefusal != nil {
			go f.sendRest(s)
		}
		if req.ResponseNonce != "" {
			continue
		}
		f.first <- seenStream{headers: md, request: req}
		res, ok := f.resources[req.TypeUrl]
		if !ok || req.InitialResourceVersions[res.Name] == res.Version {
			continue
		}
		if err := s.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: req.TypeUrl, Nonce: "n-" + req.TypeUrl, Resources: []*discoveryv3.Resource{res}}); err != nil {
			return err
		}
	}
}

// sendRest sends the resources in afterRefusal until the stream ends. Everything else has been sent by then.
func (f *fakeADS) sendRest(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) {
	for n := 0; ; n++ {
		select {
		case res := <-f.afterRefusal:
			if s.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: ldsType, Nonce: fmt.Sprintf("rest-%d", n), Resources: []*discoveryv3.Resource{res}}) != nil {
				return
			}
		case <-s.Context().Done():
			return
		}
	}
}

// start serves on addr until the test ends or the returned server is stopped.
func (f *fakeADS) start(t *testing.T, addr string, opts ...grpc.ServerOption) (string, *grpc.Server) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(opts...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, f)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return l.Addr().String(), s
}

// newFakeADS configures one inbound listener that hands everything to backend; both are "ip:port".
func newFakeADS(t *testing.T, listener, backend string) *fakeADS {
	t.Helper()
	addr := func(hostPort string) *corev3.Address {
		ap, err := netip.ParseAddrPort(hostPort)
		if err != nil {
			t.Fatal(err)
		}
		return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: ap.Addr().String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(ap.Port())},
		}}}
	}
	pack := func(m proto.Message) *anypb.Any {
		a, err := anypb.New(m)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	resource := func(name string, m proto.Message) *discoveryv3.Resource {
		return &discoveryv3.Resource{Name: name, Version: "hash-of-" + name, Resource: pack(m)}
	}
	cluster := &clusterv3.Cluster{
		Name: "app", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}, ConnectTimeout: durationpb.New(1e9),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: "app", Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: addr(backend)}}}},
		}}},
	}
	hcm := &hcmv3.HttpConnectionManager{
		StatPrefix:  "in",
		HttpFilters: []*hcmv3.HttpFilter{{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&routerv3.Router{})}}},
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			Name: "r",
			VirtualHosts: []*routev3.VirtualHost{{Name: "all", Domains: []string{"*"}, Routes: []*routev3.Route{{
				Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "app"}}},
			}}}},
		}},
	}
	lis := &listenerv3.Listener{
		Name: "in", Address: addr(listener), TrafficDirection: corev3.TrafficDirection_INBOUND,
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name: "hcm", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(hcm)},
		}}}},
	}
	return &fakeADS{
		resources: map[string]*discoveryv3.Resource{cdsType: resource("app", cluster), ldsType: resource("in", lis)},
		first:     make(chan seenStream, 64),
	}
}
