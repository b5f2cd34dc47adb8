package sidecar

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	policies "navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

const (
	anyAddress = "0.0.0.0"
	loopback   = "127.0.0.1"
	// headlessBound is how many endpoints of a headless service get listeners of their own; beyond it one listener
	// matches all their addresses.
	headlessBound = 64
)

// traffic is what one host brings to one outbound listener. Comparable.
type traffic struct {
	listener string
	bind     string
	port     uint32
	egress   int // order of the egress listener it is for
	direct   bool
	wildcard bool     // the listener is not for one address
	http     bool     // the port is HTTP
	route    routeKey // the route configuration for HTTP, or for what is found to be HTTP
	chains   intern.List[listener.Chain]
	from     *model.Service // the oldest wins
}

// trafficOf lists what a host brings to listeners, where the destinations of its routes are among the hosts given: HTTP meets at 0.0.0.0_port; the rest has a listener for each address,
// where there is one.
func (s *scope) trafficOf(h *host.Host, hosts host.Hosts) (out []traffic, found []input.Problem) {
	if h.Service == nil {
		return nil, nil
	}
	for _, e := range s.egress {
		if !e.Has(h.Service, h.Name) {
			continue
		}
		for _, p := range h.Service.Spec.GetPorts() {
			if input.PortOf(h.Service, p.GetNumber()) != p || e.port != 0 && e.port != p.GetNumber() {
				continue
			}
			t := traffic{port: p.GetNumber(), egress: e.order, direct: e.direct, from: h.Service}
			protocol := p.GetProtocol()
			if e.port != 0 && e.protocol != model.Protocol_PROTOCOL_AUTO {
				protocol = e.protocol
			}
			if input.IsHTTP(protocol) {
				t.http, t.route, t.wildcard = true, keyOf(e, p.GetNumber()), true
				out = append(out, t.at(e.open()))
				continue
			}
			out = append(out, s.opaque(h, hosts, e, p, protocol, t)...)
		}
	}
	reserved := func(t traffic) bool {
		mine := t.bind == anyAddress && !input.Direct(s.sidecar, s.key.Mode) && (t.port == s.in.OutboundPort() || t.port == s.in.InboundPort())
		if mine {
			found = append(found, input.Warning(h.Service.Key, problem.Duplicate, "spec.ports", fmt.Sprintf("port %d is where the proxy itself listens; it is left out", t.port)))
		}
		return mine
	}
	return slices.DeleteFunc(out, reserved), found
}

