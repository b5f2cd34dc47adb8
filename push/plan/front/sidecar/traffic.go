package sidecar

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// traffic contains the requests and connections of one host that one outbound listener receives. It is comparable.
type traffic struct {
	listener string
	bind     string
	port     uint32
	egress   int // order of the egress listener to which the traffic belongs
	direct   bool
	http     bool     // the port is HTTP
	features features // the optional features that the host needs for HTTP
	route    routeKey // the route configuration for HTTP, or for connections that are detected as HTTP
	chains   intern.List[listener.Chain]
	from     *model.Service // the service that defines the port; the oldest of several services at one address has precedence
}

// features contains the optional features of a connection manager that a host needs.
type features struct {
	grpcWeb bool
	dynamic bool // proxies resolve the name of each request to the host
}

// trafficPlan derives the traffic of one host for the proxies of a perspective (proxies with certain inputs, such as
// labels).
type trafficPlan struct {
	*scope
	host  *host.Host
	as    host.Perspective
	reads []string // keys of the proxy labels that the tcp and tls rules compare
	found []input.Problem
	// The field each is the number of listeners for endpoints of a headless service. The field most is the largest
	// number of such listeners for one port.
	each, most int
}

// manyListeners is the number of endpoints of one port above which the listeners of a headless service are reported as
// costly.
const manyListeners = 256

// trafficOf returns the traffic of a host for the proxies of a perspective. HTTP of all hosts shares the listener
// 0.0.0.0_PORT. Other traffic has a listener for each virtual address. Inputs of proxies never change the set of
// listeners. The result reads lists the keys of the proxy labels on which the traffic depends.
func (s *scope) trafficOf(h *host.Host, as host.Perspective) (out []traffic, reads []string, found []input.Problem) {
	if h.Service == nil {
		return nil, nil, nil
	}
	b := &trafficPlan{scope: s, host: h, as: as}
	for _, e := range s.egress {
		if !e.Has(h.Service, h.Name) {
			continue
		}
		for p, svc := range h.Ports() {
			if e.port != 0 && e.port != p.GetNumber() {
				continue
			}
			protocol := p.GetProtocol()
			if e.port != 0 && e.protocol != model.Protocol_PROTOCOL_AUTO {
				protocol = e.protocol
			}
			t := traffic{port: p.GetNumber(), egress: e.order, direct: e.direct, from: svc,
				features: features{grpcWeb: protocol == model.Protocol_PROTOCOL_GRPC_WEB, dynamic: host.Dynamic(svc)}}
			if protocol.IsHTTP() {
				t.http, t.route = true, keyOf(e, p.GetNumber())
				out = append(out, t.at(s.bindOf(e)))
				continue
			}
			out = append(out, b.notHTTP(e, p, protocol, t)...)
		}
	}
	if t, is := s.proxyFeaturesOf(h); is {
		out = append(out, t)
	}
	b.reportListeners()
	reserved := func(t traffic) bool {
		redirected := t.bind == s.key.Listening.Families.Wildcard() && !input.Direct(s.sidecar, s.key.Mode)
		mine := redirected && (t.port == s.in.OutboundPort() || t.port == s.in.InboundPort())
		if mine {
			b.found = append(b.found, input.Warning(h.Service.Key, problem.Duplicate, "spec.ports",
				fmt.Sprintf("port %d is where the proxy itself listens; it is left out", t.port)))
		}
		return mine
	}
	return slices.DeleteFunc(out, reserved), b.reads, b.found
}

// bindOf returns the bind address of the listeners that the services of an egress listener share.
func (s *scope) bindOf(e *egress) string {
	switch {
	case e.bind != "":
		return e.bind
	case e.direct:
		return s.key.Listening.Families.Loopback()
	}
	return s.key.Listening.Families.Wildcard()
}

// at returns the traffic for the listener at a bind address, which is an IP address or a Unix socket.
func (t traffic) at(bind string) traffic {
	t.bind = bind
	if strings.HasPrefix(bind, "unix://") {
		t.port, t.listener = 0, bind
		return t
	}
	t.listener = xds.ListenerName(bind, t.port)
	return t
}

