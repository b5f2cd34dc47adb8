package endpoint

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// The endpoints of a large assignment are built once for all clusters with equal members. The bytes are those of the
// whole message, and the pool and Build agree.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestEqualEndpointsAreShared(t *testing.T) {
	var members intern.Table[model.Member]
	for _, n := range []int{0, sharedFrom - 1, sharedFrom, 3 * sharedFrom} {
		var of pool.Pool
		var held []*xds.Resource
		all := members.List(randomMembers(rand.New(rand.NewPCG(uint64(n), 2)), n)...)
		for i := range 100 {
			spec := Spec{Cluster: fmt.Sprintf("outbound|80|v%d|h", i), Members: all}
			for _, one := range []pool.PiecewiseSpec{spec, Proxyless{spec}} {
				r, err := of.ResourceInPieces(one, func() {})
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, r)
				alone, err := one.Build()
				if err != nil || alone.Version != r.Version || alone.Name != r.Name || !bytes.Equal(alone.Body(), r.Body()) {
					t.Fatalf("%d members: %s is not as Build makes it (%v)", n, r.Name, err)
				}
				whole, err := xds.Encode(xds.Endpoint, spec.Cluster, one.(form).message(&pacer{pause: func() {}}))
				if err != nil || !bytes.Equal(whole.Body(), r.Body()) {
					t.Fatalf("%d members: %s has other bytes than the whole message (%v)", n, r.Name, err)
				}
			}
		}
		want := int64(0)
		if all.Len() >= sharedFrom {
			want = 2 // for Envoy and for gRPC
		}
		if got := of.Fragments(); got != want || of.Builds(xds.Endpoint) != int64(len(held)) {
			t.Errorf("%d members: %d fragments for %d assignments, want %d", n, got, len(held), want)
		}
	}
}
