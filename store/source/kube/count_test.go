package kube

import (
	"testing"

	dto "github.com/prometheus/client_model/go"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
)

// Each change of an object that is emitted is counted as what became of the object, by istiod's words; what is as it was, and what istiod counts nowhere, is not.
func TestEventsAreCounted(t *testing.T) {
	count := func(kind, event string) float64 {
		var m dto.Metric
		if err := obs.KubeRegistryEvents.WithLabelValues(kind, event).Write(&m); err != nil {
			t.Fatal(err)
		}
		return m.GetCounter().GetValue()
	}
	events := []string{"add", "update", "delete"}
	var before [3]float64
	for i, e := range events {
		before[i] = count("Services", e)
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
	for i, want := range []float64{3, 2, 1} {
		if got := count("Services", events[i]) - before[i]; got != want {
			t.Errorf("%v events %q are counted, want %v", got, events[i], want)
		}
	}

	countEvent(object.ID{Group: "networking.istio.io", Kind: "VirtualService"}, "add")
	countEvent(object.ID{Kind: "ConfigMap"}, "add")
	countEvent(object.ID{Group: "discovery.k8s.io", Kind: "EndpointSlice"}, "add")
	var m dto.Metric
	if err := obs.KubeConfigEvents.WithLabelValues("VirtualService", "add").Write(&m); err != nil || m.GetCounter().GetValue() != 1 {
		t.Errorf("a VirtualService is counted as %v, %v", m.GetCounter().GetValue(), err)
	}
	if count("ConfigMap", "add") != 0 || count("EndpointSlice", "add") != 1 {
		t.Errorf("%v ConfigMaps and %v EndpointSlices are counted", count("ConfigMap", "add"), count("EndpointSlice", "add"))
	}
}
