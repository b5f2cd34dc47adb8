package sidecar

import (
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/intern"
)

// Variant implements front.Front. It plans the listeners and route configurations that differ for the proxies of a
// variation, and stores them in the variation's layer. If first is true, it plans all of these resources, otherwise
// only those that the step has changed. If the step has decided telemetry again, it plans all of these listeners. It is
// called after Finish.
//
// A route configuration or listener differs if a rule of a VirtualService reads the variation's inputs, or if a
// DestinationRule of a host or of its destinations does. Listeners may differ for further reasons (variedListeners).
//
// A step changes the differences only for its own hosts. If the DestinationRules of a destination change, the table of
// effects in push/plan adds the hosts with routes to the destination to the step.
func (f *Front) Variant(v *host.Variation, first bool, yield func()) {
	if !first && !f.reports.again && !f.stepped() {
		return
	}
	rerouted := v.ReroutedHosts()
	f.routes.Vary(v, f.virtualHostIDs(rerouted), first, yield)
	f.variedListeners(v, rerouted).plan(first || f.reports.again, yield)
}

// virtualHostIDs maps the names of route configurations to the ids of the virtual hosts of some hosts.
func (f *Front) virtualHostIDs(hosts map[string]bool) map[string][]string {
	out := map[string][]string{}
	for name := range hosts {
		for _, key := range f.entriesOf(name).routes {
			in := key.config().Name
			out[in] = append(out[in], key.id(name))
		}
	}
	return out
}

// labelsRead returns those labels of the inputs that have one of the given keys.
func labelsRead(inputs view.Inputs, keys intern.List[string]) intern.List[string] {
	return view.Reads{Labels: keys}.Of(inputs).Labels
}
