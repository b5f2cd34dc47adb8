package delta

import (
	"fmt"
	"testing"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// Resources of all proxies are encoded once for all of them, whatever names the workload's and zone's resources have
// between them.
func TestEncodingIsSharedByLayer(t *testing.T) {
	const services, zones, workloads = 1000, 3, 50
	named := func(format string, n, edition int) (all []*xds.Resource) {
		for i := range n {
			all = append(all, thing(xds.Cluster, fmt.Sprintf(format+"@%d", i*services/n, edition)))
		}
		return all
	}
	scope := manifest.Of(named("service-%04d", services, 0)...)
	seen, counted := map[*byte]bool{}, map[*xds.Resource]bool{}
	kept, want := 0, 0    // in bytes
	for turn := range 3 { // a run is encoded together when its resources are sent together for the second time
		for zone := range zones {
			variant := manifest.Of(named("service-%04d", 50, zone+1)...)
			for workload := range workloads {
				layer := manifest.Of(named("service-%04d-inbound", 2, zone*workloads+workload)...)
				set := &manifest.Set{Revision: 1}
				set.Types[xds.Cluster] = manifest.Stack{manifest.Scope: scope, manifest.Variant: variant, manifest.Workload: layer}
				s := New(Config{Names: &Names{}}, set)
				s.Request(Request{Type: xds.Cluster}, nil)
				reply, ok := s.Next()
				if !ok || len(reply.Set) != services+2 {
					t.Fatalf("%d resources", len(reply.Set))
				}
				if turn < 2 {
					continue
				}
				for _, m := range []*manifest.Manifest{scope, variant, layer} {
					for r := range m.All() {
						if !counted[r] {
							counted[r], want = true, want+r.WireSize()
						}
					}
				}
				for _, b := range reply.Encoded {
					if at := &b.ReadOnlyData()[0]; !seen[at] {
						seen[at], kept = true, kept+b.Len()
					}
				}
			}
		}
	}
	if kept > want {
		t.Errorf("%d bytes are kept of encodings, and all that is sent are %d", kept, want)
	}
}
