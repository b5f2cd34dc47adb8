package gateways

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// mostServers and mostHosts are the bounds of one Gateway. A Kubernetes object may have 1.5 MB, which is room for
// 20,000 servers or 60,000 hosts. Each server may be a filter chain of 10 KB and each host a virtual host, on every
// router that the Gateway selects. So without bounds one tenant's object could cause hundreds of megabytes of
// configuration. The largest Gateways that administrators have reported have some hundred servers and 3,000 hosts.
const (
	mostServers = 1024
	mostHosts   = 8192
	// mostAuto is the bound of the servers of mode AUTO_PASSTHROUGH that one namespace has on a router. Each of them has
	// a filter chain for each service of the mesh. A network needs one.
	mostAuto = 4
)

// Merge returns the listeners of a router, and the conflicts. The listeners are sorted by port, then by bind. The binds
// that mean all addresses come first. The list of listeners is never nil. Conflicts are in the order of the Gateways'
// precedence. Their list is nil if there are no conflicts, and is bounded for each Gateway. The order of
// Router.Gateways has no influence. Merge changes nothing. The results refer to the records of r.
func Merge(r Router) ([]Listener, []Conflict) {
	m := merger{Router: r, ports: map[uint32]*portState{}, sockets: map[socket]*sharing{}, routes: map[string]*Server{},
		autos: map[string]int{}, lost: map[problem.Severity]int{}}
	gateways := slices.Compact(slices.SortedFunc(slices.Values(r.Gateways), Precedes))
	for _, g := range gateways {
		m.gateway(g)
		m.omitted()
	}
	listeners := make([]Listener, 0, len(m.sockets))
	for _, key := range slices.SortedFunc(maps.Keys(m.sockets), socket.compare) {
		listeners = append(listeners, m.sockets[key].Listener)
	}
	return listeners, m.conflicts
}

func (s socket) compare(o socket) int {
	return cmp.Or(cmp.Compare(s.port, o.port), cmp.Compare(s.bind, o.bind))
}

// merger is the state of one call of Merge.
type merger struct {
	Router
	ports     map[uint32]*portState
	sockets   map[socket]*sharing
	routes    map[string]*Server // HTTPS servers by name of the route configuration
	conflicts []Conflict
	autos     map[string]int           // number of servers of mode AUTO_PASSTHROUGH, by namespace
	lost      map[problem.Severity]int // number of conflicts of the present Gateway
	last      Server                   // server of the last error that was only counted
}

// portState is istiod's state of one port, common to all binds.
type portState struct {
	first Server
	bind  string // bind of the first server
	// joined maps a bind to the first server that joined the port at this bind, apart from the server in the field
	// first. The map is empty if the server in the field first has no TLS. A bind in the map accepts no further server
	// without the field tls.
	joined map[string]*Server
	// specific has the first server that binds one address other than loopback, and the first such server of another
	// Gateway. An element is nil if there is no such server.
	specific [2]*Server
}

// before returns a server of another Gateway than s that binds one address of the port, and comes before s. The result
// is nil if there is no such server, or if s binds one address itself.
func (p *portState) before(s Server, at socket) *Server {
	if p == nil || at.bind != "" {
		return nil
	}
	for _, w := range p.specific {
		if w != nil && w.Gateway != s.Gateway {
			return w
		}
	}
	return nil
}

// bindOne records a server that binds one address.
func (p *portState) bindOne(s *Server, at socket) {
	addr, err := netip.ParseAddr(at.bind)
	if err != nil || addr.IsLoopback() || addr.IsUnspecified() {
		return
	}
	if p.specific[0] == nil {
		p.specific[0] = s
	} else if p.specific[1] == nil && p.specific[0].Gateway != s.Gateway {
		p.specific[1] = s
	}
}

// sharing is a listener with the state by which its servers exclude further servers.
type sharing struct {
	Listener
	stated map[Host]*Server   // hosts of servers with the field tls, even if only httpsRedirect is set
	chains map[string]*Server // names of hosts with a filter chain; "*": the chain that matches every connection
	// owners has the first server, and the first server of another namespace. An element is nil if there is no such
	// server.
	owners [2]*Server
}

// gateway merges the servers of one Gateway, up to its bounds. A host that a server states repeatedly counts each time,
// because parsing it is work.
func (m *merger) gateway(g *model.Gateway) {
	room := mostHosts
	for i, spec := range g.Spec.GetServers() {
		if i == mostServers {
			room = 0
		}
		s, stated := Server{Gateway: g, Index: i}, spec.GetHosts()
		keep := min(room, len(stated))
		s.Hosts = hostsOf(stated[:keep], g.Key.Namespace)
		if i == mostServers || keep < len(stated) {
			m.lose(s, beyond(keep))
			if keep > 0 {
				m.server(s)
			}
			return
		}
		room -= keep
		m.server(s)
	}
}

