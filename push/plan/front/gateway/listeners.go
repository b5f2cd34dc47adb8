package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/gateways"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

var fragments intern.Table[*xds.Fragment]

// socket is one listener of the scope (the configuration of a group of equal routers).
type socket struct {
	layer.Unit
	gateways.Listener
	name  string
	bind  string
	quic  bool // it is the UDP listener of HTTP/3
	stale bool // it has to be planned in this step (the planning of one change)
	// origins has the servers and rules behind each chain, in the order of the chains. Chains of AUTO_PASSTHROUGH
	// servers are not included.
	origins []chainOrigin
	// bySNI maps a host to its chains by SNI. Such chains come from AUTO_PASSTHROUGH servers.
	bySNI map[string][]*xds.Fragment
}

// open merges the servers of the scope's Gateways into listeners and route configurations. It appends a problem to
// found for each server that loses a conflict.
func (f *Front) open(found *[]input.Problem) {
	edge := f.Key.Edge.Value()
	router := gateways.Router{Services: f.edge.Services, Target: f.edge.Target, Unprivileged: edge.Unprivileged, QUIC: edge.QUIC,
		Wildcards: append(f.Key.Listening.Families.Also(f.wildcard()), f.wildcard())}
	for _, key := range f.Key.Gateways.All() {
		if r, ok := f.In.Get(key); ok {
			router.Gateways = append(router.Gateways, r.(*model.Gateway))
		}
	}
	merged, conflicts := gateways.Merge(router)
	for _, c := range conflicts {
		*found = append(*found, c.Problem)
	}
	f.configs = map[string]*config{}
	for _, l := range merged {
		f.openListener(l, found)
	}
	f.stating = newStating(f.configs)
	f.hosts.SetListening(f.listening())
}

// listening returns the arguments of host.Table.SetListening: the ports that have a listener, and the ports of the
// router's own services that lead to these ports.
func (f *Front) listening() (bound map[uint32]bool, own map[host.ServicePort]bool) {
	bound, own = map[uint32]bool{}, map[host.ServicePort]bool{}
	for _, s := range f.sockets {
		bound[s.Port] = true
	}
	for _, svc := range f.edge.Services {
		for _, p := range svc.Spec.GetPorts() {
			if !bound[cmp.Or(f.edge.Target(svc, p), p.GetTargetNumber(), p.GetNumber())] {
				continue
			}
			for _, name := range svc.Spec.GetHosts() {
				own[host.ServicePort{Host: name, Port: p.GetNumber()}] = true
			}
		}
	}
	return bound, own
}

// wildcard returns the bind address of a server without a bind address.
func (f *Front) wildcard() string { return f.Key.Listening.Families.Wildcard() }

// openListener adds one listener of gateways.Merge, and the route configurations of its servers.
func (f *Front) openListener(l gateways.Listener, found *[]input.Problem) {
	s := &socket{Listener: l, name: l.Name(f.wildcard()), bind: cmp.Or(l.Bind, f.wildcard()), stale: true}
	f.sockets = append(f.sockets, s)
	if l.QUIC {
		udp := *s
		udp.quic, udp.name = true, "udp_"+s.name
		f.sockets = append(f.sockets, &udp)
	}
	owners, left := l.Owners(), 0
	add := func(name string, servers []gateways.Server) {
		if name == "" {
			return
		}
		c := newConfig(name, l.Port, servers, owners)
		left = max(left, c.elsewhere.Left)
		f.noteElsewhere(c, found)
		f.configs[name] = c
	}
	name, _ := l.PlainRoute()
	add(name, l.Plain)
	for _, server := range l.TLS {
		add(server.RouteName(), []gateways.Server{server})
	}
	if left > 0 && !f.Key.Edge.Value().Misdirected404 {
		*found = append(*found, manyElsewhere(l, left))
	}
}

// plan plans the resource of a listener again.
func (f *Front) plan(s *socket) {
	was := s.Unit
	s.Unit, s.stale = layer.Unit{}, false
	var found []input.Problem
	if !f.Patches.RemovesListener(s.name, s.Port, side) {
		if chains := f.chains(s, &found); len(chains) > 0 {
			spec := listener.Servers{Common: f.common(s), Name: s.name, Bind: s.bind, Port: s.Port, QUIC: s.quic,
				Opaque: len(s.TLS) == 0 && !s.Plain[0].HTTP(), Chains: fragments.List(chains...)}
			spec.Patches = f.Patches.Matching(func(p model.Patch) bool { return patch.ListenerMatches(p, side, s.name, s.Port) })
			s.Unit, _ = f.In.Make(spec, model.MeshKey, &found)
		}
	}
	f.problems.Set("listener "+s.name, found)
	if was.Res == s.Res {
		return
	}
	f.Layer.Drop(was.Res)
	f.Layer.Put(s.Res)
	f.useRoutes(was.Res, -1)
	f.useRoutes(s.Res, 1)
}

// useRoutes adds delta to the number of users of each route configuration that a listener requests. The Spec or an
// EnvoyFilter makes the listener request it.
func (f *Front) useRoutes(r *xds.Resource, delta int) {
	if r == nil {
		return
	}
	for _, ref := range r.Needs {
		if ref.Type == xds.Route {
			f.routes.Use(f.configNamed(ref.Name), delta)
		}
	}
}

