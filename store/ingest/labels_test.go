package ingest

import (
	"fmt"
	"strings"
	"testing"
)

// manyLabels is a ServiceEntry of hosts of about 120 labels.
func manyLabels(name string, hosts int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: %s, namespace: shop}\nspec:\n", name)
	b.WriteString("  resolution: NONE\n  ports: [{number: 80, name: http, protocol: HTTP}]\n  hosts:\n")
	for i := range hosts {
		fmt.Fprintf(&b, "  - %s-%d.%s\n", name, i, strings.Repeat(fmt.Sprintf("%x.%x.%x.", i%16, i/16%16, i/256%16), 38)+"evil")
	}
	return b.String()
}

// An object that is too large in any mesh waits without the facts of its hosts. Of another one that waits, each host
// has a few.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestHostsOfManyLabelsWait(t *testing.T) {
	d := budgetDesk(t, Budget{Own: 64, Exported: 8})
	w := func() *weights { return d.s.inventory.budgets.weights }
	d.step(Objects{put(t, manyLabels("huge", 2000)), synced})
	if len(w().offers) != 1 || len(w().readers) > 0 {
		t.Errorf("%d offers have read %d facts, want one and none", len(w().offers), len(w().readers))
	}
	const hosts = 100
	d.step(Objects{put(t, manyLabels("first", 500))})
	d.step(Objects{put(t, manyLabels("fits", 400))})
	d.step(Objects{put(t, manyLabels("waits", hosts))})
	reads := 0
	for _, o := range w().offers {
		reads += len(o.reads)
	}
	if len(w().offers) < 2 || reads > 12*hosts*len(w().offers) {
		t.Errorf("%d offers have read %d facts", len(w().offers), reads)
	}
	d.step(Objects{gone(put(t, manyLabels("huge", 1)))})
	if _, is := w().offers[put(t, manyLabels("huge", 1)).ID]; is {
		t.Error("the object is deleted, and waits")
	}
}
