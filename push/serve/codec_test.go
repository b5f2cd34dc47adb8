package serve

import (
	"bytes"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/xds"
)

var deterministic = proto.MarshalOptions{Deterministic: true}

func TestResponsesAreCanonical(t *testing.T) {
	reply := &delta.Reply{Type: xds.Cluster, URL: xds.Cluster.URL(), Set: []*xds.Resource{cluster("a"), cluster("b")}, Removed: []string{"c", "d"}, Nonce: "12", Version: "v", Revision: 1 << 40}
	reply.Encoded, _ = xds.Pack(reply.Set)
	d := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: reply.Type.URL(), Nonce: reply.Nonce, RemovedResources: reply.Removed, SystemVersionInfo: "1099511627776"}
	w := &discoveryv3.DiscoveryResponse{TypeUrl: reply.Type.URL(), Nonce: reply.Nonce, VersionInfo: reply.Version}
	for _, r := range reply.Set {
		body := &anypb.Any{TypeUrl: reply.Type.URL(), Value: r.Body()}
		d.Resources = append(d.Resources, &discoveryv3.Resource{Name: r.Name, Version: r.Version, Resource: body})
		w.Resources = append(w.Resources, body)
	}
	agentType, err := EncodeAgentResource("x", clusterMessage("x"))
	if err != nil {
		t.Fatal(err)
	}
	n := &delta.Reply{Type: delta.Dynamic(0), URL: "navarch.io/x", Set: []*xds.Resource{agentType.resource()}, Removed: []string{"y"}, Nonce: "a1", Version: "v", Revision: 7}
	n.Encoded, _ = xds.Pack(n.Set)
	gone := &delta.Reply{Type: delta.Dynamic(0), URL: "navarch.io/x", Removed: []string{"y"}, Nonce: "a1", Revision: 7}
	body := pack(clusterMessage("x"))
	agentDelta := &discoveryv3.DeltaDiscoveryResponse{SystemVersionInfo: "7", TypeUrl: n.URL, Nonce: n.Nonce, RemovedResources: n.Removed}
	agentGone := proto.Clone(agentDelta)
	agentDelta.Resources = []*discoveryv3.Resource{{Name: "x", Version: agentType.Version, Resource: body}}
	agentSotw := &discoveryv3.DiscoveryResponse{VersionInfo: n.Version, TypeUrl: n.URL, Nonce: n.Nonce, Resources: []*anypb.Any{body}}
	for name, c := range map[string]struct {
		got  *response
		want proto.Message
	}{
		"delta": {encodeDelta(reply, ""), d}, "state of the world": {encodeSotW(reply), w},
		"agent type": {encodeDelta(n, ""), agentDelta}, "agent type, removed": {encodeDelta(gone, ""), agentGone},
		"agent type, state of the world":          {encodeSotW(n), agentSotw},
		"agent type, removed, state of the world": {encodeSotW(gone), &discoveryv3.DiscoveryResponse{TypeUrl: n.URL, Nonce: n.Nonce}},
	} {
		want, err := deterministic.Marshal(c.want)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.got.bufs.Materialize(); !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes differ from protobuf's %d", name, len(got), len(want))
		}
	}
}
