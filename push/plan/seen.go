package plan

// seen is the inverted index: which scopes have a host. It takes a change of endpoints to the scopes that it touches.
type seen map[string]map[*scope]struct{}

// adopt follows a scope from now on.
func (x seen) adopt(s *scope) {
	s.seen = x
	for h := range s.hosts.all() {
		x.add(h, s)
	}
}

// retire forgets a scope.
func (x seen) retire(s *scope) {
	s.seen = nil
	for h := range s.hosts.all() {
		x.remove(h, s)
	}
}

func (x seen) add(host string, s *scope) {
	if x == nil {
		return // the scope is being planned from nothing
	}
	if x[host] == nil {
		x[host] = map[*scope]struct{}{}
	}
	x[host][s] = struct{}{}
}

func (x seen) remove(host string, s *scope) {
	if delete(x[host], s); len(x[host]) == 0 {
		delete(x, host)
	}
}
