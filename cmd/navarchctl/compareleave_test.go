package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"navarch.io/navarch/cmd/navarchctl/dump"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/store/mirror"
)

// A compared proxy leaves the planner, so that the workloads of a mesh do not add up. A dump of several proxies is
// refused, and leaves no proxy behind.
func TestComparedProxiesLeave(t *testing.T) {
	const bootstrap = `{"@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump", "bootstrap": {"node": ` +
		`{"id": "sidecar~10.1.1.1~web.shop~shop.svc.cluster.local", "metadata": {"NAMESPACE": "shop"}}}}`
	for configs, refused := range map[string]bool{bootstrap: false, bootstrap + ", " + bootstrap: true} {
		c := &comparing{planner: plan.New(plan.Settings{Snapshot: mirror.Empty()})}
		err := c.dump(t.Context(), "dump", dump.NewStream(strings.NewReader(`{"configs": [`+configs+`]}`)))
		if got := err != nil && !errors.Is(err, io.EOF) && strings.Contains(err.Error(), "more than one node"); got != refused {
			t.Errorf("%d bytes: %v, refused: want %v", len(configs), err, refused)
		}
		if n := len(c.planner.Handles()); n != 0 {
			t.Errorf("%d proxies are in the planner", n)
		}
	}
}
