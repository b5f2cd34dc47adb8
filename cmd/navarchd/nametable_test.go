package main

import (
	"context"
	"net/netip"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/serve/servetest"
	"navarch.io/navarch/push/xds"
)

// namedPlanner adds a name table to views once it is planned.
type namedPlanner struct {
	serve.Planner
	mu    sync.Mutex
	table *manifest.Manifest
	moved []func(fanout.Lane)
}

type namedProxy struct {
	serve.Proxy
	planner *namedPlanner
}

func (p *namedPlanner) Join(ctx context.Context, c serve.Client, moved func(fanout.Lane)) (serve.Proxy, error) {
	v, err := p.Planner.Join(ctx, c, moved)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moved = append(p.moved, moved)
	return namedProxy{v, p}, err
}

func (p *namedPlanner) plan(hosts ...string) {
	var rows []*xds.Fragment
	for _, h := range hosts {
		rows = append(rows, &xds.Fragment{Bytes: agentapi.AppendName(nil, agentapi.Name{Host: h, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}), Hash: xds.Hash([]byte((h + "0123456789abcdef")[:16]))})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.table = manifest.Of(xds.JoinRope("", agentapi.NameTableURL, rows))
	for _, moved := range p.moved {
		moved(fanout.Config)
	}
}

func (v namedProxy) Names() *manifest.Manifest {
	v.planner.mu.Lock()
	defer v.planner.mu.Unlock()
	return v.planner.table
}

// An agent that answers DNS for its Pod receives the name table in both protocols, once it is planned and after each
// change.
func TestAgentsHaveANameTable(t *testing.T) {
	planner := &namedPlanner{Planner: servetest.OneCluster()}
	conn := servetest.Dialed(t, serve.New(serve.Config{Planner: planner, AgentTypes: []serve.AgentType{nameTable()}, Log: quiet}))
	service, node := discoveryv3.NewAggregatedDiscoveryServiceClient(conn), &corev3.Node{Id: "n"}
	incremental, err := service.DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sotw, err := service.StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The agent's Envoy has sent its requests before, as always.
	for _, url := range []string{xds.Cluster.URL(), agentapi.NameTableURL} {
		if err := incremental.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: url}); err != nil {
			t.Fatal(err)
		}
		if err := sotw.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: url}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(hosts ...string) {
		t.Helper()
		for _, body := range []*anypb.Any{deltaTable(t, incremental), sotwTable(t, sotw)} {
			names, err := agentapi.DecodeNames(body)
			if err != nil || len(names) != len(hosts) {
				t.Fatalf("%v %v", names, err)
			}
			for i, n := range names {
				if n.Host != hosts[i] {
					t.Errorf("%s, want %s", n.Host, hosts[i])
				}
			}
		}
	}
	planner.plan("a.org")
	want("a.org")
	planner.plan("a.org", "b.org")
	want("a.org", "b.org")
	planner.plan()
	want() // an agent without any table is never ready
}

// deltaTable waits for the next name table, and acknowledges what comes.
func deltaTable(t *testing.T, stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient) *anypb.Any {
	t.Helper()
	for {
		res, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: res.TypeUrl, ResponseNonce: res.Nonce}); err != nil {
			t.Fatal(err)
		}
		if res.TypeUrl == agentapi.NameTableURL && len(res.Resources) == 1 {
			return res.Resources[0].Resource
		}
	}
}

func sotwTable(t *testing.T, stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient) *anypb.Any {
	t.Helper()
	for {
		res, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: res.TypeUrl, ResponseNonce: res.Nonce, VersionInfo: res.VersionInfo}); err != nil {
			t.Fatal(err)
		}
		if res.TypeUrl == agentapi.NameTableURL && len(res.Resources) == 1 {
			return res.Resources[0]
		}
	}
}
