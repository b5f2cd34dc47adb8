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

// traffic is what one host brings to one outbound listener. Comparable.
type traffic struct {
	listener string
	bind     string
	port     uint32
	egress   int // order of the egress listener it is for
	direct   bool
	http     bool     // the port is HTTP
	wants    wants    // what HTTP of the host takes of the listener
	route    routeKey // the route configuration for HTTP, or for what is found to be HTTP
	chains   intern.List[listener.Chain]
	from     *model.Service // the oldest wins
}

// wants is what a host takes of a connection manager beside what all have.
type wants struct {
	grpcWeb bool
	dynamic bool // its names are resolved as clients ask for them
}

// bringing lists what a host brings to listeners, as certain proxies see it.
type bringing struct {
	*scope
	host  *host.Host
	as    host.Seen
	reads []string // keys of labels that its routes of connections compare with those of proxies
	found []input.Problem
	// each counts the listeners for endpoints of a headless service, and most those of the port that has the most.
	each, most int
}

// manyListeners is how many endpoints a headless service may have without a word about the listeners that it costs.
const manyListeners = 256

// trafficOf lists what a host brings to listeners, where the destinations of its routes are as certain proxies see them: HTTP meets at
// 0.0.0.0_port; the rest has a listener for each address, where there is one. At which listeners it is no input decides.
func (s *scope) trafficOf(h *host.Host, as host.Seen) (out []traffic, reads []string, found []input.Problem) {
	if h.Service == nil {
		return nil, nil, nil
	}
	b := &bringing{scope: s, host: h, as: as}
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
				wants: wants{grpcWeb: protocol == model.Protocol_PROTOCOL_GRPC_WEB, dynamic: host.Dynamic(svc)}}
			if input.IsHTTP(protocol) {
				t.http, t.route = true, keyOf(e, p.GetNumber())
				out = append(out, t.at(s.open(e)))
				continue
			}
			out = append(out, b.opaque(e, p, protocol, t)...)
		}
	}
	if t, is := s.wantedOfProxy(h); is {
		out = append(out, t)
	}
	b.reportListeners()
	reserved := func(t traffic) bool {
		mine := t.bind == s.key.Listening.Families.Wildcard() && !input.Direct(s.sidecar, s.key.Mode) && (t.port == s.in.OutboundPort() || t.port == s.in.InboundPort())
		if mine {
			b.found = append(b.found, input.Warning(h.Service.Key, problem.Duplicate, "spec.ports", fmt.Sprintf("port %d is where the proxy itself listens; it is left out", t.port)))
		}
		return mine
	}
	return slices.DeleteFunc(out, reserved), b.reads, b.found
}

// open is the address of an egress listener that is not for one service.
func (s *scope) open(e *egress) string {
	switch {
	case e.bind != "":
		return e.bind
	case e.direct:
		return s.key.Listening.Families.Loopback()
	}
	return s.key.Listening.Families.Wildcard()
}

func (t traffic) at(bind string) traffic {
	t.bind = bind
	if strings.HasPrefix(bind, "unix://") {
		t.port, t.listener = 0, bind
		return t
	}
	t.listener = xds.ListenerName(bind, t.port)
	return t
}

// opaque is TCP, TLS, and what may be anything.
func (b *bringing) opaque(e *egress, p *model.ServicePort, protocol model.Protocol, t traffic) (out []traffic) {
	h := b.host
	sniff := protocol == model.Protocol_PROTOCOL_AUTO
	each := func(addresses []string) { // the same chains at each
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
		at := t.at(b.open(e))
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
	everywhere := false // there is no address by which the port is told from others
	b.hosts.AddressesAt(h, p.GetNumber(), func(addresses []string) {
		everywhere = everywhere || len(addresses) == 0
		for _, a := range addresses {
			if ip, ok := single(a); !ok {
				ranges = append(ranges, a)
			} else if !slices.Contains(alone, ip) {
				alone = append(alone, ip)
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

// merged is one listener for the endpoints of a port, with chains for each address: Envoy drains those alone that
// change (istio: PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER, https://github.com/istio/istio/pull/60642).
func (b *bringing) merged(e *egress, p *model.ServicePort, addresses []string, t traffic) []traffic {
	if len(addresses) == 0 {
		return nil
	}
	at, all := t.at(b.open(e)), strs.List(addresses...)
	var apart []listener.Chain
	for _, c := range b.chains(e, p, model.Protocol_PROTOCOL_TCP, addresses, true) {
		if c.CIDRs != all { // a rule for subnets
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

// reportListeners reports a service that costs every proxy many listeners. The number is rounded down to two digits, so
// that it does not change with each endpoint.
func (b *bringing) reportListeners() {
	if b.most <= manyListeners {
		return
	}
	n, unit := b.each, 1
	for n >= 100 {
		n, unit = n/10, unit*10
	}
	b.found = append(b.found, input.Warning(b.host.Service.Key, problem.Costly, "spec.ports",
		fmt.Sprintf("each proxy has %d listeners or more for the endpoints of this headless Service, which take memory: "+
			"exportTo and Sidecars decide who sees it; the annotation navarch.io/headless-listeners: merged makes them one for each TCP port", n*unit)))
}

// single is the IP of an address that stands for one; false for ranges.
func single(address string) (string, bool) {
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.String(), true
	}
	if p, err := netip.ParsePrefix(address); err == nil && p.IsSingleIP() {
		return p.Addr().String(), true
	}
	return "", false
}