// place resolves bind and port of a server, and sets s.Bound. The result defined reports whether one of the Services
// reaches the port. It is also true for a Unix socket, and if the router has no Services. If the server cannot be
// bound, place records the conflict, and ok is false.
func (m *merger) place(s *Server) (at socket, defined, ok bool) {
	bind, err := m.canonicalBind(s.Spec().GetBind())
	unix := strings.HasPrefix(bind, unixPrefix)
	if !unix {
		s.Bound, defined = m.bound(s.Spec().GetPort().GetNumber())
	}
	switch use := m.use(s.Bound); {
	case err != nil:
		m.lose(*s, badBind(err))
	case len(s.Hosts) == 0 || !unix && (s.Bound == 0 || s.Bound > 65535):
		m.lose(*s, incomplete())
	case unix:
		return socket{bind, 0}, true, true
	case use != "":
		m.lose(*s, reservedPort(*s, use))
	case m.Unprivileged && s.Bound < lowestUnprivileged:
		m.lose(*s, privilegedPort(*s))
	default:
		return socket{bind, s.Bound}, defined || len(m.Services) == 0, true
	}
	return at, false, false
}

// server merges one server.
func (m *merger) server(s Server) {
	at, defined, ok := m.place(&s)
	if !ok {
		return
	}
	if s.Auto() {
		if m.autos[s.namespace()]++; m.autos[s.namespace()] > mostAuto {
			m.lose(s, manyAuto(s))
			return
		}
	}
	port, on := m.ports[at.port], m.sockets[at]
	if refused := m.refusal(s, at, port, on); refused != nil {
		m.lose(s, *refused)
		return
	}
	if on == nil {
		on = &sharing{stated: map[Host]*Server{}, chains: map[string]*Server{}}
		on.Listener = Listener{Bind: at.bind, Port: at.port}
	}
	if s.TLS() && !m.keepHosts(&s, on) {
		return
	}
	if m.QUIC && s.HTTP() && s.Ends() && m.hasUDP(s.Spec().GetPort().GetNumber()) {
		if s.QUIC = s.Spec().GetTls().GetMode() == networkingv1.ServerTLSSettings_SIMPLE; !s.QUIC {
			m.lose(s, withoutHTTP3(s))
		}
		on.QUIC = on.QUIC || s.QUIC
	}
	if !defined {
		m.lose(s, undefinedPort(s))
	}
	if w := port.before(s, at); w != nil {
		m.lose(s, exceptAt(s, w))
	}
	m.sockets[at] = on
	m.join(s, at, port, on)
}

// join adds a server to its listener, and updates the state that excludes further servers.
func (m *merger) join(s Server, at socket, port *portState, on *sharing) {
	switch {
	case port == nil:
		m.ports[at.port] = &portState{first: s, bind: at.bind, joined: map[string]*Server{}}
	case port.first.TLS() && port.joined[at.bind] == nil:
		port.joined[at.bind] = &s
	}
	m.ports[at.port].bindOne(&s, at)
	if s.Spec().GetTls() != nil {
		for _, h := range s.Hosts {
			on.stated[h] = &s
		}
	}
	if s.TLS() {
		on.TLS = append(on.TLS, s)
		auto, passes := s.Auto(), s.Passes()
		for _, h := range s.Hosts {
			if !auto && !(passes && h.Name == "*") {
				on.chains[h.Name] = cmp.Or(on.chains[h.Name], &s)
			}
		}
	} else {
		on.Plain = append(on.Plain, s)
		on.chains["*"] = cmp.Or(on.chains["*"], &s)
	}
	if name := s.RouteName(); name != "" && s.TLS() {
		m.routes[name] = &s
	}
	if on.owners[0] == nil {
		on.owners[0] = &s
	} else if on.owners[1] == nil && s.namespace() != on.owners[0].namespace() {
		on.owners[1] = &s
	}
}

// refusal returns the reason why a server as a whole cannot be served together with the servers kept so far. The result
// is nil if it can be served.
func (m *merger) refusal(s Server, at socket, port *portState, on *sharing) *reason {
	if s.Spec().GetTls() != nil && on != nil {
		for i, h := range s.Hosts {
			if w := on.stated[h]; w != nil {
				return duplicateHost(s, i, w)
			}
		}
	}
	if port != nil {
		if refused := port.refusal(s, at, on); refused != nil {
			return refused
		}
	}
	if w := m.routes[s.RouteName()]; w != nil && s.TLS() {
		return sameRoute(s, w)
	}
	if on != nil && !s.TLS() {
		switch w := on.chains["*"]; {
		case w == nil && !s.plainHTTP() && on.foreign(s) != nil:
			return besideTLS(s, on.foreign(s))
		case w == nil, w.plainHTTP() && s.plainHTTP():
		case w.TLS():
			return catchAll(s, w)
		default:
			return otherProtocol(s, w)
		}
	}
	if w := on.opaque(); w != nil && s.TLS() && w.namespace() != s.namespace() {
		return otherProtocol(s, w)
	}
	return m.takesOver(s, at)
}

