package sidecar

import (
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/intern"
)

// Variant implements front.Front. It plans the listeners and route configurations that differ for the proxies of a
// variation (proxies with certain inputs, such as labels). It stores them in the variation's layer. If first is false,
// it plans only the resources that the step has changed. But if the step has decided telemetry again, it plans all
// listeners that may differ. Variant is called after Finish.
//
// A route configuration or listener may differ if a rule of a VirtualService reads the variation's inputs. It may also
// differ if a DestinationRule of a host or of the host's destinations reads these inputs. Listeners may differ for
// further reasons (variedListeners).
//
// A step changes the differences only for its own hosts. If the DestinationRules of a destination change, push/plan
// adds the hosts with routes to this destination to the step.
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

// labelsRead returns the labels of the inputs that have one of the given keys.
func labelsRead(inputs view.Inputs, keys intern.List[string]) intern.List[string] {
	return view.Reads{Labels: keys}.Of(inputs).Labels
}
