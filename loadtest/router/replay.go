package router

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/xds"
)

// Recording holds the resources that a server sends to one gateway, by type and name.
type Recording map[xds.Type]map[string]*discoveryv3.Resource

// Record subscribes to the clusters, endpoints and listeners of a gateway, and to the named route configurations, at a
// server in plain text, and returns them. The error is that of the stream, or of ctx while something is missing.
func Record(ctx context.Context, server string, node *corev3.Node, routes ...string) (Recording, error) {
	conn, err := grpc.NewClient("passthrough:///"+server, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	all := Recording{}
	ask := func(t xds.Type, names ...string) error {
		err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: t.URL(), ResourceNamesSubscribe: names})
		for all[t] = map[string]*discoveryv3.Resource{}; err == nil && (len(all[t]) == 0 || len(all[t]) < len(names)); {
			var response *discoveryv3.DeltaDiscoveryResponse
			if response, err = stream.Recv(); err == nil {
				for _, r := range response.GetResources() {
					all[xds.ParseURL(response.GetTypeUrl())][r.GetName()] = r
				}
				err = stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: response.GetTypeUrl(), ResponseNonce: response.GetNonce()})
			}
		}
		return err
	}
	if err := ask(xds.Cluster); err != nil {
		return nil, fmt.Errorf("clusters: %w", err)
	}
	names, err := assignments(all[xds.Cluster])
	if err != nil {
		return nil, err
	}
	if err := errors.Join(ask(xds.Endpoint, names...), ask(xds.Listener), ask(xds.Route, routes...)); err != nil {
		return nil, fmt.Errorf("endpoints, listeners and routes: %w", err)
	}
	return all, nil
}

// assignments lists the assignments that clusters request.
func assignments(clusters map[string]*discoveryv3.Resource) (names []string, err error) {
	for name, r := range clusters {
		var c clusterv3.Cluster
		if err := r.GetResource().UnmarshalTo(&c); err != nil {
			return nil, fmt.Errorf("cluster %s: %w", name, err)
		}
		if c.GetType() == clusterv3.Cluster_EDS {
			if service := c.GetEdsClusterConfig().GetServiceName(); service != "" {
				name = service
			}
			names = append(names, name)
		}
	}
	return names, nil
}

// Replay serves a Recording to one Envoy, and plans nothing.
type Replay struct {
	Addr string // host:port, plain text

	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	server  *grpc.Server
	mu      sync.Mutex
	all     Recording
	routes  map[string]*routev3.RouteConfiguration // decoded ones of all
	edition int
	stream  discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer // nil: none
}

// Serve serves a recording on loopback until Close. The error is that of the listener.
func Serve(all Recording) (*Replay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &Replay{Addr: l.Addr().String(), server: grpc.NewServer(), all: all, routes: map[string]*routev3.RouteConfiguration{}}
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(b.server, b)
	go func() { _ = b.server.Serve(l) }() // Close ends it
	return b, nil
}

// Close ends the stream and the server.
func (b *Replay) Close() { b.server.Stop() }

// DeltaAggregatedResources implements the service: each request that subscribes is answered with recorded resources.
func (b *Replay) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	begun := map[xds.Type]bool{}
	for {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		t, names := xds.ParseURL(request.GetTypeUrl()), request.GetResourceNamesSubscribe()
		first := t.Wildcard() && !begun[t]
		begun[t] = true
		if !first && len(names) == 0 {
			continue // an ACK
		}
		if err := b.answer(stream, t, names, first); err != nil {
			return err
		}
	}
}

func (b *Replay) answer(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer, t xds.Type,
	names []string, all bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stream = stream
	var some []*discoveryv3.Resource
	if all {
		some = slices.Collect(maps.Values(b.all[t]))
	}
	for _, name := range names {
		if r := b.all[t][name]; r != nil && !all {
			some = append(some, r)
		}
	}
	return b.send(t, some)
}

func (b *Replay) send(t xds.Type, some []*discoveryv3.Resource) error {
	b.edition++
	return b.stream.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: t.URL(), Resources: some, Nonce: strconv.Itoa(b.edition)})
}

// Add adds a virtual host that answers 200 to a recorded route configuration, and returns the time at which its bytes
// were handed to the stream. The error names a configuration that was not recorded, or is the stream's.
func (b *Replay) Add(configuration, host string) (time.Time, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.routes[configuration]
	if c == nil {
		c = &routev3.RouteConfiguration{}
		if err := b.all[xds.Route][configuration].GetResource().UnmarshalTo(c); err != nil {
			return time.Time{}, fmt.Errorf("route configuration %s: %w", configuration, err)
		}
		b.routes[configuration] = c
	}
	c.VirtualHosts = append(c.VirtualHosts, &routev3.VirtualHost{Name: host, Domains: []string{host}, Routes: []*routev3.Route{{
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 200}}}}})
	body, err := proto.Marshal(c)
	if err != nil {
		return time.Time{}, err
	}
	r := &discoveryv3.Resource{Name: configuration, Version: "plain-" + strconv.Itoa(b.edition),
		Resource: &anypb.Any{TypeUrl: xds.Route.URL(), Value: body}}
	b.all[xds.Route][configuration] = r
	at := time.Now()
	return at, b.send(xds.Route, []*discoveryv3.Resource{r})
}
