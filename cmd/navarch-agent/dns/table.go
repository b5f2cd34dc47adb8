// Package dns answers DNS for the Pod of an agent: names of the mesh from the name table that the control plane sends, all others by the DNS
// servers of the Pod.
//
// Owns: its sockets, the newest table, a small cache of what servers said.  Reads: nothing.  Never: the control plane, Envoy, resolv.conf.
//
// Redirection (deploy/redirect) sends it the queries that the application sends to the servers of its resolv.conf. The agent's own queries are
// exempt from redirection; where they are not, they come back to the agent, which notices that.
package dns

import (
	"math/rand/v2"
	"net/netip"
	"strings"

	"navarch.io/navarch/push/agentapi"
)

// Place is where the Pod is: what names without all their labels mean.
type Place struct {
	Namespace string
	Domain    string // of Services: svc.cluster.local
	// Search is the first search domain of resolv.conf; empty: there is none. The resolver of the application appends it, so a name of the mesh is
	// asked for with it first.
	Search string
}

// Table is the names of the mesh. Immutable.
type Table struct {
	place Place
	names map[string]agentapi.Name // by host
}

// newTable makes a table; of two names of one host the later counts.
func newTable(names []agentapi.Name, place Place) *Table {
	t := &Table{place: place, names: make(map[string]agentapi.Name, len(names))}
	for _, n := range names {
		t.names[n.Host] = n
	}
	return t
}

// Len is how many names there are.
func (t *Table) Len() int { return len(t.names) }

// Lookup finds a name, in lower case and without a dot at the end. found: it is one of the mesh, whether it has addresses of the family or not.
// alias, if it is not empty, is the name that it stands for: what the application meant before the search domain was appended. The rules are those of
// stock agents (istio: pkg/dns/client).
func (t *Table) Lookup(name string, v6 bool) (alias string, addresses []netip.Addr, found bool) {
	n, found := t.exact(name)
	if !found {
		if base, is := strings.CutSuffix(name, "."+t.place.Search); is && t.place.Search != "" {
			if n, found = t.exact(base); !found {
				n, found = t.wildcard(base)
			}
			alias = base
		}
	}
	if !found {
		n, found = t.wildcard(name)
		alias = ""
	}
	if !found {
		return "", nil, false
	}
	for _, a := range n.Addresses {
		if a.Is6() == v6 {
			addresses = append(addresses, a)
		}
	}
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] }) // as kube-dns does, so that clients spread
	return alias, addresses, true
}

// exact finds a host by its full name, or, where it is a Service or a Pod of one, by a shorter one: NAME in its namespace, NAME.NAMESPACE,
// NAME.NAMESPACE.svc.
func (t *Table) exact(name string) (agentapi.Name, bool) {
	if n, found := t.names[name]; found {
		return n, true
	}
	svc, rest, _ := strings.Cut(t.place.Domain, ".")
	if n, found := t.names[name+"."+t.place.Namespace+"."+t.place.Domain]; found && n.Registry == agentapi.RegistryKubernetes && n.Namespace == t.place.Namespace && n.Shortname == name {
		return n, true
	}
	for _, candidate := range []struct{ name, host string }{{name, name + "." + t.place.Domain}, {strings.TrimSuffix(name, "."+svc), name + "." + rest}} {
		if n, found := t.names[candidate.host]; found && n.Registry == agentapi.RegistryKubernetes && n.Shortname+"."+n.Namespace == candidate.name {
			return n, true
		}
	}
	return agentapi.Name{}, false
}

// wildcard finds the most specific "*." that covers a name.
func (t *Table) wildcard(name string) (agentapi.Name, bool) {
	for rest := name; ; {
		_, after, more := strings.Cut(rest, ".")
		if !more {
			return agentapi.Name{}, false
		}
		if n, found := t.names["*."+after]; found {
			return n, true
		}
		rest = after
	}
}
