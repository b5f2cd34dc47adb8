package input

import (
	"slices"
	"strings"

	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// An identity that the CA has revoked is denied by a policy of the whole mesh (model.DeniedName), which inbound filter chains get
// like any other. Clients must not believe it either: the clusters of services that it serves leave it out (issue 12, item 4).

// denied are the denied identities, as SPIFFE IDs, by their account ("namespace/name").
type denied = map[string][]string

func deniedIn(s *mirror.Snapshot) denied {
	r, ok := s.Get(model.Key{Kind: model.KindAuthorizationPolicy, Namespace: s.Mesh().Spec.GetRootNamespace(), Name: model.DeniedName})
	if !ok {
		return nil
	}
	return DeniedBy(r)
}

// DeniedBy are those of a record; none where it is another policy, or nil.
func DeniedBy(r model.Record) denied {
	p, ok := r.(*model.Policy)
	if !ok || p.Key.Name != model.DeniedName {
		return nil
	}
	all := denied{}
	for _, id := range model.DeniedIdentities(p) {
		account := AccountOf(id)
		all[account] = append(all[account], id)
	}
	return all
}

// AccountOf is the "namespace/name" of a SPIFFE ID of a workload; empty for others.
func AccountOf(id string) string {
	_, path, _ := strings.Cut(strings.TrimPrefix(id, "spiffe://"), "/")
	parts := strings.Split(path, "/")
	if len(parts) != 4 || parts[0] != "ns" || parts[2] != "sa" {
		return ""
	}
	return parts[1] + "/" + parts[3]
}

// Denied are the denied identities that a cluster would believe: those of the service accounts behind it, and those that its rules
// and its service name (see NamesOf), which are asked for only where an identity is denied.
func (in *Input) Denied(accounts intern.List[string], names func() []string) intern.List[string] {
	if !in.deniedKnown {
		in.denied, in.deniedKnown = deniedIn(in.Snapshot), true
	}
	if len(in.denied) == 0 {
		return intern.List[string]{}
	}
	var out []string
	for _, account := range accounts.All() {
		out = append(out, in.denied[account]...)
	}
	for _, name := range names() {
		out = append(out, in.denied[AccountOf(name)]...)
	}
	slices.Sort(out)
	return strs.List(slices.Compact(out)...)
}

// NamesOf are the subject alternative names that a rule expects of servers, wherever in it.
func NamesOf(rule *model.DestinationRule) (out []string) {
	if rule == nil {
		return nil
	}
	for p := range traffic.All(rule.Spec) {
		out = append(out, p.GetTls().GetSubjectAltNames()...)
	}
	return out
}
