package gateways

import (
	"fmt"
	"slices"
	"strings"
)

// istiod merges the servers of a router as istiod does (istio: pilot/pkg/model/gateway.go), without any comparison of
// filter chains. Merge's outcome is compared with it, and it shows that Envoy needs the comparison. quirks are those
// that Merge omits (see the package page). No port is reserved. The result is the chains by address, and the keys
// (serverKey) of the servers that are served.
func istiod(r Router, quirks bool) (chains map[string][]chain, served map[string]bool) {
	m := istiodMerge{Router: r, quirks: quirks, first: map[uint32]*Server{}, binds: map[string]bool{}, hosts: map[string]string{},
		routes: map[string]bool{}, chains: map[string][]chain{}, served: map[string]bool{}}
	for _, g := range slices.SortedFunc(slices.Values(r.Gateways), Precedes) {
		for i, spec := range g.Spec.GetServers() {
			s := Server{Gateway: g, Index: i, Hosts: hostsOf(spec.GetHosts(), g.Key.Namespace)}
			if !strings.HasPrefix(spec.GetBind(), unixPrefix) {
				s.Bound, _ = r.bound(spec.GetPort().GetNumber())
			}
			if m.merges(&s) {
				m.serve(&s)
			}
		}
	}
	return m.chains, m.served
}

type istiodMerge struct {
	Router
	quirks bool
	first  map[uint32]*Server // by port
	binds  map[string]bool    // port and bind of servers after a first one with TLS
	hosts  map[string]string  // bind by port and host; without quirks the bind is part of the key
	routes map[string]bool
	chains map[string][]chain
	served map[string]bool
}

// bind is the text that istiod compares. Without quirks equal addresses are equal.
func (m *istiodMerge) bind(s *Server) string {
	if m.quirks {
		return s.Spec().GetBind()
	}
	bind, err := m.canonicalBind(s.Spec().GetBind())
	if err != nil {
		return s.Spec().GetBind()
	}
	return bind
}

func (m *istiodMerge) hostKeys(s *Server) (keys []string) {
	for _, h := range s.Hosts {
		key := fmt.Sprint(s.Bound, " ", h)
		if !m.quirks {
			key += " " + m.bind(s)
		}
		keys = append(keys, key)
	}
	return keys
}

func (m *istiodMerge) merges(s *Server) bool {
	if m.Unprivileged && s.Bound < 1024 {
		return false
	}
	if s.Spec().GetTls() != nil {
		for _, key := range m.hostKeys(s) {
			if bind, taken := m.hosts[key]; taken && bind == m.bind(s) {
				return false
			}
		}
	}
	if m.quirks {
		m.occupy(s)
	}
	ok := m.mergesPort(s)
	if ok && !m.quirks {
		m.occupy(s)
	}
	return ok
}

func (m *istiodMerge) occupy(s *Server) {
	if s.Spec().GetTls() != nil {
		for _, key := range m.hostKeys(s) {
			m.hosts[key] = m.bind(s)
		}
	}
}

func (m *istiodMerge) mergesPort(s *Server) bool {
	first, at := m.first[s.Bound], fmt.Sprint(s.Bound, " ", m.bind(s))
	route := s.RouteName()
	if s.plainHTTP() {
		route = "http " + at // equal binds of two texts are one listener
	}
	switch {
	case first == nil:
		m.first[s.Bound] = s
	case !first.TLS():
		if m.bind(first) == m.bind(s) && !(first.plainHTTP() && s.plainHTTP()) {
			return false
		}
	default:
		if s.HTTP() && m.routes[route] {
			return false
		}
		if s.Spec().GetTls() == nil && m.binds[at] {
			return false
		}
		m.binds[at] = true
	}
	m.routes[route] = true
	return true
}

// serve adds the chains of a server to its listener.
func (m *istiodMerge) serve(s *Server) {
	m.served[serverKey(*s)] = true
	at := address(m.Router, *s)
	m.chains[at] = append(m.chains[at], chainsOf(*s)...)
}

// chain is the match of a filter chain: names of SNI. A chain without names matches everything.
type chain struct {
	names []string
	of    string // the server; servers of plain HTTP at one address share one chain
}

// chainsOf returns the chains of a server. Chains of passed TLS depend on VirtualServices: here they have each of the
// server's names but "*", and servers share them where names are equal.
func chainsOf(s Server) (chains []chain) {
	switch {
	case s.plainHTTP():
		return []chain{{nil, "plain HTTP"}}
	case s.Auto():
		return nil
	case s.Passes():
		for _, h := range s.Hosts {
			if h.Name != "*" {
				chains = append(chains, chain{[]string{h.Name}, "passed " + h.Name})
			}
		}
		return chains
	case s.Ends():
		return []chain{{Names(s.Hosts), serverKey(s)}}
	}
	return []chain{{nil, serverKey(s)}}
}

// refused returns why Envoy would refuse the chains of one listener: two match the same, or a name is no SNI.
func refused(chains []chain) string {
	owner := map[string]string{}
	for _, c := range chains {
		names := c.names
		if len(names) == 0 {
			names = []string{""}
		}
		for _, name := range names {
			if PartialWildcard(name) && !strings.HasPrefix(c.of, "passed") {
				return name + " is no SNI"
			}
			if of, taken := owner[name]; taken && of != c.of {
				return fmt.Sprintf("%q is matched by chains of %s and %s", name, of, c.of)
			}
			owner[name] = c.of
		}
	}
	return ""
}

func serverKey(s Server) string { return fmt.Sprint(s.Name(), ".", s.Index) }

// address returns the port and the canonical bind of a server.
func address(r Router, s Server) string {
	bind := s.Spec().GetBind()
	if canonical, err := r.canonicalBind(bind); err == nil {
		bind = canonical
	}
	return fmt.Sprint(s.Bound, " ", bind)
}
