package sidecar

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	policies "navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// headlessBound is how many endpoints of a headless service get listeners of their own; beyond it one listener
// matches all their addresses.
const headlessBound = 64

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
}

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
		for _, p := range h.Service.Spec.GetPorts() {
			if input.PortOf(h.Service, p.GetNumber()) != p || e.port != 0 && e.port != p.GetNumber() {
				continue
			}
			protocol := p.GetProtocol()
			if e.port != 0 && e.protocol != model.Protocol_PROTOCOL_AUTO {
				protocol = e.protocol
			}
			t := traffic{port: p.GetNumber(), egress: e.order, direct: e.direct, from: h.Service,
				wants: wants{grpcWeb: protocol == model.Protocol_PROTOCOL_GRPC_WEB, dynamic: host.Dynamic(h.Service)}}
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
	reserved := func(t traffic) bool {
		mine := t.bind == s.key.Listening.Families.Wildcard() && !input.Direct(s.sidecar, s.key.Mode) && (t.port == s.in.OutboundPort() || t.port == s.in.InboundPort())
		if mine {
			found = append(found, input.Warning(h.Service.Key, problem.Duplicate, "spec.ports", fmt.Sprintf("port %d is where the proxy itself listens; it is left out", t.port)))
		}
		return mine
	}
	return slices.DeleteFunc(out, reserved), b.reads, found
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
	one := func(bind string) {
		at := t.at(bind)
		if sniff {
			at.route = routeKey{kind: ofHost, port: p.GetNumber(), text: h.Name}
		}
		at.chains = chains.List(b.chains(e, p, protocol, nil, false)...)
		out = append(out, at)
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
		addresses := b.addressesOf(h, p)
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
	for _, a := range b.hosts.Addresses(h.Service, h.Name) {
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

// chains is the TCP chains of a port: those of the tcp or tls routes of its VirtualService, and one to the service's cluster, unless routes
// take all. TLS that goes to none of the names of tls routes is of no service: it passes on like what is not known, as with istiod. At a
// listener that is shared, TLS is told apart by the host.
func (b *bringing) chains(e *egress, p *model.ServicePort, protocol model.Protocol, cidrs []string, shared bool) []listener.Chain {
	h := b.host
	var out []listener.Chain
	if vs := b.hosts.VirtualServiceFor(h.Name, e.Imports); vs != nil && len(vs.Spec.GetTcp())+len(vs.Spec.GetTls()) > 0 {
		b.reads = append(b.reads, virtualservice.ConnectionLabelKeys(vs)...)
		r := routing{bringing: b, vs: vs, port: p.GetNumber(), protocol: protocol}
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
	c := listener.Chain{CIDRs: strs.List(cidrs...), Targets: targets.List(listener.Target{Cluster: name}), StatPrefix: name, Protocol: protocol,
		Rule: h.Rules.Main, Policy: policies.Intern(h.Rules.Policy("", p.GetNumber()).Over(b.in.Meshes.Cluster))}
	if input.IsTLS(protocol) && shared && h.Name != "*" {
		c.SNI = strs.List(h.Name)
	}
	if host.Dynamic(h.Service) {
		c.Dynamic, c.DynamicPort = h.Name, p.GetNumber()
	}
	return append(out, c)
}

// routing reads the tcp or tls routes of one VirtualService for one port.
type routing struct {
	*bringing
	vs       *model.VirtualService
	port     uint32
	protocol model.Protocol
	complete bool // nothing is left for the service's own cluster
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
	r.complete = len(out) > 0
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
	return r.hosts.Applies(r.vs, m, r.port, r.as.Inputs)
}

func (r *routing) chain(routes []*networkingv1.RouteDestination, cidrs []string) listener.Chain {
	c := listener.Chain{CIDRs: strs.List(cidrs...), StatPrefix: xds.OutboundCluster(r.port, "", r.host.Name), Protocol: r.protocol}
	rules, subset, port := r.host.Rules, "", r.port // of several destinations none decides alone
	var list []listener.Target
	for _, route := range routes {
		d := route.GetDestination()
		name := r.as.Hosts.ClusterFor(d.GetHost(), d.GetSubset(), d.GetPort().GetNumber(), r.port)
		if name == "" { // as it would be called: connections to it are closed until there is one
			name = xds.OutboundCluster(cmp.Or(d.GetPort().GetNumber(), r.port), d.GetSubset(), d.GetHost())
		}
		list = append(list, listener.Target{Cluster: name, Weight: uint32(max(route.GetWeight(), 0))})
	}
	if len(list) == 1 {
		list[0].Weight = 0
		c.StatPrefix = list[0].Cluster
		_, p, sub, name, ok := xds.ParseCluster(list[0].Cluster)
		if h := r.as.Hosts.Get(name); ok && h != nil && h.Service != nil {
			rules, subset, port = h.Rules, sub, p
			if host.Dynamic(h.Service) {
				c.Dynamic, c.DynamicPort = name, p
			}
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