// refusal returns the reason why istiod would not merge a server with the servers of its port. The result is nil if
// istiod would merge them.
func (p *portState) refusal(s Server, at socket, on *sharing) *reason {
	first := &p.first
	switch {
	case !first.TLS() && p.bind == at.bind && !(first.plainHTTP() && s.plainHTTP()):
		return otherProtocol(s, first)
	case !first.TLS():
	case s.plainHTTP() && on != nil && len(on.Plain) > 0:
		return secondPlain(s, &on.Plain[0])
	case s.Spec().GetTls() == nil && p.joined[at.bind] != nil:
		return afterTLS(s, p.joined[at.bind])
	}
	return nil
}

// takesOver returns the reason to refuse a server that binds one address, if a server of another namespace listens at
// all addresses of the port. If the address had its own listener, the kernel would pass all connections to the address
// to that listener, whatever their host. Loopback addresses count too, because kubectl port-forward and containers of
// the Pod connect to them. The result is nil if the server does not take over connections. In particular, a server
// takes nothing over at an address that had a listener before the other server.
func (m *merger) takesOver(s Server, at socket) *reason {
	if at.bind == "" {
		return nil
	}
	family := "0.0.0.0"
	if strings.Contains(at.bind, ":") {
		family = "::"
	}
	for _, bind := range []string{"", family} {
		all := m.sockets[socket{bind, at.port}]
		if all == nil || bind == at.bind {
			continue
		}
		on := m.sockets[at]
		if w := all.foreign(s); w != nil && (on == nil || Precedes(on.owners[0].Gateway, w.Gateway) >= 0) {
			return moreSpecific(s, w)
		}
	}
	return nil
}

// opaque returns the TCP server without TLS that has the listener alone, or nil. Envoy does not inspect the connections
// for TLS, so a server with TLS would change the whole listener. Usually portState refuses such a server before. But
// the first server of the port may have another bind.
func (on *sharing) opaque() *Server {
	if on == nil || len(on.TLS) > 0 || len(on.Plain) == 0 || on.Plain[0].plainHTTP() {
		return nil
	}
	return &on.Plain[0]
}

// foreign returns a server of the listener that is of another namespace than s, or nil.
func (on *sharing) foreign(s Server) *Server {
	for _, w := range on.owners {
		if w != nil && w.namespace() != s.namespace() {
			return w
		}
	}
	return nil
}

// keepHosts removes the hosts of a server with TLS for which Envoy would refuse the server's filter chain. Envoy
// refuses a chain if another chain has the same SNI, or if a name is not valid as SNI. keepHosts records the conflicts,
// and returns false if no host remains.
func (m *merger) keepHosts(s *Server, on *sharing) bool {
	all := slices.ContainsFunc(s.Hosts, func(h Host) bool { return h.Name == "*" && on.owner(*s, h) == nil })
	ends, lost := s.Ends(), map[*Server][]Host{} // by winner
	var kept []Host
	var winners []*Server
	for _, h := range s.Hosts {
		w := on.owner(*s, h)
		if noSNI := ends && !all && PartialWildcard(h.Name); w == nil && !noSNI {
			kept = append(kept, h)
			continue
		}
		if lost[w] == nil {
			winners = append(winners, w)
		}
		lost[w] = append(lost[w], h)
	}
	m.loseHosts(*s, winners, lost, len(kept) == 0)
	s.Hosts = kept
	return len(kept) > 0
}

// loseHosts records the hosts that a server lost to each of the winners. There may be thousands of winners, so the
// reasons beyond the bound of lose are only counted.
func (m *merger) loseHosts(s Server, winners []*Server, lost map[*Server][]Host, whole bool) {
	if len(winners) == 0 {
		return
	}
	field := s.hostFields()
	for _, w := range winners {
		var r reason
		if m.lost[problem.Error] < problem.MostOfObject {
			r = lostHosts(s, field(lost[w][0]), lost[w], w, whole)
		}
		m.lose(s, r)
	}
}

// owner returns the server with a filter chain that Envoy cannot distinguish from the chain for the host h of s. The
// result is nil if there is no such chain. A server that passes TLS through has chains for the SNI of VirtualServices.
// So two servers that pass TLS through do not exclude each other. A chain for "*" does not exclude such a server
// either.
func (on *sharing) owner(s Server, h Host) *Server {
	w := on.chains[h.Name]
	if w == nil || s.Auto() || s.Passes() && (w.Passes() || h.Name == "*") {
		return nil
	}
	return w
}
