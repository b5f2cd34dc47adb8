package sidecar

import (
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/intern"
)

// Variant implements front.Front. Proxies with certain inputs have other route configurations and listeners, if a
// rule reads the inputs, or if the rules of a host, or of a destination that it is routed to, are others; listeners
// differ for further reasons (variedListeners). A step changes that at hosts of the step alone: if the rules of a
// destination change, the hosts that are routed to it belong to the step (the table of effects in push/plan).
func (f *Front) Variant(v *host.Variation, first bool, rest func()) {
	if !first && !f.reports.again && !f.stepped() {
		return
	}
	reached := v.Reached()
	f.routes.Vary(v, f.virtualHostIDs(reached), first, rest)
	f.variedListeners(v, reached).plan(first || f.reports.again, rest)
}

// virtualHostIDs lists the ids of the virtual hosts of some hosts, by the name of the route configuration.
func (f *Front) virtualHostIDs(hosts map[string]bool) map[string][]string {
	out := map[string][]string{}
	for name := range hosts {
		for _, key := range f.contributionOf(name).routes {
			in := key.config().Name
			out[in] = append(out[in], key.id(name))
		}
	}
	return out
}

// labelsRead are the labels whose keys are read.
func labelsRead(inputs view.Inputs, keys intern.List[string]) intern.List[string] {
	return view.Reads{Labels: keys}.Of(inputs).Labels
}
