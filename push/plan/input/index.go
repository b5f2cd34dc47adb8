package input

import (
	"iter"
	"slices"
	"strings"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Index answers reverse look-ups in a snapshot. Examples are the hosts at an address, the VirtualServices that route to
// a host, and the wildcards in use. An Index is immutable and safe for concurrent use. Its sequences are in no order.
// With returns the index of the next snapshot, which shares nearly all memory.
type Index struct {
	addresses multimap[[]string]  // virtual address -> hosts of each service
	routesTo  multimap[model.Key] // destination host -> VirtualServices
	secrets   multimap[model.Key] // name of a Secret in any namespace -> records that refer to it
	naming    multimap[model.Key] // namespace -> records that name the namespace, see namespacesOf
	aliases   multimap[string]    // host -> its aliases (ExternalName)
	wildcards multimap[model.Key] // kind (VirtualService, DestinationRule) and wildcard host -> records with this host
	bound     multimap[model.Key] // namespace/name of a Gateway -> its VirtualServices with tcp or tls rules
	// routing maps hosts to their VirtualServices, see Input.Routing. The hosts are spelled backwards, so all hosts
	// that one wildcard covers have a common prefix.
	routing multimap[model.Key]
}

// newIndex returns the index of a snapshot.
func newIndex(s *mirror.Snapshot) *Index {
	var edits []mirror.Edit
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry, model.KindVirtualService, model.KindDestinationRule,
		model.KindEnvoyFilter, model.KindGateway, model.KindWasmPlugin, model.KindTrafficExtension} {
		for r := range s.All(kind) {
			edits = append(edits, mirror.Edit{New: r})
		}
	}
	return (&Index{}).With(edits)
}

// With returns the index of the snapshot after the edits. It does not change x, which must be the index of the snapshot
// before the edits.
func (x *Index) With(edits []mirror.Edit) *Index {
	next := &Index{addresses: x.addresses.change(), routesTo: x.routesTo.change(), secrets: x.secrets.change(),
		naming: x.naming.change(), aliases: x.aliases.change(), wildcards: x.wildcards.change(), bound: x.bound.change(), routing: x.routing.change()}
	for _, e := range edits {
		next.put(e.Old, false)
		next.put(e.New, true)
	}
	for _, r := range []interface{ seal() }{&next.addresses, &next.routesTo, &next.secrets, &next.naming, &next.aliases,
		&next.wildcards, &next.bound, &next.routing} {
		r.seal()
	}
	return next
}

// put adds the entries of a record to the index if the last argument is true, and removes the entries otherwise. The
// record may be nil.
func (x *Index) put(r model.Record, there bool) {
	if r == nil {
		return
	}
	key := r.Meta().Key
	for _, namespace := range namespacesOf(r) {
		x.naming.put(namespace, key.Path(), key, there)
	}
	for ref := range access.AllReferences(r) {
		x.secrets.put(ref.Name, key.Path(), key, there)
	}
	switch t := r.(type) {
	case *model.Service:
		if of := t.Spec.GetAliasFor(); of != "" {
			x.aliases.put(of, key.Path(), t.Spec.GetHosts()[0], there)
		}
		for _, a := range t.Spec.GetAddresses() {
			x.addresses.put(a, key.Path(), t.Spec.GetHosts(), there)
		}
		for _, h := range t.Spec.GetAutomatic() {
			for _, a := range h.GetAddresses() {
				x.addresses.put(a, h.GetHost()+"\x00"+key.Path(), []string{h.GetHost()}, there)
			}
		}
	case *model.VirtualService:
		for _, h := range t.Spec.GetHosts() {
			x.wildcard(key, h, there)
			if IsWildcard(h) || virtualservice.Connects(t) {
				x.routing.put(model.Backwards(h), key.Path(), key, there)
			}
		}
		for _, gateway := range virtualservice.ConnectedGateways(t) {
			x.bound.put(gateway, key.Path(), key, there)
		}
		for h := range virtualservice.Hosts(t) {
			x.routesTo.put(h, key.Path(), key, there)
		}
	case *model.DestinationRule:
		x.wildcard(key, t.Spec.GetHost(), there)
	}
}

// wildcard adds or removes a host of a record, if the host is a wildcard.
func (x *Index) wildcard(key model.Key, host string, there bool) {
	if IsWildcard(host) {
		x.wildcards.put(key.Kind.String()+" "+host, key.Path(), key, there)
	}
}

