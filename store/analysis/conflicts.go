package analysis

import (
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// mesh is the gateway that stands for sidecars.
const mesh = "mesh"

// older are the records that go before the examined one, at most maxCompared of them.
func (x *examination) older(f fact) []model.Record {
	all := x.with(f)
	at, _ := slices.BinarySearchFunc(all, x.record, func(a, b model.Record) int { return a.Meta().Older(b.Meta()) })
	return all[:min(at, maxCompared)]
}

// sharedHosts warns of hosts for which another VirtualService, which goes before this one, has http rules too, where some sidecars see both: one that is
// not for all namespaces before those that are, of these an older one (push/plan/host, precedes). Those of gateways are merged, and so are tcp and tls rules:
// which of them are hidden is reported where they are planned.
func sharedHosts(x *examination) {
	vs := x.record.(*model.VirtualService)
	if !rulesForMesh(vs) {
		return
	}
	for _, host := range vs.Spec.GetHosts() {
		all := x.with(fact{kind: meshRoute, name: host})
		for _, r := range all[:min(len(all), maxCompared)] {
			if other := r.(*model.VirtualService); precedes(other, vs) && overlap(other.Spec.GetExportTo(), vs.Spec.GetExportTo()) {
				x.found(problem.ConflictingMeshGatewayVirtualServiceHosts, problem.Duplicate, "spec.hosts",
					"host %q is claimed by %v too, whose http rules win for sidecars that see both", host, other.Key)
				break
			}
		}
	}
}

func precedes(a, b *model.VirtualService) bool {
	if all, others := forAll(a), forAll(b); all != others {
		return !all
	}
	return a.Older(&b.Head) < 0
}

// forAll says whether a VirtualService is exported to all namespaces.
func forAll(vs *model.VirtualService) bool {
	to := vs.Spec.GetExportTo()
	return len(to) == 0 || slices.Contains(to, "*")
}

// rulesForMesh says whether a VirtualService has http rules for the mesh's sidecars.
func rulesForMesh(vs *model.VirtualService) bool {
	return slices.Contains(vs.Spec.GetGateways(), mesh) && len(vs.Spec.GetHttp()) > 0
}

// ruledHost warns of a rule whose host has an older one in its namespace that some proxies see, too. One with a workloadSelector may stand beside a general one,
// and rules for other namespaces beside one another.
func ruledHost(x *examination) {
	rule := x.record.(*model.DestinationRule)
	if rule.Spec.GetWorkloadSelector() != nil {
		return
	}
	for _, r := range x.older(fact{kind: ownRule, namespace: rule.Key.Namespace, name: rule.Spec.GetHost()}) {
		switch older := r.(*model.DestinationRule); {
		case model.Merges(older, rule):
			x.found("", problem.Duplicate, "spec.host", "host %q has the older %v too: its trafficPolicy and its subsets of the same name win", rule.Spec.GetHost(), older.Key)
			return
		case overlap(older.Spec.GetExportTo(), rule.Spec.GetExportTo()):
			x.found("", problem.Duplicate, "spec.host", "host %q has the older %v too, with another exportTo: proxies that see both have nothing of that", rule.Spec.GetHost(), older.Key)
			return
		}
	}
}

// overlap says whether two exportTo lists have a namespace in common.
func overlap(a, b []string) bool {
	for _, x := range a {
		for _, y := range b {
			if x != "~" && y != "~" && (x == "*" || y == "*" || x == y) {
				return true
			}
		}
	}
	return false
}

// single says how records of a kind are told of which one counts where several are for a workload: the oldest.
type single struct {
	field          string // that has the selector
	several, twice problem.Analyzer
}

var singles = map[model.Kind]single{
	model.KindSidecar:            {"spec.workloadSelector", problem.MultipleSidecarsWithoutWorkloadSelectors, problem.ConflictingSidecarWorkloadSelectors},
	model.KindTelemetry:          {"spec.selector", problem.MultipleTelemetriesWithoutWorkloadSelectors, problem.ConflictingTelemetryWorkloadSelectors},
	model.KindPeerAuthentication: {"spec.selector", "", ""},
}

// general warns of a record for all workloads of its namespace where an older one is, too.
func general(x *examination) {
	key := x.record.Meta().Key
	if s, applies := selectorOf(x.record, ""); !applies || len(s.labels) > 0 {
		return
	}
	if older := x.older(fact{kind: withoutSelector, of: key.Kind, namespace: key.Namespace}); len(older) > 0 {
		of := singles[key.Kind]
		x.found(of.several, problem.Duplicate, of.field, "the older %v is for all workloads of the namespace too: it counts, and this one does not", older[0].Meta().Key)
	}
}

// overlapping warns of a record that selects workloads which an older one selects, too.
func overlapping(x *examination) {
	key := x.record.Meta().Key
	own, applies := selectorOf(x.record, "")
	if !applies || len(own.labels) == 0 {
		return
	}
	of := singles[key.Kind]
	for _, r := range x.older(fact{kind: withSelector, of: key.Kind, namespace: key.Namespace}) {
		other, _ := selectorOf(r, "")
		both, ok := union(own.labels, other.labels)
		if ok && x.watch(key.Namespace, both).count > 0 {
			x.found(of.twice, problem.Duplicate, own.field, "the older %v selects workloads with the labels %s too: of these it counts, and this one does not", r.Meta().Key, text(both))
		}
	}
}

// internalGateway is in the names of Gateways that istiod makes for itself of those of the Gateway API
// (https://istio.io/latest/docs/reference/config/analysis/ist0165/).
const internalGateway = "istio-autogenerated-k8s-gateway"

// unknownGateways warns of Gateways that are not there, and of hosts that a Gateway has no server for.
func unknownGateways(x *examination) {
	vs := x.record.(*model.VirtualService)
	for _, name := range vs.Spec.GetGateways() {
		namespace, short, qualified := strings.Cut(name, "/")
		if !qualified { // mesh
			continue
		}
		found := x.with(fact{kind: gatewayOfName, namespace: namespace, name: short})
		if len(found) == 0 {
			if strings.Contains(name, internalGateway) {
				x.found(problem.ReferencedInternalGateway, problem.NotFound, "spec.gateways", "Gateway %s is one of istiod's own, of a Gateway of the Gateway API", name)
			} else {
				x.found(problem.ReferencedResourceNotFound, problem.NotFound, "spec.gateways", "Gateway %s is not there", name)
			}
			continue
		}
		servers := found[0].(*model.Gateway).Spec.GetServers()
		for _, host := range vs.Spec.GetHosts() {
			if !slices.ContainsFunc(servers, func(s *networkingv1.Server) bool { return serves(s, namespace, vs.Key.Namespace, host) }) {
				x.found(problem.VirtualServiceHostNotFoundInGateway, problem.NotFound, "spec.hosts", "no server of Gateway %s has host %q for namespace %s", name, host, vs.Key.Namespace)
			}
		}
	}
}

// serves says whether a server of a Gateway is for a host of a VirtualService, or for some of what its wildcard stands for
// (https://istio.io/latest/docs/reference/config/networking/gateway/#Server, hosts).
func serves(s *networkingv1.Server, own, namespace, host string) bool {
	return slices.ContainsFunc(s.GetHosts(), func(text string) bool {
		to, name, has := strings.Cut(text, "/")
		switch {
		case !has:
			name = text
		case to == ".":
			to = own
		}
		if has && to != "*" && to != namespace {
			return false
		}
		name = strings.ToLower(name)
		return name == host || model.Covers(name, host) || model.Covers(host, name)
	})
}