// common returns the part that the Specs (inputs) of a listener and of its chains have in common, without patches.
func (f *Front) common(s *socket) listener.Common {
	key := f.Key.Edge.Value()
	c := f.In.Common(key.Caps, key.Workload.Listening, nil, s.name, s.Port, side)
	c.Telemetry, c.Extensions = f.edge.Reports.Spec, f.edge.Extensions
	c.Proxy, c.HeaderCase = key.Workload.Listeners.Or(f.In.Defaults.Listeners), key.HeaderCase
	return c
}

// chains builds the filter chains of a listener. The chains of servers with TLS come first, in order of precedence. The
// chain of the servers without TLS follows, and then the chains by SNI.
func (f *Front) chains(s *socket, found *[]input.Problem) (out []*xds.Fragment) {
	passes := false
	s.origins = nil
	c := chaining{Front: f, socket: s, found: found, bound: map[string][]*model.VirtualService{}}
	for _, server := range s.TLS {
		switch {
		case s.quic && !server.QUIC:
		case server.Auto():
			passes = true
		case server.Passes():
			c.addPassthrough(server)
		case server.HTTP():
			c.addHTTP([]gateways.Server{server}, server.RouteName())
		default:
			c.connectOrReport(server)
		}
	}
	if name, _ := s.PlainRoute(); name != "" && !s.quic {
		c.addHTTP(s.Plain, name)
	} else if len(s.Plain) > 0 && !s.quic {
		c.connectOrReport(s.Plain[0])
	}
	c.settle()
	if passes && !s.quic {
		for _, name := range slices.Sorted(maps.Keys(s.bySNI)) {
			c.out = append(c.out, s.bySNI[name]...)
		}
	}
	return c.out
}

// connects reports whether a server of the listener is not HTTP. The chains of such a server depend on tcp or tls
// rules, or on services.
func (s *socket) connects() bool {
	connected := func(server gateways.Server) bool { return !server.HTTP() }
	return slices.ContainsFunc(s.TLS, connected) || slices.ContainsFunc(s.Plain, connected)
}

// chaining collects the chains of one listener.
type chaining struct {
	*Front
	*socket
	found   *[]input.Problem
	demands []*demand                          // the demands of a server are adjacent
	bound   map[string][]*model.VirtualService // cache of connectingAt, by Gateway
	out     []*xds.Fragment
}

// chain returns the Spec of a server's chain for the given SNI names, without the destination.
func (c *chaining) chain(of gateways.Server, names []string) listener.ServerChain {
	chain := listener.ServerChain{Common: c.common(c.socket), Port: c.Port, QUIC: c.quic, Names: strs.List(names...),
		Closed: c.Key.Edge.Value().Closed, Policies: c.edge.Policies, Authentications: c.edge.Authentications, Authorizers: c.edge.Authorizers}
	if of.Ends() {
		chain.TLS = serverTLS(of.Spec(), c.In.Mesh.Spec, servesNone)
		if namespace := of.Gateway.Key.Namespace; namespace != c.Key.Namespace && chain.TLS.NamesFiles() {
			chain.TLS.Foreign = namespace
		}
		c.refer(&chain.TLS, c.found)
		if !c.quic { // the chain over TCP reports the problem
			*c.found = append(*c.found, foreignSecrets(of, c.Key.Namespace)...)
		}
	}
	return chain
}

// add builds a chain and adds it to the listener. Errors become problems of the first server's Gateway.
func (c *chaining) add(d chainOrigin, chain listener.ServerChain) {
	of := d.servers[0]
	at := fmt.Sprintf("spec.servers[%d]", of.Index)
	fault := chain.Fault()
	if fault != nil && c.quic {
		return // the chain over TCP reports the problem
	}
	if fault != nil { // the chain is built, and closes its connections
		*c.found = append(*c.found, input.Problem{Key: of.Gateway.Key, Field: at, Code: problem.Invalid, Severity: problem.Error,
			Message: fault.Error()})
	}
	f, err := c.In.Pool.Fragment(chain)
	if err != nil {
		*c.found = append(*c.found, model.ProblemOf(model.Fault(of.Gateway.Key, problem.Invalid, at, err), of.Gateway.Key))
		return
	}
	d.tls = chain.TLS
	c.out, c.origins = append(c.out, f), append(c.origins, d)
}

// addHTTP demands the connections of HTTP servers that share a route configuration. The parameter route is the name of
// the route configuration.
func (c *chaining) addHTTP(servers []gateways.Server, route string) {
	first := servers[0]
	var names []string
	prefix := "outbound_" + c.name
	if first.TLS() {
		names = gateways.Names(first.Hosts)
		prefix = cmp.Or(first.Spec().GetName(), prefix)
	}
	c.demand(&demand{server: first, names: names, add: func(names []string) {
		chain := c.chain(first, names)
		chain.HTTP = listener.ServerHTTP{Route: route, StatPrefix: prefix, GRPCWeb: !first.TLS()}
		c.add(chainOrigin{servers: servers, names: names, route: route}, chain)
	}})
}

// servesNone returns "", which means that no cluster serves an external secret. The plan has no external SDS servers.
func servesNone(string) (cluster string) { return "" }