// Covering calls f with the host itself, and then with each wildcard in use that covers the host, the most specific
// first. A wildcard is in use if a record of the kind has it as a host. The kind must be VirtualService or
// DestinationRule. Covering ends when f returns false.
func (x *Index) Covering(kind model.Kind, host string, f func(pattern string) (more bool)) {
	if !f(host) {
		return
	}
	if x.wildcards.empty() {
		return
	}
	for pattern := range model.Wildcards(host) {
		if x.wildcards.has(kind.String()+" "+pattern) && !f(pattern) {
			return
		}
	}
}

// routingOf lists the keys of the VirtualServices of Input.Routing.
func (x *Index) routingOf(host string) (keys []model.Key) {
	if x.routing.empty() {
		return nil
	}
	named := x.routing.of(model.Backwards(host))
	if suffix, is := strings.CutPrefix(host, "*"); is {
		named = x.routing.under(model.Backwards(suffix))
	}
	keys = slices.Collect(named)
	if x.wildcards.empty() {
		return keys
	}
	for pattern := range model.Wildcards(host) {
		keys = slices.AppendSeq(keys, x.routing.of(model.Backwards(pattern)))
	}
	return keys
}

// overlapping lists the keys of the VirtualServices of Input.RoutingWildcards.
func (x *Index) overlapping(host string) (keys []model.Key) {
	if x.wildcards.empty() {
		return nil
	}
	for pattern := range model.Wildcards(host) {
		keys = slices.AppendSeq(keys, x.routing.of(model.Backwards(pattern)))
	}
	if suffix, is := strings.CutPrefix(host, "*"); is {
		for backwards, key := range x.routing.named(model.Backwards(suffix)) {
			if strings.HasSuffix(backwards, "*") {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// IsWildcard reports whether a host begins with "*".
func IsWildcard(host string) bool { return strings.HasPrefix(host, "*") }

// Covers reports whether pattern equals host, or is a wildcard that covers host. Both arguments may be wildcards: "*.a"
// covers "*.b.a".
func Covers(pattern, host string) bool {
	if pattern == host || pattern == "*" {
		return true
	}
	suffix, ok := strings.CutPrefix(pattern, "*")
	return ok && len(host) > len(suffix) && strings.HasSuffix(host, suffix)
}

// Naming yields the keys of the records whose exportTo names a namespace. For AnyNamespace it yields the keys of the
// VirtualServices that match requests by sourceNamespace, which may mean any namespace.
func (x *Index) Naming(namespace string) iter.Seq[model.Key] { return x.naming.of(namespace) }

// SecretUsers yields the keys of the records that refer to a Secret of this name. Namespaces are not compared.
func (x *Index) SecretUsers(name string) iter.Seq[model.Key] { return x.secrets.of(name) }

// AllSecretUsers yields the keys of all records that refer to some Secret. Keys may repeat.
func (x *Index) AllSecretUsers() iter.Seq[model.Key] {
	return func(yield func(model.Key) bool) {
		for _, key := range x.secrets.named("") {
			if !yield(key) {
				return
			}
		}
	}
}

// Aliases yields the hosts of the Services of type ExternalName that lead to a host, including aliases of aliases. Each
// alias is yielded once, and the host itself never.
func (x *Index) Aliases(host string) iter.Seq[string] {
	return func(yield func(string) bool) {
		seen := map[string]bool{host: true}
		for next := []string{host}; len(next) > 0 && !x.aliases.empty(); next = next[1:] {
			for alias := range x.aliases.of(next[0]) {
				if !seen[alias] && !yield(alias) {
					return
				}
				if !seen[alias] {
					seen[alias], next = true, append(next, alias)
				}
			}
		}
	}
}

// AliasTargets yields the hosts that the Services of type ExternalName with this host lead to. If a target is an alias
// itself, AliasTargets also yields the hosts that the target leads to. Each host is yielded once. Exports of the
// Services are ignored.
func (in *Input) AliasTargets(host string) iter.Seq[string] {
	return func(yield func(string) bool) {
		seen := map[string]bool{host: true}
		for next := []string{host}; len(next) > 0 && !in.Index.aliases.empty(); next = next[1:] {
			for r := range in.ByHost(model.KindService, next[0]) {
				of := r.(*model.Service).Spec.GetAliasFor()
				if of == "" || seen[of] {
					continue
				}
				if !yield(of) {
					return
				}
				seen[of], next = true, append(next, of)
			}
		}
	}
}

// AtAddress yields the hosts of services with this virtual address, including automatic addresses. Hosts may repeat.
func (x *Index) AtAddress(address string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for hosts := range x.addresses.of(address) {
			for _, h := range hosts {
				if !yield(h) {
					return
				}
			}
		}
	}
}
