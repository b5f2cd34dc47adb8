package input

import (
	"slices"
	"strings"

	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// The root namespace's policy model.DeniedName denies the identities that the CA has revoked to the whole mesh. Inbound
// filter chains apply it like any other policy. Clients must not accept such an identity from a server either, so the
// clusters of services with that identity leave it out.

// denied maps accounts ("namespace/name") to their denied identities, as SPIFFE IDs.
type denied = map[string][]string

// deniedIn returns the denied identities of a snapshot.
func deniedIn(s *mirror.Snapshot) denied {
	r, ok := s.Get(model.Key{Kind: model.KindAuthorizationPolicy, Namespace: s.Mesh().Spec.GetRootNamespace(), Name: model.DeniedName})
	if !ok {
		return nil
	}
	return DeniedBy(r)
}

// DeniedBy returns the identities that a record denies, by account ("namespace/name"). The result is nil if the record
// is nil or is not the policy model.DeniedName.
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

// AccountOf returns the "namespace/name" of the service account in a workload's SPIFFE ID, or "" for other IDs.
func AccountOf(id string) string {
	_, path, _ := strings.Cut(strings.TrimPrefix(id, "spiffe://"), "/")
	parts := strings.Split(path, "/")
	if len(parts) != 4 || parts[0] != "ns" || parts[2] != "sa" {
		return ""
	}
	return parts[1] + "/" + parts[3]
}

// Denied lists the denied identities, sorted, that a cluster would accept otherwise: those of the service accounts of
// its endpoints, and those that its rules and its service name (see NamesOf). names is called only if there are denied
// identities.
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

// NamesOf lists the subject alternative names that a rule expects of servers, in all its policies. rule may be nil.
func NamesOf(rule *model.DestinationRule) (out []string) {
	if rule == nil {
		return nil
	}
	for _, p := range traffic.All(rule.Spec) {
		out = append(out, p.GetTls().GetSubjectAltNames()...)
	}
	return out
}
