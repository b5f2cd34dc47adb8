package analysis

import (
	"slices"
	"strings"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// hiddenRoutes warns of a VirtualService that names a Gateway, if exportTo hides it from all workloads that the Gateway
// selects. If the Gateway selects no workload, it has a warning itself. Only the first maxCompared Gateways of a
// VirtualService are compared, and only lists of exportTo with at most maxCompared namespaces.
func hiddenRoutes(x *examination) {
	vs := x.record.(*model.VirtualService)
	to := vs.Spec.GetExportTo()
	if forAll(vs) || len(to) > maxCompared {
		return
	}
	gateways := vs.Spec.GetGateways()
	for _, name := range gateways[:min(len(gateways), maxCompared)] {
		namespace, short, qualified := strings.Cut(name, "/")
		if !qualified { // mesh
			continue
		}
		found := x.with(fact{kind: gatewayOfName, namespace: namespace, name: short})
		if len(found) == 0 {
			continue
		}
		labels := found[0].(*model.Gateway).Spec.GetSelector()
		selects := func(in string) bool { return x.watch(in, labels).count > 0 }
		at, reached := "", selects // in any namespace
		if x.of.settings.OwnGateways {
			at, reached = namespace, func(in string) bool { return in == namespace }
		}
		if selects(at) && !slices.ContainsFunc(to, reached) {
			x.found("", problem.NoEffect, "spec.exportTo", "no workload that Gateway %s selects is in a namespace of exportTo (%s): the "+
				"rules do not apply to this Gateway; add the namespace of the gateway's Pods", name, strings.Join(to, ", "))
		}
	}
}
