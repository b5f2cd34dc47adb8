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

// Index answers backwards questions about a snapshot: who has this address, who routes to this host, which wildcards
// are there at all. Immutable: With makes the index of the next snapshot, and shares nearly all of it.
type Index struct {
	addresses relation[string]    // virtual address -> hosts of services
	routesTo  relation[model.Key] // destination host -> VirtualServices
	secrets   relation[model.Key] // name of a Secret -> records that refer to it, of whatever namespace it is
	naming    relation[model.Key] // namespace -> records that name it, see namespacesOf
	aliases   relation[string]    // host -> hosts that are another name of it (ExternalName)
	wildcards relation[model.Key] // kind (VirtualService, DestinationRule) and wildcard host -> records of it
	routing   relation[model.Key] // see Routing: host, read backwards, so that what a wildcard covers stands together -> VirtualServices that name it
}

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

// With is the index after some edits.
func (x *Index) With(edits []mirror.Edit) *Index {
	next := &Index{x.addresses.change(), x.routesTo.change(), x.secrets.change(), x.naming.change(), x.aliases.change(), x.wildcards.change(), x.routing.change()}
	for _, e := range edits {
		next.put(e.Old, false)
		next.put(e.New, true)
	}
	for _, r := range []interface{ seal() }{&next.addresses, &next.routesTo, &next.secrets, &next.naming, &next.aliases, &next.wildcards, &next.routing} {
		r.seal()
	}
	return next
}

// put has what a record says in the index, or no longer.
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
			for _, h := range t.Spec.GetHosts() {
				x.addresses.put(a, h+"\x00"+key.Path(), h, there)
			}
		}
		for _, h := range t.Spec.GetAutomatic() {
			for _, a := range h.GetAddresses() {
				x.addresses.put(a, h.GetHost()+"\x00"+key.Path(), h.GetHost(), there)
			}
		}
	case *model.VirtualService:
		for _, h := range t.Spec.GetHosts() {
			x.wildcard(key, h, there)
			if IsWildcard(h) || virtualservice.Connects(t) {
				x.routing.put(backwards(h), key.Path(), key, there)
			}
		}
		for h := range virtualservice.Hosts(t) {
			x.routesTo.put(h, key.Path(), key, there)
		}
	case *model.DestinationRule:
		x.wildcard(key, t.Spec.GetHost(), there)
	}
}

func (x *Index) wildcard(key model.Key, host string, there bool) {
	if IsWildcard(host) {
		x.wildcards.put(key.Kind.String()+" "+host, key.Path(), key, there)
	}
}

// Covering calls f with the hosts of a kind that cover `host`, the most specific first, until f says stop: the host
// itself, then the wildcards that are in use.
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

// routingOf are the keys of what Input.Routing has.
func (x *Index) routingOf(host string) (keys []model.Key) {
	if x.routing.empty() {
		return nil
	}
	named := x.routing.of(backwards(host))
	if suffix, is := strings.CutPrefix(host, "*"); is {
		named = x.routing.under(backwards(suffix))
	}
	keys = slices.Collect(named)
	if x.wildcards.empty() {
		return keys
	}
	for pattern := range model.Wildcards(host) {
		keys = slices.AppendSeq(keys, x.routing.of(backwards(pattern)))
	}
	return keys
}

// backwards is a host read from its end.
func backwards(host string) string {
	b := []byte(host)
	slices.Reverse(b)
	return string(b)
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

// Naming are the keys of the records that name a namespace (exportTo, sourceNamespace), or AnyNamespace.
func (x *Index) Naming(namespace string) iter.Seq[model.Key] { return x.naming.of(namespace) }

// SecretUsers are the keys of the records that refer to a Secret of this name, in whatever namespace.
func (x *Index) SecretUsers(name string) iter.Seq[model.Key] { return x.secrets.of(name) }

// AllSecretUsers are the keys of the records that refer to any Secret; some may come several times.
func (x *Index) AllSecretUsers() iter.Seq[model.Key] {
	return func(yield func(model.Key) bool) {
		for _, key := range x.secrets.all() {
			if !yield(key) {
				return
			}
		}
	}
}

// Aliases are the hosts that are other names of a host, of aliases of it too, each once.
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

// AliasTargets are the hosts that a host is another name of (Services of type ExternalName), and those that these are other names of in turn, each
// once, whether or not a scope sees the Services.
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

// AtAddress are the hosts of services with this virtual address; one that several services name comes several times.
func (x *Index) AtAddress(address string) iter.Seq[string] { return x.addresses.of(address) }
