package xds

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// rope returns a route configuration of n virtual hosts, as a message and as a resource of shared fragments.
func rope(t *testing.T, n int) (*routev3.RouteConfiguration, *Resource) {
	t.Helper()
	whole := &routev3.RouteConfiguration{Name: "80"}
	head := &routev3.RouteConfiguration{Name: "80"}
	var tail []*Fragment
	for i := range n {
		vh := &routev3.VirtualHost{Name: fmt.Sprintf("host%d:80", i), Domains: []string{"*"}}
		whole.VirtualHosts = append(whole.VirtualHosts, vh)
		f, err := EncodeFragment(vh.Name, 2, vh)
		if err != nil {
			t.Fatal(err)
		}
		tail = append(tail, f)
	}
	r, err := EncodeRope(Route, "80", head, tail)
	if err != nil {
		t.Fatal(err)
	}
	return whole, r
}

// The sent bytes equal the deterministic encoding of the messages of discovery.proto.
func TestWireIsCanonical(t *testing.T) {
	c := &clusterv3.Cluster{Name: "c", AltStatName: "stat"}
	plain, err := Encode(Cluster, "c", c)
	if err != nil {
		t.Fatal(err)
	}
	empty, err := Encode(Cluster, "", &clusterv3.Cluster{})
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		r *Resource
		m proto.Message
	}{"plain": {plain, c}, "no bytes at all": {empty, &clusterv3.Cluster{}}}
	for _, n := range []int{0, 1, flattenAbove - 1, flattenAbove, 500} {
		m, r := rope(t, n)
		cases[fmt.Sprintf("rope of %d", n)] = struct {
			r *Resource
			m proto.Message
		}{r, m}
	}
	for name, c := range cases {
		body, err := deterministic.Marshal(c.m)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(c.r.Body(), body) || c.r.Size() != len(body) {
			t.Errorf("%s: the body is not what the message encodes to", name)
		}
		packed := &anypb.Any{TypeUrl: c.r.Type.URL(), Value: body}
		delta, _ := deterministic.Marshal(&discoveryv3.DeltaDiscoveryResponse{Resources: []*discoveryv3.Resource{{Name: c.r.Name, Version: c.r.Version, Resource: packed}}})
		if got := bytes.Join(c.r.Delta(), nil); len(body) > 0 && !bytes.Equal(got, delta) {
			t.Errorf("%s: Delta is %d bytes, protobuf's %d differ", name, len(got), len(delta))
		}
		if got := c.r.Buffers().Materialize(); !bytes.Equal(got, bytes.Join(c.r.Delta(), nil)) {
			t.Errorf("%s: Buffers are not Delta", name)
		}
		state, _ := deterministic.Marshal(&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{packed}})
		if got := bytes.Join(c.r.State(), nil); len(body) > 0 && !bytes.Equal(got, state) {
			t.Errorf("%s: State is %d bytes, protobuf's %d differ", name, len(got), len(state))
		}
		var back discoveryv3.DeltaDiscoveryResponse
		if err := proto.Unmarshal(bytes.Join(c.r.Delta(), nil), &back); err != nil || back.Resources[0].Name != c.r.Name {
			t.Errorf("%s: %v %v", name, &back, err)
		}
	}
}

func TestVersionIsContent(t *testing.T) {
	_, a := rope(t, 3)
	_, b := rope(t, 3)
	_, c := rope(t, 4)
	if a.Version != b.Version || a.Version == c.Version || len(a.Version) != 32 {
		t.Errorf("%s %s %s", a.Version, b.Version, c.Version)
	}
}

func TestMentions(t *testing.T) {
	_, r := rope(t, 3)
	if !r.Mentions("host2:80") || !r.Mentions("80") || r.Mentions("host3:80") {
		t.Error("host0:80 to host2:80 are mentioned, and no other")
	}
}

// All streams share one encoding, whichever uses it first.
func TestWireIsShared(t *testing.T) {
	_, r := rope(t, 500)
	var first [8]*byte
	var all sync.WaitGroup
	for i := range first {
		all.Go(func() { first[i] = &r.Buffers()[0].ReadOnlyData()[0] })
	}
	all.Wait()
	for _, p := range first {
		if p != first[0] {
			t.Fatal("encoded twice")
		}
	}
}

func TestParsers(t *testing.T) {
	for ty := range NumTypes {
		if ParseURL(ty.URL()) != ty || ParseNoun(ty.Noun()) != ty {
			t.Errorf("%v does not come back", ty)
		}
	}
	if ParseURL("x") != Unknown || ParseNoun("x") != Unknown {
		t.Error("unknown is not Unknown")
	}
	if d, port, subset, host, ok := ParseCluster(OutboundCluster(80, "v1", "a.b.svc")); !ok || d != "outbound" || port != 80 || subset != "v1" || host != "a.b.svc" {
		t.Error(d, port, subset, host, ok)
	}
	if d, port, _, _, ok := ParseCluster(InboundCluster(8080)); !ok || d != "inbound" || port != 8080 {
		t.Error(d, port, ok)
	}
	if _, _, _, _, ok := ParseCluster("BlackHoleCluster"); ok {
		t.Error("BlackHoleCluster is no host")
	}
}

// The body of a resource is in memory once, inside the sent bytes, which have no unused capacity.
func TestBodyIsThereOnce(t *testing.T) {
	for _, size := range []int{0, 10, 100_000} {
		m := &clusterv3.Cluster{Name: string(bytes.Repeat([]byte("x"), size))}
		r, err := Encode(Cluster, "c", m)
		if err != nil {
			t.Fatal(err)
		}
		named, err := EncodeAs(Secret, "s", "a version of another length", m)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []*Resource{r, named} {
			wire := r.Delta()[0]
			at := len(wire) - r.tailSize() - r.size
			if want, _ := deterministic.Marshal(m); !bytes.Equal(r.head, want) || !bytes.Equal(r.Body(), want) {
				t.Errorf("%v of %d bytes has another body", r.Type, size)
			}
			if size > 0 && &r.head[0] != &wire[at] {
				t.Errorf("%v of %d bytes has a body of its own beside what is sent", r.Type, size)
			}
			if len(wire) != cap(wire) {
				t.Errorf("%v of %d bytes: %d bytes are sent of %d", r.Type, size, len(wire), cap(wire))
			}
		}
	}
}
