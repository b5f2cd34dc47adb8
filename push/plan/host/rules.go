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

// Rules contains the merged DestinationRules of one host, for proxies of one namespace with the same inputs (properties
// such as labels). The zero Rules has no rule.
type Rules struct {
	Main    *model.DestinationRule // the oldest rule with a traffic policy, or else the oldest rule; nil if no rule applies
	subsets []subset
	places  map[string]int // index in subsets by name; nil for fewer than manySubsets subsets
}

// manySubsets is the number of subsets from which on Rules has an index by name.
const manySubsets = 16

// subset is one subset, with the rule that defines it.
type subset struct {
	*networkingv1.Subset
	rule  *model.DestinationRule
	index int // index in the rule's list of subsets
}

func (r Rules) equal(o Rules) bool { return r.Main == o.Main && slices.Equal(r.subsets, o.subsets) }

// subset returns the subset with a name. It returns false if the rules have no such subset.
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

// add adds a subset, unless its name is empty or another subset has the name.
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

// rulesFor returns the merged DestinationRules of a host for proxies with the given inputs. The result named reads
// lists the label keys that the workloadSelectors of the rules compare. All rules come from one namespace, which
// rulesSeen selects
// (https://istio.io/latest/docs/ops/best-practices/traffic-management/#cross-namespace-configuration). Rules with a
// workloadSelector apply only to proxies of their own namespace, and override rules without a workloadSelector. A rule
// whose selector does not match still hides the rules of other namespaces and of wider wildcards, as measured with
// istiod.
func (t *Table) rulesFor(host string, svc *model.Service, inputs view.Inputs) (rules Rules, reads []string) {
	return selected(rulesSeen(t.in, t.key.Namespace, host, svc), inputs)
}

// Inbound returns the merged rules of a host for the workloads of a namespace that serve the host. svc is the service
// of the host. Rules with a workloadSelector are excluded, since they apply to clients only. The result is the zero
// Rules if no rule applies. Of the traffic policy, only the connection pool applies to servers (istio:
// pilot/pkg/model/sidecar.go, DestinationRule).
func Inbound(in *input.Input, namespace, host string, svc *model.Service) Rules {
	selecting := func(r *model.DestinationRule) bool { return r.Spec.GetWorkloadSelector() != nil }
	general := slices.DeleteFunc(rulesSeen(in, namespace, host, svc), selecting)
	if len(general) == 0 {
		return Rules{}
	}
	return merge(youngestGroup(general))
}

// rulesSeen returns the DestinationRules that clients of a namespace see for a host. It searches the client's
// namespace, the service's namespace and the root namespace, in this order, and returns the rules of the first
// namespace with a match. Within a namespace it returns the rules for the host or, without such rules, for the longest
// wildcard.
//
// In the client's own namespace, a rule counts if it is exported to that namespace. If the client's namespace is the
// root namespace, only rules that are exported to it alone count in this first search. The other rules of the root
// namespace are searched last, because they mostly apply to the whole mesh. In the second and third search, a rule
// counts unless it is exported to its own namespace alone. A rule that counts there but is not exported to the client
// still hides rules for wider wildcards (istio: pilot/pkg/model/push_context.go, setDestinationRules, destinationRule
// and getExportedDestinationRuleFromNamespace).
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
			continue // the search above covered all rules of this namespace
		}
		found := rulesIn(in, namespace, host, func(rule *model.DestinationRule) bool { return !private(rule) })
		if found = slices.DeleteFunc(found, func(rule *model.DestinationRule) bool { return !reaches(rule) }); len(found) > 0 {
			return found
		}
	}
	return nil
}

// audience returns the namespaces that a rule is exported to: its exportTo, or the mesh's default. A rule with a
// workloadSelector applies to its own namespace alone.
func audience(in *input.Input, rule *model.DestinationRule) []string {
	if rule.Spec.GetWorkloadSelector() != nil {
		return []string{"."}
	}
	if to := rule.Spec.GetExportTo(); len(to) > 0 {
		return to
	}
	return in.Mesh.Spec.GetDefaultDestinationRuleExportTo()
}

// selected merges the rules of one host and namespace that apply to proxies with the given inputs. The result named
// reads lists the label keys that the workloadSelectors of all rules compare.
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
	return merge(youngestGroup(general)), reads
}

// youngestGroup returns the rules to merge for a client. general lists the rules of one host and namespace that have no
// workloadSelector and that the client sees. Rules that may be merged (model.Merges) form groups. The group whose
// oldest rule was created last applies, as in istiod (istio: pilot/pkg/model/sidecar.go, DestinationRule).
// youngestGroup sorts general in place.
func youngestGroup(general []*model.DestinationRule) []*model.DestinationRule {
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

// rulesIn returns the rules of a namespace for a host that satisfy the predicate. Without such rules it returns the
// rules for the longest wildcard that covers the host and has rules that satisfy the predicate.
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

// merge merges rules. The oldest traffic policy applies. If several rules define a subset of one name, the subset of
// the oldest rule applies.
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

// Policy returns the traffic policy of the rules at a port, without the mesh's defaults. It is the policy of the whole
// host, in which settings of the subset replace settings of the host (traffic.Effective). If subsetName is "" or
// unknown, only settings of the host count. Without rules the result is the zero Policy.
func (r Rules) Policy(subsetName string, port uint32) traffic.Policy {
	sub, _ := r.subset(subsetName)
	return traffic.Effective(r.Main, sub.rule, sub.index, port)
}

// Policy returns the traffic policy of clients at a port. It is the result of Rules.Policy, with the mesh's defaults
// for missing settings.
func (t *Table) Policy(of Rules, subset string, port uint32) traffic.Policy {
	return of.Policy(subset, port).Over(t.in.Meshes.Cluster)
}

// at returns the rule that contains a field of a subset's policy. The parameter place names the field. The result is
// nil if neither the subset's rule nor Main contains the field.
func (r Rules) at(subset string, place model.Place) *model.DestinationRule {
	sub, _ := r.subset(subset)
	for _, rule := range []*model.DestinationRule{sub.rule, r.Main} {
		if rule != nil && rule.Key == place.Key {
			return rule
		}
	}
	return nil
}

// Of returns the rule that defines the policy of a subset. If the subset has a traffic policy, this is the rule that
// defines the subset. Otherwise, also for an unknown subset, it is Main, which may be nil.
func (r Rules) Of(subsetName string) *model.DestinationRule {
	if sub, ok := r.subset(subsetName); ok && sub.GetTrafficPolicy() != nil {
		return sub.rule
	}
	return r.Main
}
