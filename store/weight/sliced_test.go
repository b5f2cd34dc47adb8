package weight

import (
	"fmt"
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// sliceOf returns an EndpointSlice of n endpoints and two ports of the host of serviceOf "e".
func sliceOf(t testing.TB, name string, n int) model.Record {
	spec := &model.EndpointsSpec{Hosts: []string{"h0.e.example.com"}, Ports: []*model.EndpointPort{{}, {}}}
	for range n {
		spec.Endpoints = append(spec.Endpoints, &model.Endpoint{})
	}
	return record(t, model.KindEndpoints, name, spec)
}

// The endpoints of EndpointSlices count in the weights of their service, and for each subset in those of
// DestinationRules. The first endpoints of a host are free. A replica counts them with the EndpointSlices, so that they
// also count if they come last.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestOfEndpointSlices(t *testing.T) {
	const sliced, subsets, points = 20, 20, 20 * 1000 * 2
	var all []model.Record
	for i := range sliced {
		all = append(all, sliceOf(t, fmt.Sprint("e-", i), 1000))
	}
	service := serviceOf(t, "e", 1, 2, "*")
	rule := record(t, model.KindDestinationRule, "d", &networkingv1.DestinationRule{Host: "h0.e.example.com", Subsets: make20()})
	about := func(what string, got, want int) {
		if got < want*9/10 || got > want*5/4+500 {
			t.Errorf("%s: %d KiB, want about %d", what, got, want)
		}
	}
	x := NewIndex()
	x.Replace(nil, []model.Record{service, sliceOf(t, "few", freeSliced/2)})
	about("a few endpoints, service", Of(service, x).Exported, 2*cluster)
	about("a few endpoints, rule", Of(rule, x).Exported, 2*subsets*subset)
	x.Replace(nil, all)
	about("service", Of(service, x).Exported, points/perEndpoint)
	about("rule", Of(rule, x).Exported, subsets*points/perEndpoint)
	if w := Of(all[0], x); w != (Weight{}) {
		t.Errorf("an EndpointSlice weighs %v beside its service", w)
	}

	for what, records := range map[string][]model.Record{
		"the rule first":   append([]model.Record{service, rule}, all...),
		"the slices first": append(append([]model.Record{service}, all...), rule),
	} {
		x, sum := NewTogether(), 0
		for _, r := range records {
			sum += Of(r, x).Exported
			x.Replace(nil, []model.Record{r})
		}
		about("a replica, "+what, sum, (1+subsets)*points/perEndpoint)
	}
}

// Pods that come and go change weights rarely: after steps of the number, not with each endpoint. Afterwards nothing is
// left.
func TestSlicesChangeInSteps(t *testing.T) {
	x, changes := NewIndex(), 0
	x.Changed = func(r Read) {
		if r.host == "h0.e.example.com" {
			changes++
		}
	}
	var was []model.Record
	replace := func(n int) {
		now := []model.Record{sliceOf(t, "e", n)}
		x.Replace(was, now)
		was = now
	}
	for n := range 2000 {
		replace(n)
		if n%100 == 99 { // an endpoint is not ready, and ready again
			replace(n)
		}
	}
	if changes > 40 {
		t.Errorf("%d changes for 2,000 endpoints", changes)
	}
	changes = 0
	if replace(1999); changes > 0 {
		t.Errorf("%d changes for an equal number", changes)
	}
	x.Replace(was, nil)
	if n := len(x.sliced) + len(x.points) + len(x.endpoints); n > 0 {
		t.Errorf("%d entries are left of nothing", n)
	}
}