// open is the address of an egress listener that is not for one service.
func (e *egress) open() string {
	switch {
	case e.bind != "":
		return e.bind
	case e.direct:
		return loopback
	}
	return anyAddress
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
func (s *scope) opaque(h *host.Host, hosts host.Hosts, e *egress, p *model.ServicePort, protocol model.Protocol, t traffic) (out []traffic) {
	sniff := protocol == model.Protocol_PROTOCOL_AUTO
	one := func(bind string) {
		at := t.at(bind)
		if sniff {
			at.route = routeKey{kind: ofHost, port: p.GetNumber(), text: h.Name}
		}
		at.chains = chains.List(s.chains(h, hosts, e, p, protocol, nil, false)...)
		out = append(out, at)
	}
	rest := func(cidrs []string) {
		at := t.at(e.open())
		at.wildcard = true
		if sniff {
			at.route = keyOf(e, p.GetNumber())
		}
		at.chains = chains.List(s.chains(h, hosts, e, p, protocol, cidrs, true)...)
		out = append(out, at)
	}
	if e.bind != "" || e.direct {
		rest(nil)
		return out
	}
	if h.Service.Spec.GetHeadless() {
		addresses := s.addressesOf(h, p)
		if len(addresses) <= headlessBound {
			for _, a := range addresses {
				one(a)
			}
		} else {
			rest(addresses)
		}
		return out
	}
	var ranges []string
	for _, a := range s.hosts.Addresses(h.Service, h.Name) {
		if ip, ok := single(a); ok {
			one(ip)
		} else {
			ranges = append(ranges, a)
		}
	}
	if len(ranges) > 0 || len(out) == 0 {
		rest(ranges)
	}
	return out
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

// addressesOf are the IPs of a headless service's endpoints.
func (s *scope) addressesOf(h *host.Host, p *model.ServicePort) (out []string) {
	for _, m := range s.in.Members(input.Selection{Service: h.Service, Host: h.Name, Port: p.GetNumber()}, nil).All() {
		if ip, err := netip.ParseAddr(m.Endpoint.GetAddress()); err == nil && !slices.Contains(out, ip.String()) {
			out = append(out, ip.String())
		}
	}
	return out
}

// chains is the TCP chains of a port: those of the tcp or tls routes of its VirtualService, then one to the service's
// cluster. At a listener that is shared, TLS is told apart by the host.
func (s *scope) chains(h *host.Host, hosts host.Hosts, e *egress, p *model.ServicePort, protocol model.Protocol, cidrs []string, shared bool) []listener.Chain {
	var out []listener.Chain
	if vs := s.hosts.VirtualServiceFor(h.Name, e.Imports); vs != nil && len(vs.Spec.GetTcp())+len(vs.Spec.GetTls()) > 0 {
		r := routing{scope: s, vs: vs, host: h, hosts: hosts, port: p.GetNumber()}
		if input.IsTLS(protocol) {
			out = r.tls(cidrs)
		} else {
			out = r.tcp(cidrs)
		}
		if r.complete {
			return out
		}
	}
	name := xds.OutboundCluster(p.GetNumber(), "", h.Name)
	c := listener.Chain{CIDRs: strs.List(cidrs...), Targets: targets.List(listener.Target{Cluster: name}), StatPrefix: name,
		Rule: h.Rules.Main, Policy: policies.Intern(h.Rules.Policy("", p.GetNumber()).Over(s.in.Meshes.Cluster))}
	if input.IsTLS(protocol) && shared && h.Name != "*" {
		c.SNI = strs.List(h.Name)
	}
	return append(out, c)
}

// routing reads the tcp or tls routes of one VirtualService for one port.
type routing struct {
	*scope
	vs       *model.VirtualService
	host     *host.Host
	hosts    host.Hosts
	port     uint32
	complete bool // a route matches everything: what would come after it is out of reach
}

func (r *routing) tls(cidrs []string) (out []listener.Chain) {
	for _, route := range r.vs.Spec.GetTls() {
		for _, m := range route.GetMatch() {
			if !r.applies(m) {
				continue
			}
			c := r.chain(route.GetRoute(), first(m.GetDestinationSubnets(), cidrs))
			c.SNI = strs.List(m.GetSniHosts()...)
			out = append(out, c)
		}
	}
	return out
}

func (r *routing) tcp(cidrs []string) (out []listener.Chain) {
	for _, route := range r.vs.Spec.GetTcp() {
		if len(route.GetMatch()) == 0 {
			r.complete = true
			return append(out, r.chain(route.GetRoute(), cidrs))
		}
		for _, m := range route.GetMatch() {
			if !r.applies(m) {
				continue
			}
			out = append(out, r.chain(route.GetRoute(), first(m.GetDestinationSubnets(), cidrs)))
			if len(m.GetDestinationSubnets()) == 0 {
				r.complete = true
				return out
			}
		}
	}
	return out
}

func (r *routing) applies(m host.SourceMatch) bool {
	// Listeners are of the scope, and no labels of proxies are known here: a match on them is left out (reported: store/normal/fields).
	return len(m.GetSourceLabels()) == 0 && r.scope.hosts.Applies(r.vs, m, r.port, view.Inputs{})
}

func (r *routing) chain(routes []*networkingv1.RouteDestination, cidrs []string) listener.Chain {
	c := listener.Chain{CIDRs: strs.List(cidrs...), StatPrefix: xds.OutboundCluster(r.port, "", r.host.Name)}
	rules, subset, port := r.host.Rules, "", r.port // of several destinations none decides alone
	var list []listener.Target
	for _, route := range routes {
		d := route.GetDestination()
		name := r.hosts.ClusterFor(d.GetHost(), d.GetSubset(), d.GetPort().GetNumber(), r.port)
		if name == "" {
			name = xds.BlackHole
		}
		list = append(list, listener.Target{Cluster: name, Weight: uint32(max(route.GetWeight(), 0))})
	}
	if len(list) == 1 {
		list[0].Weight = 0
		c.StatPrefix = list[0].Cluster
		if _, p, sub, name, ok := xds.ParseCluster(list[0].Cluster); ok {
			rules, subset, port = r.hosts.Get(name).Rules, sub, p
		}
	}
	c.Rule, c.Policy = rules.Of(subset), policies.Intern(rules.Policy(subset, port).Over(r.in.Meshes.Cluster))
	list = slices.DeleteFunc(list, func(t listener.Target) bool { return len(list) > 1 && t.Weight == 0 })
	c.Targets = targets.List(list...)
	return c
}

func first(a, b []string) []string {
	if len(a) > 0 {
		return a
	}
	return b
}
