package gateways

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// MaxElsewhere is the highest number of hosts in Elsewhere.Others.
const MaxElsewhere = 256

// Owners maps each host of a listener to its owner. The owner is the server whose filter chain gets the connections
// with the host as SNI. Owners is immutable, and safe for concurrent use.
type Owners struct {
	byName map[string]Server
	// guarded maps a host of any server to all hosts that it equals or covers and whose owners require a client
	// certificate.
	guarded map[string][]string
}

// Elsewhere has hosts of a listener whose connections reach other servers than the given ones (the argument of
// Owners.Elsewhere). A request for such a host on a connection to a given server is misdirected (HTTP status 421).
type Elsewhere struct {
	// Guarded has the hosts that the given servers must not serve (Owners.Guard, Server.Admits). Guarded lists only
	// hosts that are equal to a host of a given server or covered by one, because the given servers serve no others.
	// Guarded is nil if there are no such hosts.
	Guarded []string
	// Open has further hosts whose owners require a client certificate, and that at least one of the given servers may
	// serve because it precedes the owner (Owners.Guard). Open is nil if there are no such hosts.
	Open []string
	// Shared has the hosts of Open that another of the given servers has or covers, but must not serve.
	Shared []string
	// Others has the hosts with an owner that are neither in Guarded nor a host of a given server, except "*". It is
	// nil if there are no such hosts, or more than MaxElsewhere.
	Others []string
	Left   int // number of hosts that Others would have, if it exceeds MaxElsewhere; else 0
}

// Owners returns the owners of a listener's hosts. Only servers with TLS own hosts, except for those of mode
// AUTO_PASSTHROUGH. If several servers have a host, the first in the order of Listener.TLS is the owner. The owner of
// "*" gets every SNI that has no other owner. Its other hosts are its own, too.
func (l Listener) Owners() *Owners {
	o := &Owners{byName: map[string]Server{}, guarded: map[string][]string{}}
	if len(l.TLS) == 0 {
		return o
	}
	stated := map[string]bool{}
	for _, s := range slices.Concat(l.Plain, l.TLS) {
		for _, h := range s.Hosts {
			stated[h.Name] = true
		}
	}
	for _, s := range l.TLS {
		if s.Auto() {
			continue
		}
		for _, h := range s.Hosts {
			name := h.Name
			if _, taken := o.byName[name]; taken || s.Ends() && PartialWildcard(name) { // no chain has such a name
				continue
			}
			o.byName[name] = s
			if !s.asksForCertificate() {
				continue
			}
			if stated[name] {
				o.guarded[name] = append(o.guarded[name], name)
			}
			for pattern := range model.Wildcards(name) {
				if stated[pattern] {
					o.guarded[pattern] = append(o.guarded[pattern], name)
				}
			}
		}
	}
	return o
}

// asksForCertificate reports whether the server terminates TLS and refuses clients without a certificate.
func (s Server) asksForCertificate() bool {
	mode := s.Spec().GetTls().GetMode()
	return s.Ends() && (mode == networkingv1.ServerTLSSettings_MUTUAL || mode == networkingv1.ServerTLSSettings_ISTIO_MUTUAL)
}

// Guard returns the owner of a domain, and whether the owner guards the domain. The owner is the server that gets the
// connections with the domain as SNI. The owner guards the domain if the owner requires a client certificate. Only the
// servers that the owner admits (Server.Admits) may serve a guarded domain. The domain must be in lower case. If there
// is no owner, the result owner is the zero Server.
func (o *Owners) Guard(domain string) (owner Server, guards bool) {
	for pattern := range model.Covering(domain) {
		if owner, found := o.byName[pattern]; found {
			return owner, owner.asksForCertificate()
		}
	}
	return Server{}, false
}

// Admits reports whether another server may serve the domains that s guards (Owners.Guard), among those that a host of
// the other server equals or covers. Two kinds of servers may. The first kind has the TLS settings of s. The second
// kind has no TLS, is of another namespace, and precedes s. So no tenant can turn away the requests of an older server,
// and no younger server gains from an older one.
func (s Server) Admits(other Server) bool { return other.sameTLS(s) || other.opens(s) }

// sameTLS reports whether the server has TLS with the settings of another server.
func (s Server) sameTLS(as Server) bool {
	return s.TLS() && proto.Equal(s.Spec().GetTls(), as.Spec().GetTls())
}

// opens reports whether the server s may serve its hosts although they are hosts of the server owner, which requires
// client certificates. The server s may if it has no TLS, is of another namespace, and precedes the owner.
func (s Server) opens(owner Server) bool {
	return !s.TLS() && s.namespace() != owner.namespace() && Precedes(s.Gateway, owner.Gateway) < 0
}

// Elsewhere returns the hosts of the listener whose connections reach other servers than the given ones. The lists in
// the result are sorted. The caller owns the result.
func (o *Owners) Elsewhere(servers []Server) (out Elsewhere) {
	own := map[string]*holders{}
	for i := range servers {
		s := &servers[i]
		for _, h := range s.Hosts {
			if own[h.Name] == nil {
				own[h.Name] = &holders{namespaces: map[string]bool{}}
			}
			own[h.Name].add(s)
		}
	}
	guarded, open := map[string]bool{}, map[string]bool{} // guarded: from at least one of the servers
	for name, of := range own {
		for _, host := range o.guarded[name] {
			some, all := of.admitted(o.byName[host])
			open[host] = open[host] || some
			guarded[host] = guarded[host] || !all
		}
	}
	for host, is := range open {
		switch {
		case is && guarded[host]:
			out.Open, out.Shared = append(out.Open, host), append(out.Shared, host)
			delete(guarded, host)
		case is:
			out.Open = append(out.Open, host)
		}
	}
	maps.DeleteFunc(guarded, func(_ string, is bool) bool { return !is })
	out.Guarded = slices.AppendSeq(out.Guarded, maps.Keys(guarded))
	slices.Sort(out.Guarded)
	slices.Sort(out.Open)
	slices.Sort(out.Shared)
	others := len(o.byName) - len(guarded)
	for name := range own {
		if _, is := o.byName[name]; is && !guarded[name] {
			others--
		}
	}
	if _, is := o.byName["*"]; is && own["*"] == nil && !guarded["*"] {
		others-- // "*" is never listed
	}
	if others > MaxElsewhere {
		out.Left = others
		return out
	}
	for name := range o.byName {
		if own[name] == nil && !guarded[name] && name != "*" {
			out.Others = append(out.Others, name)
		}
	}
	slices.Sort(out.Others)
	return out
}
