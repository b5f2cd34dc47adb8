package status

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Writers with one Limit have that pace together, and each gets on.
// Promise: security-tenants.md#statuses-of-objects
func TestRateOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, limit := newCluster(), NewLimit()
		var names []string
		for i := range 300 {
			names = append(names, fmt.Sprintf("n%03d", i))
		}
		share := func(c *Config[corev1.ConfigMap]) { c.Limit = limit }
		roots, stop := leads(t, c.api(), 1, share)
		defer stop()
		lists, stop := leads(t, c.api(), 1, share)
		defer stop()
		roots.Want(RootCerts(names, "one"))
		lists.Want(Lists(names, "one"))
		pass(roots.Deadline + 6*time.Second)
		c.play(func() {
			of := 0
			for k := range c.objects {
				if k.Name == RootCertName {
					of++
				}
			}
			if of < 100 || of > 200 {
				t.Errorf("%d of %d writes are of the first writer", of, len(c.writes))
			}
		})
		pass(7 * time.Second)
		if len(c.writes) != 600 {
			t.Fatalf("%d writes", len(c.writes))
		}
		for i := Rate; i < len(c.writes); i++ {
			if d := c.writes[i].Sub(c.writes[i-Rate]); d < time.Second-time.Millisecond {
				t.Fatalf("%d writes within %v", Rate+1, d)
			}
		}
	})
}
