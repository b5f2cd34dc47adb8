package analysis

import (
	"slices"
	"strings"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// targetsOf returns the names of the Gateways of the Gateway API that a record names as its targets (targetRefs).
func targetsOf(r model.Record) []string {
	switch t := r.(type) {
	case *model.Policy:
		return t.Spec.GetGateways()
	case *model.Telemetry:
		return model.TargetGateways(t.Spec.GetTargetRefs())
	case *model.EnvoyFilter:
		return model.TargetGateways(t.Spec.GetTargetRefs())
	case *model.TrafficExtension:
		return model.TargetGateways(t.Spec.GetTargetRefs())
	}
	return nil
}

// untargeted warns of targets without a workload: Gateways of the Gateway API, whose Pods have the label
// model.GatewayName. If no workload is known at all, there is no warning, as in unselected. Only the first maxCompared
// targets are examined.
func untargeted(x *examination) {
	key := x.record.Meta().Key
	names := targetsOf(x.record)
	missing := slices.DeleteFunc(slices.Clone(names[:min(len(names), maxCompared)]), func(name string) bool {
		return x.watch(key.Namespace, map[string]string{model.GatewayName: name}).count > 0
	})
	if closed, is := x.record.(*model.Policy); len(missing) == 0 || x.of.watches.total == 0 || is && closed.Spec.GetClosed() {
		return
	}
	x.found(problem.NoMatchingWorkloadsFound, problem.NoEffect, "spec.targetRefs", "no workload of namespace %s belongs to Gateway %s of the "+
		"Gateway API, which is not served: nothing is selected there; select the Pods of an Istio Gateway by a selector of their labels",
		key.Namespace, strings.Join(missing, ", "))
}
