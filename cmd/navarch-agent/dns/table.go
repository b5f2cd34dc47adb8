// Package dns answers DNS queries of an agent's Pod. Mesh names (hosts of Services and ServiceEntries) are resolved by
// the name table of the control plane, all other names by the DNS servers of the Pod.
//
// Owns: its sockets, the newest name table, a small cache of answers. Reads: nothing. Never: connects to the control
// plane or to Envoy, reads resolv.conf.
//
// Redirection (deploy/redirect) sends the application's queries for the servers of its resolv.conf to this server. The
// agent's own queries should be exempt from redirection. If they are redirected too, the server detects the loop and
// answers SERVFAIL.
package dns

import (
	"math/rand/v2"
	"net/netip"
	"strings"

	"navarch.io/navarch/push/agentapi"
)

// Place contains the namespace and DNS domains of the Pod, by which incomplete names are resolved. All fields are in
// lower case and have no dot at either end.
type Place struct {
	Namespace string // the Pod's namespace
	Domain    string // domain of Services, for example svc.cluster.local
	// Search is the first search domain of resolv.conf, or empty if resolv.conf has no search domain. The application's
	// resolver appends it to a name and queries the result first.
	Search string
}

// Table contains the mesh names with their addresses. It is immutable.
type Table struct {
	place Place
	names map[string]agentapi.Name // by host
}

// newTable returns a table of names. Of two entries for one host the later one applies.
func newTable(names []agentapi.Name, place Place) *Table {
	t := &Table{place: place, names: make(map[string]agentapi.Name, len(names))}
	for _, n := range names {
		t.names[n.Host] = n
	}
	return t
}

// Len returns the number of hosts in the table.
func (t *Table) Len() int { return len(t.names) }

// Lookup resolves a host name to its IPv4 addresses, or to its IPv6 addresses if v6 is true. The name must be in lower
// case, without a dot at the end. The result found is true for every mesh name, even if the name has no address of that
// family. The result addresses is in random order and belongs to the caller.
//
// A host "*.DOMAIN" covers all names that end with ".DOMAIN". A host that matches exactly takes precedence. If no host
// matches a name exactly and the name ends with Place.Search, Lookup resolves the name without that suffix. If that
// succeeds, the result alias is the name without the suffix. The response to the client must then contain a CNAME to
// this name. In all other cases alias is empty. The rules are those of Istio's agents (istio: pkg/dns/client).
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
	// random order, as in kube-dns, so that clients spread over the addresses
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	return alias, addresses, true
}

// exact returns the entry of a host, without wildcards. Kubernetes Services, and Pods of headless Services, are also
// found by shorter names: NAME in the Pod's own namespace, NAME.NAMESPACE and NAME.NAMESPACE.svc.
func (t *Table) exact(name string) (agentapi.Name, bool) {
	if n, found := t.names[name]; found {
		return n, true
	}
	svc, rest, _ := strings.Cut(t.place.Domain, ".")
	n, found := t.names[name+"."+t.place.Namespace+"."+t.place.Domain]
	if found && n.Registry == agentapi.RegistryKubernetes && n.Namespace == t.place.Namespace && n.Shortname == name {
		return n, true
	}
	for _, candidate := range []struct{ name, host string }{
		{name, name + "." + t.place.Domain}, {strings.TrimSuffix(name, "."+svc), name + "." + rest},
	} {
		n, found := t.names[candidate.host]
		if found && n.Registry == agentapi.RegistryKubernetes && n.Shortname+"."+n.Namespace == candidate.name {
			return n, true
		}
	}
	return agentapi.Name{}, false
}

// wildcard returns the entry of the most specific wildcard host ("*.") that covers a name.
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
