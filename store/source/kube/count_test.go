package kube

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
)

// Each emitted change of an object is counted with istiod's labels. Unchanged objects, and kinds that istiod does not
// count, are not.
func TestEventsAreCounted(t *testing.T) {
	type row struct {
		of          *prometheus.CounterVec
		kind, event string
	}
	want := map[row]float64{
		{obs.KubeRegistryEvents, "Services", "add"}: 3, {obs.KubeRegistryEvents, "Services", "update"}: 2, {obs.KubeRegistryEvents, "Services", "delete"}: 1,
		{obs.KubeConfigEvents, "VirtualService", "add"}: 1, {obs.KubeRegistryEvents, "EndpointSlice", "delete"}: 1,
		{obs.KubeRegistryEvents, "ConfigMap", "add"}: 0, {obs.KubeConfigEvents, "ConfigMap", "add"}: 0, {obs.KubeConfigEvents, "Service", "add"}: 0,
	}
	count := func(r row) float64 {
		var m dto.Metric
		if err := r.of.WithLabelValues(r.kind, r.event).Write(&m); err != nil {
			t.Fatal(err)
		}
		return m.GetCounter().GetValue()
	}
	before := map[row]float64{}
	for r := range want {
		before[r] = count(r)
	}
	d := newDesk(t)
	d.list("Service", service("a", "1"), service("b", "1"), service("c", "1"))
	d.emitted()
	d.put("Service", service("b", "2"))
	d.emitted()
	d.put("Service", service("b", "2"), service("a", "2"))
	d.emitted()
	d.list("Service", service("a", "2"), service("b", "2"))
	d.emitted()
	countEvent(object.ID{Group: "networking.istio.io", Kind: "VirtualService"}, "add")
	countEvent(object.ID{Group: "discovery.k8s.io", Kind: "EndpointSlice"}, "delete")
	countEvent(object.ID{Kind: "ConfigMap"}, "add")
	for r, n := range want {
		if got := count(r) - before[r]; got != n {
			t.Errorf("%v %s of %s are counted, want %v", got, r.event, r.kind, n)
		}
	}
}
