package endpoint

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// The endpoints of a large assignment have one key for all clusters with equal members. The bytes are those of the
// whole message, and Build returns the same resource.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestEqualEndpointsAreShared(t *testing.T) {
	var members intern.Table[model.Member]
	for _, n := range []int{0, sharedFrom - 1, 2 * sharedFrom} {
		all := members.List(randomMembers(rand.New(rand.NewPCG(uint64(n), 2)), n)...)
		fragments := map[any]*xds.Fragment{}
		for i := range 10 {
			spec := Spec{Cluster: fmt.Sprintf("outbound|80|v%d|h", i), Members: all}
			for _, one := range []form{spec, Proxyless{spec}} {
				key, large := one.Shared()
				if large != (all.Len() >= sharedFrom) {
					t.Errorf("%d members: shared is %v", all.Len(), large)
				}
				if fragments[key] == nil {
					f, err := one.FragmentInPieces(func() {})
					if err != nil {
						t.Fatal(err)
					}
					fragments[key] = f
				}
				around, err := one.Around(fragments[key])
				if err != nil {
					t.Fatal(err)
				}
				alone, err := built(one, func() {})
				if err != nil || !bytes.Equal(alone.Body(), around.Body()) || large && alone.Version != around.Version {
					t.Errorf("%d members: %s is not as Build makes it (%v)", n, spec.Cluster, err)
				}
				whole, err := xds.Encode(xds.Endpoint, spec.Cluster, one.message(&pacer{pause: func() {}}))
				if err != nil || !bytes.Equal(whole.Body(), around.Body()) {
					t.Errorf("%d members: %s has other bytes than the whole message (%v)", n, spec.Cluster, err)
				}
			}
		}
		if len(fragments) != 2 { // for Envoy and for gRPC
			t.Errorf("%d members: %d keys", n, len(fragments))
		}
	}
}