// notHTTP returns the traffic of a port with the protocol TCP or TLS, or with a detected protocol.
func (b *trafficPlan) notHTTP(e *egress, p *model.ServicePort, protocol model.Protocol, t traffic) (out []traffic) {
	h := b.host
	sniff := protocol == model.Protocol_PROTOCOL_AUTO
	each := func(addresses []string) { // one listener for each address, all with the same chains
		if len(addresses) == 0 {
			return
		}
		same := t
		if sniff {
			same.route = routeKey{kind: ofHost, port: p.GetNumber(), text: h.Name}
		}
		same.chains = chains.List(b.chains(e, p, protocol, nil, false)...)
		for _, a := range addresses {
			out = append(out, same.at(a))
		}
	}
	rest := func(cidrs []string) {
		at := t.at(b.bindOf(e))
		if sniff {
			at.route = keyOf(e, p.GetNumber())
		}
		at.chains = chains.List(b.chains(e, p, protocol, cidrs, true)...)
		out = append(out, at)
	}
	if e.bind != "" || e.direct {
		rest(nil)
		return out
	}
	if h.Service.Spec.GetHeadless() {
		addresses := b.in.Addresses(h.Service, h.Name, p.GetNumber())
		if h.Service.Spec.GetMergedListeners() && protocol == model.Protocol_PROTOCOL_TCP {
			return b.merged(e, p, addresses, t)
		}
		b.most, b.each = max(b.most, len(addresses)), b.each+len(addresses)
		each(addresses)
		return out
	}
	var ranges, alone []string
	known, everywhere := map[string]bool{}, false // a service of the port has no address, so the port alone identifies its traffic
	b.hosts.AddressesAt(h, p.GetNumber(), func(addresses []string) {
		everywhere = everywhere || len(addresses) == 0
		for _, a := range addresses {
			if ip, ok := single(a); !ok {
				ranges = append(ranges, a)
			} else if !known[ip] {
				alone, known[ip] = append(alone, ip), true
			}
		}
	})
	each(alone)
	if everywhere {
		rest(nil)
	} else if len(ranges) > 0 {
		rest(ranges)
	}
	return out
}

// merged returns the traffic of one listener for all endpoints of a port, with chains for each address. After a change,
// Envoy drains only the changed chains (istio: PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER,
// https://github.com/istio/istio/pull/60642).
func (b *trafficPlan) merged(e *egress, p *model.ServicePort, addresses []string, t traffic) []traffic {
	if len(addresses) == 0 {
		return nil
	}
	at, all := t.at(b.bindOf(e)), strs.List(addresses...)
	var apart []listener.Chain
	for _, c := range b.chains(e, p, model.Protocol_PROTOCOL_TCP, addresses, true) {
		if c.CIDRs != all { // the chain of a rule with destination subnets
			apart = append(apart, c)
			continue
		}
		for _, a := range addresses {
			c.CIDRs = strs.List(a)
			apart = append(apart, c)
		}
	}
	at.chains = chains.List(apart...)
	return []traffic{at}
}

// reportListeners appends a problem if each proxy has many listeners for the service. The number in the message is
// rounded down to two digits, so the message does not change with each endpoint.
func (b *trafficPlan) reportListeners() {
	if b.most <= manyListeners {
		return
	}
	n, unit := b.each, 1
	for n >= 100 {
		n, unit = n/10, unit*10
	}
	b.found = append(b.found, input.Warning(b.host.Service.Key, problem.Costly, "spec.ports", fmt.Sprintf(
		"each proxy has %d listeners or more for the endpoints of this headless Service, which take memory: "+
			"exportTo and Sidecars decide who sees it; the annotation navarch.io/headless-listeners: merged "+
			"makes them one for each TCP port", n*unit)))
}

// single returns the IP of an address, or of a prefix that contains a single address. The result is false for ranges.
func single(address string) (string, bool) {
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.String(), true
	}
	if p, err := netip.ParsePrefix(address); err == nil && p.IsSingleIP() {
		return p.Addr().String(), true
	}
	return "", false
}
