package analysis

import (
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// mesh is the name in a VirtualService's list of gateways that stands for sidecars.
const mesh = "mesh"

// older returns the records that have the fact f and are older than the examined record. It returns only the
// maxCompared oldest of them.
func (x *examination) older(f fact) []model.Record {
	all := x.with(f)
	at, _ := slices.BinarySearchFunc(all, x.record, func(a, b model.Record) int { return a.Meta().Older(b.Meta()) })
	return all[:min(at, maxCompared)]
}

// sharedHosts warns of a host of a VirtualService if another VirtualService with this host has precedence in some
// namespace (precedes). For sidecars of that namespace, the http rules of the examined VirtualService have no effect.
// sharedHosts does not examine VirtualServices for gateways, nor tcp and tls rules, because these are merged.
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
					"host %q is claimed by %v too, whose http rules win for sidecars that see both", host, model.OtherOf(other))
				break
			}
		}
	}
}

// precedes reports whether a has precedence over b for a host, in a namespace to which both are exported. A
// VirtualService with a restricted exportTo precedes one that is exported to all namespaces. If both have the same kind
// of exportTo, the older one precedes.
func precedes(a, b *model.VirtualService) bool {
	if all, others := forAll(a), forAll(b); all != others {
		return !all
	}
	return a.Older(&b.Head) < 0
}

// forAll reports whether a VirtualService is exported to all namespaces.
func forAll(vs *model.VirtualService) bool {
	to := vs.Spec.GetExportTo()
	return len(to) == 0 || slices.Contains(to, "*")
}

// rulesForMesh reports whether a VirtualService has http rules for sidecars.
func rulesForMesh(vs *model.VirtualService) bool {
	return slices.Contains(vs.Spec.GetGateways(), mesh) && len(vs.Spec.GetHttp()) > 0
}

// ruledHost warns of a DestinationRule if an older rule of its namespace has the same host, and there is a namespace to
// which both are exported. Rules with a workloadSelector are not compared.
func ruledHost(x *examination) {
	rule := x.record.(*model.DestinationRule)
	if rule.Spec.GetWorkloadSelector() != nil {
		return
	}
	for _, r := range x.older(fact{kind: ownRule, namespace: rule.Key.Namespace, name: rule.Spec.GetHost()}) {
		switch older := r.(*model.DestinationRule); {
		case model.Merges(older, rule):
			x.found("", problem.Duplicate, "spec.host", "host %q has the older %v too: its trafficPolicy and its subsets of the same name win",
				rule.Spec.GetHost(), older.Key)
			return
		case overlap(older.Spec.GetExportTo(), rule.Spec.GetExportTo()):
			x.found("", problem.Duplicate, "spec.host", "host %q has the older %v too, with another exportTo: "+
				"proxies that see both ignore the older one", rule.Spec.GetHost(), older.Key)
			return
		}
	}
}

// single describes the findings about a kind of records. Of several records of the kind that apply to one workload,
// only the oldest has an effect.
type single struct {
	field   string           // path of the selector
	several problem.Analyzer // analyzer of the findings about records without a selector
	twice   problem.Analyzer // analyzer of the findings about records that select the same workload
}

// singles lists the kinds of which only one record for each workload has an effect.
var singles = map[model.Kind]single{
	model.KindSidecar: {"spec.workloadSelector",
		problem.MultipleSidecarsWithoutWorkloadSelectors, problem.ConflictingSidecarWorkloadSelectors},
	model.KindTelemetry: {"spec.selector",
		problem.MultipleTelemetriesWithoutWorkloadSelectors, problem.ConflictingTelemetryWorkloadSelectors},
	model.KindPeerAuthentication: {"spec.selector", "", ""},
}

// general warns of a record without a selector if its namespace has an older record of the same kind without a
// selector.
func general(x *examination) {
	key := x.record.Meta().Key
	if s, applies := selectorOf(x.record, ""); !applies || len(s.labels) > 0 {
		return
	}
	if older := x.older(fact{kind: withoutSelector, of: key.Kind, namespace: key.Namespace}); len(older) > 0 {
		of := singles[key.Kind]
		x.found(of.several, problem.Duplicate, of.field,
			"the older %v is for all workloads of the namespace too: it counts, and this one does not", older[0].Meta().Key)
	}
}

// overlapping warns of a record with a selector if a workload exists that this record and an older record of its kind
// select.
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
			x.found(of.twice, problem.Duplicate, own.field,
				"the older %v selects workloads with the labels %s too: of these it counts, and this one does not",
				r.Meta().Key, text(both))
		}
	}
}

// internalGateway is part of the names of Gateways that istiod derives from Gateways of the Gateway API
// (https://istio.io/latest/docs/reference/config/analysis/ist0165/).
const internalGateway = "istio-autogenerated-k8s-gateway"

// unknownGateways warns of missing Gateways, and of hosts of a VirtualService that no server of its Gateway has.
func unknownGateways(x *examination) {
	vs := x.record.(*model.VirtualService)
	for _, name := range vs.Spec.GetGateways() {
		namespace, short, qualified := strings.Cut(name, "/")
		if !qualified { // the name is "mesh"
			continue
		}
		found := x.with(fact{kind: gatewayOfName, namespace: namespace, name: short})
		if len(found) == 0 {
			if strings.Contains(name, internalGateway) {
				x.found(problem.ReferencedInternalGateway, problem.NotFound, "spec.gateways",
					"Gateway %s is one of istiod's own, of a Gateway of the Gateway API", name)
			} else {
				hint := ""
				if namespace == vs.Key.Namespace {
					hint = "; a name without a namespace means the VirtualService's own namespace"
				}
				x.found(problem.ReferencedResourceNotFound, problem.NotFound, "spec.gateways", "Gateway %s does not exist or is invalid%s", name, hint)
			}
			continue
		}
		x.unservedHosts(vs, name, namespace, found[0].(*model.Gateway).Spec.GetServers())
	}
}

// unservedHosts warns of hosts of a VirtualService that no server of a Gateway has. If the VirtualService also applies
// to sidecars, and the Gateway has at least one of its hosts, there is no warning, because the other hosts may be for
// sidecars.
func (x *examination) unservedHosts(vs *model.VirtualService, name, namespace string, servers []*networkingv1.Server) {
	served := servedBy(servers, namespace, vs.Key.Namespace)
	var unserved []string
	for _, host := range vs.Spec.GetHosts() {
		if !served.has(host) {
			unserved = append(unserved, host)
		}
	}
	if slices.Contains(vs.Spec.GetGateways(), mesh) && len(unserved) < len(vs.Spec.GetHosts()) {
		return
	}
	for _, host := range unserved {
		x.found(problem.VirtualServiceHostNotFoundInGateway, problem.NotFound, "spec.hosts",
			"no server of Gateway %s has host %q for namespace %s", name, host, vs.Key.Namespace)
	}
}
