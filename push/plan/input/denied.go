package input

import (
	"slices"
	"strings"

	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// The policy model.DeniedName in the root namespace lists the identities that the CA has revoked. Inbound filter chains
// refuse clients with these identities, as for any other policy. Clients must not accept such an identity from a server
// either. So the clusters of services with that identity do not accept it.

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

// DeniedBy returns the SPIFFE IDs that a record denies, by account ("namespace/name"). IDs that name no account have
// the key "". The result is nil if the record is nil or is not a policy with the name model.DeniedName. The namespace
// of the record is not compared.
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

// AccountOf returns the service account of a workload's SPIFFE ID as "namespace/name". It returns "" for IDs that are
// not of the form spiffe://DOMAIN/ns/NAMESPACE/sa/NAME. The prefix spiffe:// may be missing.
func AccountOf(id string) string {
	_, path, _ := strings.Cut(strings.TrimPrefix(id, "spiffe://"), "/")
	parts := strings.Split(path, "/")
	if len(parts) != 4 || parts[0] != "ns" || parts[2] != "sa" {
		return ""
	}
	return parts[1] + "/" + parts[3]
}

// Denied returns the denied identities that a cluster would accept otherwise, as sorted SPIFFE IDs. The parameter
// accounts has the service accounts of the cluster's endpoints ("namespace/name"). The function names returns the
// further identities that the cluster's DestinationRule and service state (see NamesOf). It is called only if the
// snapshot denies any identity. A further identity adds all denied identities of its account. An identity that names no
// account adds all denied identities without an account. The result is the empty list if no denied identity matches.
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

// NamesOf returns the subject alternative names of all traffic policies of a rule. Names may repeat. It returns nil
// without names, or if rule is nil.
func NamesOf(rule *model.DestinationRule) (out []string) {
	if rule == nil {
		return nil
	}
	for _, p := range traffic.All(rule.Spec) {
		out = append(out, p.GetTls().GetSubjectAltNames()...)
	}
	return out
}
