package serve

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"navarch.io/navarch/push/xds"
)

// A version that every proxy refuses reaches a few of a hundred: the verdict of the first keeps it from the rest, who take
// the next version.
func TestBadVersionReachesAFew(t *testing.T) {
	const proxies = 100
	stat := func(name string) *xds.Resource {
		return cluster("c", func(c *clusterv3.Cluster) { c.AltStatName = name })
	}
	good, bad, fixed := stat("good"), stat("bad"), stat("fixed")
	p := newPlanner(good)
	var identities, refused atomic.Int32
	_, addr := start(t, Config{Planner: p, Authenticate: func(context.Context) (string, error) {
		return fmt.Sprintf("spiffe://mesh/ns/shop/sa/%d", identities.Add(1)), nil
	}})
	var joined, over sync.WaitGroup
	joined.Add(proxies)
	for range proxies {
		c := dial(t, addr)
		c.ask(xds.Cluster)
		over.Go(func() {
			for {
				r, err := c.Recv()
				if err != nil {
					t.Errorf("stream: %v", err)
					return
				}
				switch version := r.Resources[0].Version; version {
				case bad.Version:
					refused.Add(1)
					c.nack(r, "Error adding/updating cluster(s) c: why")
				case good.Version:
					c.ack(r)
					joined.Done()
				case fixed.Version:
					c.ack(r)
					return
				}
			}
		})
	}
	joined.Wait()
	p.put(bad)
	eventually(t, "refusals", func() bool { return refused.Load() >= 3 })
	p.put(fixed)
	over.Wait()
	if n := refused.Load(); n > 3*8 {
		t.Errorf("%d of %d proxies were sent a version that all refuse", n, proxies)
	} else {
		t.Logf("%d of %d proxies were sent it", n, proxies)
	}
}
