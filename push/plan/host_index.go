package plan

// hostIndex maps each host to the scopes that contain the host. A scope is outbound configuration that several proxies
// share. A change of a host's endpoints visits only the scopes that contain the host. A nil index stores nothing.
type hostIndex map[string]map[*scope]struct{}

// adopt adds a scope and all its hosts. From then on the scope updates the index.
func (x hostIndex) adopt(s *scope) {
	s.index, s.step = x, newStep()
	if x == nil {
		return
	}
	s.hosts.Names(func(h string) { x.set(h, s, true) })
}

// retire removes a scope.
func (x hostIndex) retire(s *scope) {
	s.index = nil
	if x == nil {
		return
	}
	s.hosts.Names(func(h string) { x.set(h, s, false) })
}

// set records whether a scope has a host.
func (x hostIndex) set(host string, s *scope, has bool) {
	if x == nil {
		return
	}
	if !has {
		if delete(x[host], s); len(x[host]) == 0 {
			delete(x, host)
		}
		return
	}
	if x[host] == nil {
		x[host] = map[*scope]struct{}{}
	}
	x[host][s] = struct{}{}
}
