package relay

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// pieces cuts a message into buffers of n bytes, as the wire may; some are empty.
func pieces(raw []byte, n int) (all mem.BufferSlice) {
	for part := range slices.Chunk(raw, n) {
		all = append(all, mem.SliceBuffer(part), mem.SliceBuffer(nil))
	}
	return all
}

func seeds() (all [][]byte) {
	for _, m := range []proto.Message{
		&discoveryv3.DeltaDiscoveryRequest{},
		&discoveryv3.DeltaDiscoveryRequest{
			Node: &corev3.Node{Id: "n", Cluster: "c"}, TypeUrl: typeCDS, ResourceNamesSubscribe: []string{"a", "*"}, ResourceNamesUnsubscribe: []string{"b"},
			InitialResourceVersions: map[string]string{"x": "1", "": ""}, ResponseNonce: "n", ErrorDetail: &rpcstatus.Status{Code: 13, Message: "m"},
		},
		&discoveryv3.DeltaDiscoveryRequest{ResourceLocatorsSubscribe: []*discoveryv3.ResourceLocator{{Name: "l"}}},
		&discoveryv3.DeltaDiscoveryResponse{
			SystemVersionInfo: "7", TypeUrl: typeCDS, Nonce: "3", RemovedResources: []string{"r", "s"}, ControlPlane: &corev3.ControlPlane{Identifier: "i"},
			Resources: []*discoveryv3.Resource{
				{Name: "a", Version: "1", Resource: &anypb.Any{TypeUrl: "t", Value: bytes.Repeat([]byte("v"), 300)}, Aliases: []string{"z"}},
				{Name: "b", Ttl: durationpb.New(1)}, {},
			},
		},
	} {
		b, _ := proto.Marshal(m)
		all = append(all, b, unknown(m))
	}
	group := protowire.AppendTag(nil, 20, protowire.StartGroupType)
	group = append(appendText(group, 21, "inner"), protowire.AppendTag(nil, 20, protowire.EndGroupType)...)
	return append(all, group, append(appendText(appendText(nil, 4, "first"), 4, "last"), group...), []byte{0xff}, []byte{0x12, 0x7f})
}

// FuzzScan: the scanner accepts every text that a full decoder accepts, with the same result, for any division into
// buffers.
func FuzzScan(f *testing.F) {
	for _, b := range seeds() {
		f.Add(b, uint8(1))
		f.Add(b, uint8(7))
		f.Add(b, uint8(255))
	}
	f.Fuzz(func(t *testing.T, raw []byte, n uint8) {
		data := pieces(raw, max(1, int(n)))
		got, err := scanRequest(data)
		var req discoveryv3.DeltaDiscoveryRequest
		if proto.Unmarshal(raw, &req) == nil {
			if err != nil {
				t.Fatalf("request: %v", err)
			}
			checkRequest(t, got, &req)
		}
		head, err := scanResponse(data)
		var resp discoveryv3.DeltaDiscoveryResponse
		if proto.Unmarshal(raw, &resp) == nil {
			if err != nil {
				t.Fatalf("response: %v", err)
			}
			checkResponse(t, head, &resp)
		}
	})
}

func checkRequest(t *testing.T, got request, req *discoveryv3.DeltaDiscoveryRequest) {
	if got.typeURL != req.TypeUrl || got.nonce != req.ResponseNonce || got.failed != (req.ErrorDetail != nil) ||
		!slices.Equal(got.subscribe, req.ResourceNamesSubscribe) || !slices.Equal(got.unsubscribe, req.ResourceNamesUnsubscribe) {
		t.Fatalf("request: %+v, want %v", got, req)
	}
	initial := map[string]string{}
	for _, r := range got.initial {
		initial[r.name] = r.version
	}
	if !maps.Equal(initial, req.InitialResourceVersions) {
		t.Fatalf("initial: %v, want %v", initial, req.InitialResourceVersions)
	}
	var node discoveryv3.DeltaDiscoveryRequest
	if err := proto.Unmarshal(got.node, &node); err != nil || !proto.Equal(node.Node, req.Node) {
		t.Fatalf("node: %v, want %v (%v)", node.Node, req.Node, err)
	}
	if strange := len(req.ResourceLocatorsSubscribe)+len(req.ResourceLocatorsUnsubscribe) > 0; got.strange != strange {
		t.Fatalf("strange: %v, want %v", got.strange, strange)
	}
}

