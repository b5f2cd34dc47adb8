package gateways

import (
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
	// Guarded has the hosts that the given servers must not serve (Owners.Guard). Guarded lists only hosts that are
	// equal to a host of a given server or covered by one, because the given servers serve no others. Guarded is nil if
	// there are no such hosts.
	Guarded []string
	// Open has further hosts whose owners require a client certificate. The given servers may serve them, because one
	// of these servers precedes the owner (Owners.Guard). Open is nil if there are no such hosts.
	Open []string
	// Others has the hosts with an owner that are neither in Guarded nor a host of a given server, except "*". It is
	// nil if there are no such hosts, or more than MaxElsewhere.
	Others []string
	Left   int // number of hosts that Others would have, if it exceeds MaxElsewhere; else 0
}

// Owners returns the owners of a listener's hosts. Only servers with TLS own hosts, except for those of mode
// AUTO_PASSTHROUGH. If several servers have a host, the first in the order of Listener.TLS is the owner. The owner of
// "*" gets every SNI that has no other owner.
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
		names := Names(s.Hosts)
		if len(names) == 0 {
			names = []string{"*"}
		}
		for _, name := range names {
			if _, taken := o.byName[name]; taken {
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

// Guard reports whether the given servers must not serve a domain, because its owner guards it. The owner is the server
// that gets the connections with the domain as SNI. It guards the domain if it requires a client certificate, with two
// exceptions. The first exception is a given server with equal TLS settings. The second exception is a given server
// without TLS that is of another namespace and precedes the owner. So no tenant can turn away the requests of an older
// server. The domain must be in lower case. The result named by is the owner, even if guarded is false. It is the zero
// Server if there is no owner.
func (o *Owners) Guard(servers []Server, domain string) (by Server, guarded bool) {
	by, found := o.byName[domain]
	for pattern := range model.Wildcards(domain) {
		if found {
			break
		}
		by, found = o.byName[pattern]
	}
	return by, found && by.asksForCertificate() && !slices.ContainsFunc(servers, func(s Server) bool {
		return s.TLS() && proto.Equal(s.Spec().GetTls(), by.Spec().GetTls()) || s.opens(by)
	})
}

// opens reports whether the server s may serve the hosts of the server in the parameter by, which requires client
// certificates. It may if it has no TLS, is of another namespace, and precedes that server.
func (s Server) opens(by Server) bool {
	return !s.TLS() && s.namespace() != by.namespace() && Precedes(s.Gateway, by.Gateway) < 0
}

// Elsewhere returns the hosts of the listener whose connections reach other servers than the given ones. The lists in
// the result are sorted. The caller owns the result.
func (o *Owners) Elsewhere(servers []Server) (out Elsewhere) {
	own, guarded := map[string]bool{}, map[string]bool{}
	for _, s := range servers {
		for _, h := range s.Hosts {
			own[h.Name] = true
		}
	}
	for name := range own {
		for _, host := range o.guarded[name] {
			by, is := o.Guard(servers, host)
			if is && !guarded[host] {
				guarded[host] = true
				out.Guarded = append(out.Guarded, host)
			}
			if slices.ContainsFunc(servers, func(s Server) bool { return s.opens(by) }) {
				out.Open = append(out.Open, host)
			}
		}
	}
	slices.Sort(out.Guarded)
	slices.Sort(out.Open)
	out.Open = slices.Compact(out.Open)
	others := len(o.byName) - len(guarded)
	for name := range own {
		if _, is := o.byName[name]; is && !guarded[name] {
			others--
		}
	}
	if _, is := o.byName["*"]; is && !own["*"] && !guarded["*"] {
		others-- // "*" is never listed
	}
	if others > MaxElsewhere {
		out.Left = others
		return out
	}
	for name := range o.byName {
		if !own[name] && !guarded[name] && name != "*" {
			out.Others = append(out.Others, name)
		}
	}
	slices.Sort(out.Others)
	return out
}
