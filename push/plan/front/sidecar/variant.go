package sidecar

import (
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/intern"
)

// Variant implements front.Front. For proxies with certain inputs, route configurations and listeners differ if a rule
// reads the inputs, or if the rules of a host or of one of its destinations do; listeners also differ for the reasons
// of variedListeners. A step changes these only for its own hosts: if the rules of a destination change, the table of
// effects in push/plan adds the hosts that are routed to it to the step.
func (f *Front) Variant(v *host.Variation, first bool, yield func()) {
	if !first && !f.reports.again && !f.stepped() {
		return
	}
	rerouted := v.ReroutedHosts()
	f.routes.Vary(v, f.virtualHostIDs(rerouted), first, yield)
	f.variedListeners(v, rerouted).plan(first || f.reports.again, yield)
}

// virtualHostIDs lists the ids of the virtual hosts of some hosts, by the name of the route configuration.
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

// labelsRead returns the labels among the inputs whose keys are in keys.
func labelsRead(inputs view.Inputs, keys intern.List[string]) intern.List[string] {
	return view.Reads{Labels: keys}.Of(inputs).Labels
}
