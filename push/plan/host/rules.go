package host

import (
	"maps"
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// Rules are the DestinationRules of one host that hold for proxies with certain inputs, merged.
type Rules struct {
	Main    *model.DestinationRule // gives the traffic policy; nil: none applies
	subsets []subset
	places  map[string]int // of subsets, by name; nil: few are searched as fast
}

// From manySubsets subsets on, Rules have an index by name.
const manySubsets = 16

// subset is one subset, and the rule that defines it.
type subset struct {
	*networkingv1.Subset
	rule  *model.DestinationRule
	index int // in that rule
}

func (r Rules) equal(o Rules) bool { return r.Main == o.Main && slices.Equal(r.subsets, o.subsets) }

func (r Rules) subset(name string) (subset, bool) {
	i, is := r.places[name]
	if r.places == nil {
		i = slices.IndexFunc(r.subsets, func(s subset) bool { return s.GetName() == name })
		is = i >= 0
	}
	if !is {
		return subset{}, false
	}
	return r.subsets[i], true
}

// add adds a subset, unless there is one of its name.
func (r *Rules) add(s subset) {
	if _, dup := r.subset(s.GetName()); dup || s.GetName() == "" {
		return
	}
	if r.subsets = append(r.subsets, s); len(r.subsets) == manySubsets {
		r.places = map[string]int{}
		for i, s := range r.subsets {
			r.places[s.GetName()] = i
		}
	} else if r.places != nil {
		r.places[s.GetName()] = len(r.subsets) - 1
	}
}

// rulesFor looks for rules in the client's namespace, the service's, the root namespace (rulesSeen): the first that has one for the
// host, or for the longest wildcard, decides
// (https://istio.io/latest/docs/ops/best-practices/traffic-management/#cross-namespace-configuration). Rules with a workloadSelector
// are for proxies of their own namespace: one that selects the proxy goes before those without, and one that does not select it hides
// rules of other namespaces and of wider wildcards all the same, as with Istio's control plane (measured). It returns the label keys
// that selectors compare.
func (t *Table) rulesFor(host string, svc *model.Service, inputs view.Inputs) (rules Rules, reads []string) {
	return selected(rulesSeen(t.in, t.key.Namespace, host, svc), inputs)
}

// Inbound are the rules of a host of a service for the workloads of a namespace that serve it: of those without a workloadSelector, which is for
// clients alone. Nothing but the connection pool of their policy is for servers
// (istio: pilot/pkg/model/sidecar.go, DestinationRule).
func Inbound(in *input.Input, namespace, host string, svc *model.Service) Rules {
	general := slices.DeleteFunc(rulesSeen(in, namespace, host, svc), func(r *model.DestinationRule) bool { return r.Spec.GetWorkloadSelector() != nil })
	if len(general) == 0 {
		return Rules{}
	}
	return merge(last(general))
}

// rulesSeen are the rules of the first namespace that has one for a host: the client's, the service's, the root namespace. Those of the root namespace
// are mostly for everybody: for its own proxies, too, they come last, but for those that are for it alone. A namespace sees of its own rules, too, what is
// exported to it. In another namespace the rules for the host, or for the longest wildcard, that are exported to anybody decide, also where the client does not see
// them: they hide those of wider wildcards that it would see (istio: pilot/pkg/model/push_context.go, setDestinationRules, destinationRule and
// getExportedDestinationRuleFromNamespace).
func rulesSeen(in *input.Input, client, host string, svc *model.Service) []*model.DestinationRule {
	reaches := func(rule *model.DestinationRule) bool {
		return exported(audience(in, rule), nil, rule.Key.Namespace, client)
	}
	private := func(rule *model.DestinationRule) bool {
		to := audience(in, rule)
		return len(to) == 1 && (to[0] == "." || to[0] == rule.Key.Namespace)
	}
	own := reaches
	if client == in.Root() {
		own = private
	}
	if found := rulesIn(in, client, host, own); len(found) > 0 {
		return found
	}
	for _, namespace := range slices.Compact([]string{svc.Key.Namespace, in.Root()}) {
		if namespace == client && client != in.Root() {
			continue // all of its rules have been looked at
		}
		found := rulesIn(in, namespace, host, func(rule *model.DestinationRule) bool { return !private(rule) })
		if found = slices.DeleteFunc(found, func(rule *model.DestinationRule) bool { return !reaches(rule) }); len(found) > 0 {
			return found
		}
	}
	return nil
}

// audience is the exportTo of a rule, or the mesh's default. One with a workloadSelector is for its namespace alone.
func audience(in *input.Input, rule *model.DestinationRule) []string {
	if rule.Spec.GetWorkloadSelector() != nil {
		return []string{"."}
	}
	if to := rule.Spec.GetExportTo(); len(to) > 0 {
		return to
	}
	return in.Mesh.Spec.GetDefaultDestinationRuleExportTo()
}

// selected merges those of the rules of one host and namespace that hold for a proxy.
func selected(found []*model.DestinationRule, inputs view.Inputs) (rules Rules, reads []string) {
	if len(found) == 0 {
		return Rules{}, nil
	}
	var general, selecting []*model.DestinationRule
	for _, rule := range found {
		if rule.Spec.GetWorkloadSelector() == nil {
			general = append(general, rule)
			continue
		}
		selecting = append(selecting, rule)
		for key := range rule.Spec.GetWorkloadSelector().GetMatchLabels() {
			reads = append(reads, key)
		}
	}
	slices.SortFunc(selecting, func(a, b *model.DestinationRule) int { return a.Older(&b.Head) })
	i := slices.IndexFunc(selecting, func(r *model.DestinationRule) bool {
		return inputs.Match(r.Spec.GetWorkloadSelector().GetMatchLabels())
	})
	if i >= 0 {
		labels := selecting[i].Spec.GetWorkloadSelector().GetMatchLabels()
		general = slices.DeleteFunc(selecting, func(r *model.DestinationRule) bool {
			return !maps.Equal(r.Spec.GetWorkloadSelector().GetMatchLabels(), labels)
		})
	}
	if len(general) == 0 {
		return Rules{}, reads
	}
	return merge(last(general)), reads
}

// last are those of the rules of one host and namespace, none of which has a workloadSelector, that count together for a client that sees them all: of the
// groups of rules that are merged (model.Merges) that which begins with the youngest rule, as with Istio's control plane
// (istio: pilot/pkg/model/sidecar.go, DestinationRule). It sorts what it is given.
func last(general []*model.DestinationRule) []*model.DestinationRule {
	slices.SortFunc(general, func(a, b *model.DestinationRule) int { return a.Older(&b.Head) })
	var groups [][]*model.DestinationRule
	for _, rule := range general {
		merged := false
		for i, group := range groups {
			if model.Merges(group[0], rule) {
				groups[i], merged = append(group, rule), true
			}
		}
		if !merged {
			groups = append(groups, []*model.DestinationRule{rule})
		}
	}
	return groups[len(groups)-1]
}

// rulesIn are those of a namespace's rules that count, for a host, or for the longest wildcard that covers it and has one.
func rulesIn(in *input.Input, namespace, host string, counts func(*model.DestinationRule) bool) (found []*model.DestinationRule) {
	in.Index.Covering(model.KindDestinationRule, host, func(pattern string) bool {
		for r := range in.ByHost(model.KindDestinationRule, pattern) {
			if rule := r.(*model.DestinationRule); rule.Key.Namespace == namespace && counts(rule) {
				found = append(found, rule)
			}
		}
		return len(found) == 0
	})
	return found
}

// merge: the oldest traffic policy counts, and of subsets of one name the oldest.
func merge(found []*model.DestinationRule) Rules {
	slices.SortFunc(found, func(a, b *model.DestinationRule) int { return a.Older(&b.Head) })
	r := Rules{Main: found[0]}
	for _, rule := range found {
		if r.Main.Spec.GetTrafficPolicy() == nil && rule.Spec.GetTrafficPolicy() != nil {
			r.Main = rule
		}
		for i, sub := range rule.Spec.GetSubsets() {
			r.add(subset{sub, rule, i})
		}
	}
	return r
}

// Policy is the traffic policy that the rules have for a subset, or for the whole host where that is empty, at a port.
func (r Rules) Policy(subsetName string, port uint32) traffic.Policy {
	sub, _ := r.subset(subsetName)
	return traffic.Effective(r.Main, sub.rule, sub.index, port)
}

// Policy is the traffic policy of clients for a host with rules: theirs, over the mesh's defaults.
func (t *Table) Policy(of Rules, subset string, port uint32) traffic.Policy {
	return of.Policy(subset, port).Over(t.in.Meshes.Cluster)
}

// at is the rule that a part of the policy of a subset stands in; nil: in none of these.
func (r Rules) at(subset string, place model.Place) *model.DestinationRule {
	sub, _ := r.subset(subset)
	for _, rule := range []*model.DestinationRule{sub.rule, r.Main} {
		if rule != nil && rule.Key == place.Key {
			return rule
		}
	}
	return nil
}

// Of is the rule that the policy of a subset comes from: the one that defines it, where it says something, else the host's.
func (r Rules) Of(subsetName string) *model.DestinationRule {
	if sub, ok := r.subset(subsetName); ok && sub.GetTrafficPolicy() != nil {
		return sub.rule
	}
	return r.Main
}
