package gateways

import (
	"slices"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// MaxElsewhere is the largest number of hosts of other servers in Elsewhere.Others.
const MaxElsewhere = 256

// Owners maps the hosts of a listener to the servers whose filter chains get connections for them, by SNI. Immutable.
type Owners struct {
	byName map[string]Server
	// guarded maps a host of some server to the hosts that it is or covers, and whose servers require a client
	// certificate.
	guarded map[string][]string
}

// Elsewhere has the hosts of other servers of a listener, at which requests to some servers are misdirected.
type Elsewhere struct {
	// Guarded are hosts whose servers require a client certificate, by other settings: they must not be served here. Only
	// those that a host here is or covers are listed, since the others are never served here.
	Guarded []string
	// Others are further hosts, or none if there are more than MaxElsewhere.
	Others []string
	Left   int // number of hosts that Others leaves out
}

// Owners returns the owners of a listener's hosts.
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

// asksForCertificate reports whether the server refuses clients without a certificate.
func (s Server) asksForCertificate() bool {
	mode := s.Spec().GetTls().GetMode()
	return s.Ends() && (mode == networkingv1.ServerTLSSettings_MUTUAL || mode == networkingv1.ServerTLSSettings_ISTIO_MUTUAL)
}

// Guard returns the server that keeps a domain from being served by other servers of its listener: connections with
// this SNI are for it, and it requires a client certificate, by settings that the others do not have.
func (o *Owners) Guard(servers []Server, domain string) (by Server, guarded bool) {
	by, found := o.byName[domain]
	for pattern := range model.Wildcards(domain) {
		if found {
			break
		}
		by, found = o.byName[pattern]
	}
	return by, found && by.asksForCertificate() && !slices.ContainsFunc(servers, func(s Server) bool {
		return s.TLS() && proto.Equal(s.Spec().GetTls(), by.Spec().GetTls())
	})
}

// Elsewhere lists the hosts of other servers of the listener, sorted.
func (o *Owners) Elsewhere(servers []Server) (out Elsewhere) {
	own, guarded := map[string]bool{}, map[string]bool{}
	for _, s := range servers {
		for _, h := range s.Hosts {
			own[h.Name] = true
		}
	}
	for name := range own {
		for _, host := range o.guarded[name] {
			if _, is := o.Guard(servers, host); is && !guarded[host] {
				guarded[host] = true
				out.Guarded = append(out.Guarded, host)
			}
		}
	}
	slices.Sort(out.Guarded)
	others := len(o.byName) - len(guarded)
	for name := range own {
		if _, is := o.byName[name]; is && !guarded[name] {
			others--
		}
	}
	if _, is := o.byName["*"]; is && !own["*"] && !guarded["*"] {
		others-- // a server of all hosts states no host
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
