package input

import (
	"iter"
	"maps"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Index answers backwards questions about a snapshot: who has this address, who routes to this host, which wildcards
// are there at all. It follows the snapshot edit by edit.
type Index struct {
	addresses map[string]map[string]int         // virtual address -> host -> services
	routesTo  map[string]map[model.Key]struct{} // destination host -> VirtualServices
	wildcards [model.NumKinds]map[string]int    // wildcard hosts of VirtualServices and DestinationRules
	secrets   map[string]map[model.Key]struct{} // name of a Secret -> records that refer to it, of whatever namespace it is
	naming    map[string]map[model.Key]struct{} // namespace -> records that name it, see namespacesOf
}

func newIndex(s *mirror.Snapshot) *Index {
	x := &Index{secrets: map[string]map[model.Key]struct{}{}, addresses: map[string]map[string]int{}, routesTo: map[string]map[model.Key]struct{}{}, naming: map[string]map[model.Key]struct{}{}}
	for kind := range x.wildcards {
		x.wildcards[kind] = map[string]int{}
	}
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry, model.KindVirtualService, model.KindDestinationRule,
		model.KindEnvoyFilter, model.KindGateway} {
		for r := range s.All(kind) {
			x.count(r, 1)
		}
	}
	return x
}

func (x *Index) Apply(e mirror.Edit) {
	x.count(e.Old, -1)
	x.count(e.New, 1)
}

func (x *Index) count(r model.Record, by int) {
	for _, namespace := range namespacesOf(r) {
		enlist(x.naming, namespace, r.Meta().Key, by)
	}
	for ref := range access.References(r) {
		enlist(x.secrets, ref.Name, r.Meta().Key, by)
	}
	switch t := r.(type) {
	case *model.Service:
		for _, a := range t.Spec.GetAddresses() {
			for _, h := range t.Spec.GetHosts() {
				countIn(x.addresses, a, h, by)
			}
		}
	case *model.VirtualService:
		for _, h := range t.Spec.GetHosts() {
			x.wildcard(model.KindVirtualService, h, by)
		}
		for h := range DestinationHosts(t) {
			enlist(x.routesTo, h, t.Key, by)
		}
	case *model.DestinationRule:
		x.wildcard(model.KindDestinationRule, t.Spec.GetHost(), by)
	}
}

// enlist puts a key into a list of m, or takes it out.
func enlist(m map[string]map[model.Key]struct{}, list string, key model.Key, by int) {
	if by < 0 {
		if delete(m[list], key); len(m[list]) == 0 {
			delete(m, list)
		}
		return
	}
	if m[list] == nil {
		m[list] = map[model.Key]struct{}{}
	}
	m[list][key] = struct{}{}
}

func countIn(m map[string]map[string]int, a, b string, by int) {
	if m[a] == nil {
		m[a] = map[string]int{}
	}
	if m[a][b] += by; m[a][b] == 0 {
		delete(m[a], b)
	}
	if len(m[a]) == 0 {
		delete(m, a)
	}
}

func (x *Index) wildcard(kind model.Kind, host string, by int) {
	if !IsWildcard(host) {
		return
	}
	if x.wildcards[kind][host] += by; x.wildcards[kind][host] == 0 {
		delete(x.wildcards[kind], host)
	}
}

// Covering calls f with the hosts of a kind that cover `host`, the most specific first, until f says stop: the host
// itself, then the wildcards that are in use.
func (x *Index) Covering(kind model.Kind, host string, f func(pattern string) (more bool)) {
	if !f(host) {
		return
	}
	if len(x.wildcards[kind]) == 0 {
		return
	}
	rest := strings.TrimPrefix(host, "*.")
	if rest == host {
		_, rest, _ = strings.Cut(host, ".")
	} else {
		_, rest, _ = strings.Cut(rest, ".")
	}
	for ; rest != ""; _, rest, _ = strings.Cut(rest, ".") {
		if pattern := "*." + rest; x.wildcards[kind][pattern] > 0 && !f(pattern) {
			return
		}
	}
	if x.wildcards[kind]["*"] > 0 && host != "*" {
		f("*")
	}
}

// IsWildcard says whether a host stands for many.
func IsWildcard(host string) bool { return strings.HasPrefix(host, "*") }

// Covers says whether a host or wildcard stands for another host or wildcard.
func Covers(pattern, host string) bool {
	if pattern == host || pattern == "*" {
		return true
	}
	suffix, ok := strings.CutPrefix(pattern, "*")
	return ok && len(host) > len(suffix) && strings.HasSuffix(host, suffix)
}

// DestinationHosts are the hosts that a VirtualService sends to, of all protocols.
func DestinationHosts(vs *model.VirtualService) map[string]struct{} {
	hosts := map[string]struct{}{}
	add := func(d *networkingv1.Destination) {
		if d.GetHost() != "" {
			hosts[d.GetHost()] = struct{}{}
		}
	}
	for _, r := range vs.Spec.GetHttp() {
		for _, d := range r.GetRoute() {
			add(d.GetDestination())
		}
		add(r.GetMirror())
		for _, m := range r.GetMirrors() {
			add(m.GetDestination())
		}
	}
	for _, r := range vs.Spec.GetTcp() {
		for _, d := range r.GetRoute() {
			add(d.GetDestination())
		}
	}
	for _, r := range vs.Spec.GetTls() {
		for _, d := range r.GetRoute() {
			add(d.GetDestination())
		}
	}
	return hosts
}

// Naming are the keys of the records that name a namespace (exportTo, sourceNamespace), or AnyNamespace.
func (x *Index) Naming(namespace string) iter.Seq[model.Key] { return maps.Keys(x.naming[namespace]) }

// SecretUsers are the keys of the records that refer to a Secret of this name, in whatever namespace.
func (x *Index) SecretUsers(name string) iter.Seq[model.Key] { return maps.Keys(x.secrets[name]) }

// AtAddress are the hosts of services with this virtual address.
func (x *Index) AtAddress(address string) iter.Seq[string] { return maps.Keys(x.addresses[address]) }