func checkResponse(t *testing.T, got response, resp *discoveryv3.DeltaDiscoveryResponse) {
	if got.typeURL != resp.TypeUrl || got.nonce != resp.Nonce || got.revision != resp.SystemVersionInfo ||
		!slices.Equal(got.removed, resp.RemovedResources) || len(got.set) != len(resp.Resources) {
		t.Fatalf("response: %+v, want %v", got, resp)
	}
	strange := false
	for i, r := range resp.Resources {
		strange = strange || r.Ttl != nil
		if got.set[i] != (named{r.Name, r.Version}) {
			t.Fatalf("resource %d: %+v, want %v", i, got.set[i], r)
		}
	}
	if got.strange != strange {
		t.Fatalf("strange: %v, want %v", got.strange, strange)
	}
}

// The relay's encoding is read without loss by a full decoder.
func TestWire(t *testing.T) {
	node := appendText(nil, requestNode, string(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte("n"))))
	var m discoveryv3.DeltaDiscoveryRequest
	if err := proto.Unmarshal(encodeFirst(node, "t", []string{"a", "b"}, []named{{"x", "1"}, {"y", ""}}).Materialize(), &m); err != nil {
		t.Fatal(err)
	}
	want := &discoveryv3.DeltaDiscoveryRequest{
		Node: &corev3.Node{Id: "n"}, TypeUrl: "t", ResourceNamesSubscribe: []string{"a", "b"}, InitialResourceVersions: map[string]string{"x": "1", "y": ""},
	}
	if !proto.Equal(&m, want) {
		t.Errorf("first: %v", &m)
	}
	raw, _ := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t", ResponseNonce: "old", ErrorDetail: &rpcstatus.Status{Code: 3}, ResourceNamesSubscribe: []string{"a"}})
	for name, c := range map[string]struct {
		data mem.BufferSlice
		want *discoveryv3.DeltaDiscoveryRequest
	}{
		"amended":       {amend(pieces(raw, 3), requestNonce, "new"), &discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t", ResponseNonce: "new", ErrorDetail: &rpcstatus.Status{Code: 3}, ResourceNamesSubscribe: []string{"a"}}},
		"without nonce": {withoutNonce(pieces(raw, 3)), &discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t", ResourceNamesSubscribe: []string{"a"}}},
		"ACK":           {encodeAnswer("t", "n", nil), &discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t", ResponseNonce: "n"}},
		"NACK":          {encodeAnswer("t", "n", errWire), &discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t", ResponseNonce: "n", ErrorDetail: &rpcstatus.Status{Code: 3, Message: "not protobuf"}}},
	} {
		var got discoveryv3.DeltaDiscoveryRequest
		if err := proto.Unmarshal(c.data.Materialize(), &got); err != nil || !proto.Equal(&got, c.want) {
			t.Errorf("%s: %v, %v", name, &got, err)
		}
	}
}

// The scanner does not copy bodies: its allocations depend on names, not on bytes.
func TestScanDoesNotCopyBodies(t *testing.T) {
	count := func(size int) float64 {
		m := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeCDS, Nonce: "1", Resources: []*discoveryv3.Resource{{Name: "a", Version: "1", Resource: &anypb.Any{Value: make([]byte, size)}}}}
		raw, _ := proto.Marshal(m)
		data := pieces(raw, 16<<10)
		return testing.AllocsPerRun(100, func() { _, _ = scanResponse(data) })
	}
	if small, large := count(1), count(8<<20); large > small {
		t.Errorf("%v allocations with 1 byte, %v with 8 MiB", small, large)
	}
}

// BenchmarkScan reads the head of a response of 1,000 resources of 800 bytes, in buffers of 16 KiB.
func BenchmarkScan(b *testing.B) {
	m := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeCDS, Nonce: "1"}
	for i := range 1000 {
		m.Resources = append(m.Resources, &discoveryv3.Resource{Name: fmt.Sprintf("outbound|80||service-%d.namespace.svc.cluster.local", i), Version: fmt.Sprintf("%032x", i), Resource: &anypb.Any{Value: make([]byte, 700)}})
	}
	raw, _ := proto.Marshal(m)
	data := pieces(raw, 16<<10)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := scanResponse(data); err != nil {
			b.Fatal(err)
		}
	}
}
