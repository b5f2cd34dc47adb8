package gateways

// holders summarises the servers of a route configuration that have a certain host. A port may have thousands of
// servers with the host "*" and thousands of hosts whose owners require client certificates. The summary decides
// whether an owner admits the servers, without a visit of each server.
type holders struct {
	tls []Server // the servers with TLS; a route configuration has at most one
	// oldest is the first server without TLS in the order of precedence, and youngest is the last one. The server other
	// is the first one of another namespace than the server oldest. They are nil if there are no such servers.
	oldest, other, youngest *Server
	namespaces              map[string]bool // of the servers without TLS
}

// add adds a server. The order of the calls has no influence.
func (h *holders) add(s *Server) {
	if s.TLS() {
		h.tls = append(h.tls, *s)
		return
	}
	h.namespaces[s.namespace()] = true
	if h.youngest == nil || Precedes(h.youngest.Gateway, s.Gateway) < 0 {
		h.youngest = s
	}
	switch {
	case h.oldest == nil:
		h.oldest = s
	case Precedes(s.Gateway, h.oldest.Gateway) < 0:
		if s.namespace() != h.oldest.namespace() {
			h.other = h.oldest
		}
		h.oldest = s
	case s.namespace() != h.oldest.namespace() && (h.other == nil || Precedes(s.Gateway, h.other.Gateway) < 0):
		h.other = s
	}
}

// admitted reports whether some of the servers have no TLS and may serve the hosts of an owner, which requires client
// certificates, and whether the owner admits all servers (Server.Admits).
func (h *holders) admitted(owner Server) (some, all bool) {
	foreign := h.oldest
	if foreign != nil && foreign.namespace() == owner.namespace() {
		foreign = h.other
	}
	some = foreign != nil && foreign.opens(owner)
	all = h.youngest == nil || !h.namespaces[owner.namespace()] && h.youngest.opens(owner)
	for _, s := range h.tls {
		all = all && s.sameTLS(owner)
	}
	return some, all
}
