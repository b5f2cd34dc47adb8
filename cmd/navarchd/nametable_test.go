package main

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/serve/servetest"
	"navarch.io/navarch/push/xds"
)

// An agent that resolves names for its pod is given an empty table in both protocols, once.
func TestAgentsHaveANameTable(t *testing.T) {
	names, err := nameTable()
	if err != nil {
		t.Fatal(err)
	}
	conn := servetest.Dialed(t, serve.New(serve.Config{Planner: servetest.OneCluster(), AgentTypes: []serve.AgentType{names}, Log: quiet}))
	service, node := discoveryv3.NewAggregatedDiscoveryServiceClient(conn), &corev3.Node{Id: "n"}
	incremental, err := service.DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sotw, err := service.StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The agent's Envoy has asked before, as it always has.
	for _, url := range []string{xds.Cluster.URL(), nameTableURL} {
		if err := incremental.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: url}); err != nil {
			t.Fatal(err)
		}
		if res, err := incremental.Recv(); err != nil || res.TypeUrl != url || len(res.Resources) != 1 || res.Resources[0].Resource.TypeUrl != url && url == nameTableURL {
			t.Errorf("%s: %v %v", url, res, err)
		} else if err := incremental.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResponseNonce: res.Nonce}); err != nil {
			t.Fatal(err)
		}
		if err := sotw.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: url}); err != nil {
			t.Fatal(err)
		}
		if res, err := sotw.Recv(); err != nil || res.TypeUrl != url || len(res.Resources) != 1 || url == nameTableURL && len(res.Resources[0].Value) != 0 {
			t.Errorf("%s, state of the world: %v %v", url, res, err)
		} else if err := sotw.Send(&discoveryv3.DiscoveryRequest{TypeUrl: url, ResponseNonce: res.Nonce, VersionInfo: res.VersionInfo}); err != nil {
			t.Fatal(err)
		}
	}
}
