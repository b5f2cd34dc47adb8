package plan

// hostIndex says which scopes have a host: it takes a change of endpoints to the scopes that it touches.
type hostIndex map[string]map[*scope]struct{}

// adopt follows a scope from now on.
func (x hostIndex) adopt(s *scope) {
	s.index, s.step = x, newStep()
	s.hosts.Names(func(h string) { x.set(h, s, true) })
}

// retire forgets a scope.
func (x hostIndex) retire(s *scope) {
	s.index = nil
	s.hosts.Names(func(h string) { x.set(h, s, false) })
}

// set says whether a scope has a host.
func (x hostIndex) set(host string, s *scope, has bool) {
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
