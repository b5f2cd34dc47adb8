package plan

import (
	"cmp"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// An identity that the CA has revoked is denied by a policy of the whole mesh (model.DeniedName), which inbound filter chains get
// like any other. Clients must not believe it either: the clusters of services that it serves leave it out (issue 12, item 4).

// denied are the denied identities, as SPIFFE IDs, by their account ("namespace/name").
type denied map[string][]string

func deniedIn(s *mirror.Snapshot) denied {
	r, ok := s.Get(model.Key{Kind: model.KindAuthorizationPolicy, Namespace: s.Mesh().Spec.GetRootNamespace(), Name: model.DeniedName})
	if !ok {
		return nil
	}
	return deniedBy(r)
}

// deniedBy are those of a record; none where it is another policy, or nil.
func deniedBy(r model.Record) denied {
	p, ok := r.(*model.Policy)
	if !ok || p.Key.Name != model.DeniedName {
		return nil
	}
	all := denied{}
	for _, id := range model.DeniedIdentities(p) {
		account := accountOf(id)
		all[account] = append(all[account], id)
	}
	return all
}

// accountOf is the "namespace/name" of a SPIFFE ID of a workload; empty for others.
func accountOf(id string) string {
	_, path, _ := strings.Cut(strings.TrimPrefix(id, "spiffe://"), "/")
	parts := strings.Split(path, "/")
	if len(parts) != 4 || parts[0] != "ns" || parts[2] != "sa" {
		return ""
	}
	return parts[1] + "/" + parts[3]
}

// deniedOf are the denied identities that a cluster would believe: those of its accounts, and those that its rules or its service
// name.
func (w *input) deniedOf(spec *cluster.Outbound) intern.List[string] {
	if !w.deniedKnown {
		w.denied, w.deniedKnown = deniedIn(w.Snapshot), true
	}
	if len(w.denied) == 0 {
		return intern.List[string]{}
	}
	var out []string
	for _, account := range spec.Accounts.All() {
		out = append(out, w.denied[account]...)
	}
	for _, name := range slices.Concat(spec.Service.Spec.GetSubjectAltNames(), namesOf(spec.Rule), namesOf(spec.SubsetRule)) {
		out = append(out, w.denied[accountOf(name)]...)
	}
	slices.Sort(out)
	return strs.List(slices.Compact(out)...)
}

// namesOf are the subject alternative names that a rule expects of servers, wherever in it.
func namesOf(rule *model.DestinationRule) (out []string) {
	if rule == nil {
		return nil
	}
	add := func(p *networkingv1.TrafficPolicy) {
		out = append(out, p.GetTls().GetSubjectAltNames()...)
		for _, port := range p.GetPortLevelSettings() {
			out = append(out, port.GetTls().GetSubjectAltNames()...)
		}
	}
	add(rule.Spec.GetTrafficPolicy())
	for _, sub := range rule.Spec.GetSubsets() {
		add(sub.GetTrafficPolicy())
	}
	return out
}

// deniedHosts: hosts whose clusters believe an identity that is denied now and was not, or was and is not.
func deniedHosts(c *change, t types, e mirror.Edit) {
	was, is := deniedBy(e.Old), deniedBy(e.New)
	other := func(account string) bool { return !slices.Equal(was[account], is[account]) }
	if len(was)+len(is) == 0 {
		return
	}
	mark := func(r model.Record) {
		for _, h := range hostsOf(r) {
			c.hosts[h] |= t
			if isWildcard(h) {
				c.patterns[h] |= t
			}
		}
	}
	for r := range c.input.All(model.KindEndpoints) {
		for _, one := range r.(*model.Endpoints).Spec.GetEndpoints() {
			if other(cmp.Or(one.GetNamespace(), r.Meta().Key.Namespace) + "/" + one.GetServiceAccount()) {
				mark(r)
				break
			}
		}
	}
	for r := range c.input.All(model.KindServiceEntry) {
		if slices.ContainsFunc(r.(*model.Service).Spec.GetSubjectAltNames(), func(name string) bool { return other(accountOf(name)) }) {
			mark(r)
		}
	}
	for r := range c.input.All(model.KindDestinationRule) {
		if slices.ContainsFunc(namesOf(r.(*model.DestinationRule)), func(name string) bool { return other(accountOf(name)) }) {
			mark(r)
		}
	}
}
