package host

import (
	"slices"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// secure sets two properties in spec: the identities of the cluster's endpoints, and automatic mTLS. A traffic policy
// may override automatic mTLS later. For external services, and for proxies without a certificate, secure sets neither.
// Problems are appended to found.
func (t *Table) secure(spec *cluster.Outbound, c *clusterUnit, found *[]input.Problem) {
	q := c.selection
	if !t.key.Caps.Has(xds.CapIdentity) || q.Service.Spec.GetExternal() {
		return
	}
	spec.Accounts = t.in.Accounts(q.Host, q.Service.Key.Namespace)
	spec.Denied = t.in.Denied(spec.Accounts, func() []string {
		return slices.Concat(q.Service.Spec.GetSubjectAltNames(), input.NamesOf(spec.Rule), input.NamesOf(spec.SubsetRule))
	})
	if !t.in.Mesh.Spec.GetEnableAutoMtls().GetValue() {
		return
	}
	switch {
	case q.Service.Spec.GetResolution() == model.Resolution_RESOLUTION_NONE, Dynamic(q.Service):
	case t.form.Whole:
		if c.demand.all {
			spec.TLS = traffic.AutoAll
		} else if c.demand.some {
			name := xds.OutboundCluster(q.Port, q.Subset, q.Host)
			*found = append(*found, input.Warning(q.Service.Key, problem.NotSupported, "spec.ports", "only some endpoints of "+name+
				" demand mTLS: clients send plaintext to all of these endpoints (proxyless gRPC)"))
		}
	case traffic.Headless(q.Service):
		q.Any = true // terminating endpoints count too, since there may still be connections to them
		all := t.in.Members(q, c.labels).All()
		plaintext := func(m model.Member) bool { return !m.Endpoint.GetMtls() }
		if len(all) > 0 && !slices.ContainsFunc(all, plaintext) && input.Plain(q, all).Len() == 0 {
			spec.TLS = traffic.AutoAll
		}
	case t.in.WithoutMTLS(q): // neither present nor future endpoints accept mTLS
	default:
		spec.TLS = traffic.AutoEndpoints
		spec.MTLSDisabled = t.in.MTLSDisabled(q)
	}
}

// plain returns the members (endpoints) for which PeerAuthentications disable mTLS, and false. If a DestinationRule
// states TLS settings other than the mesh's mTLS, it returns no members and true. For gRPC clients (Form.Whole), and
// for the mesh's mTLS, it returns no members and false.
func (t *Table) plain(c *clusterUnit, members intern.List[model.Member]) (some intern.List[model.Member], all bool) {
	switch {
	case t.form.Whole, c.tls == traffic.Mutual:
		return some, false
	case c.ruled:
		return some, true
	}
	return input.Plain(c.selection, members.All()), false
}

// demand states whether endpoints of a cluster accept only mTLS: at least one endpoint (the field some), or every
// endpoint (the field all). Without endpoints both fields are false. A gRPC client uses mTLS for all endpoints of a
// cluster or for none. It uses automatic mTLS only if all endpoints demand it, because a permissive Envoy recognises
// the mesh's mTLS by an ALPN that gRPC does not offer.
type demand struct{ some, all bool }

// demanding returns the demand of the endpoints that q and the labels of its subset select.
func demanding(in *input.Input, q input.Selection, labels map[string]string) demand {
	members, n := in.Members(q, labels).All(), 0
	for _, m := range members {
		if in.Demands(q, m) {
			n++
		}
	}
	return demand{n > 0, n > 0 && n == len(members)}
}

// SecuresOtherwise reports whether the mTLS demands of a host's clusters would be different with the endpoints of
// another input. The demands of a cluster state whether some, and whether all, of its endpoints accept only mTLS. A
// gRPC client uses automatic mTLS only if all accept only mTLS. If the result is true, clusters and endpoints must be
// sent together. It is false for unknown hosts, and always without Form.Whole.
func (t *Table) SecuresOtherwise(in *input.Input, name string) bool {
	return t.form.Whole && t.Get(name).securesOtherwise(in)
}

// SecuresOtherwise returns the result of Table.SecuresOtherwise for the variation's own version of a host. It is false
// for hosts that do not differ in the variation.
func (v *Variation) SecuresOtherwise(in *input.Input, name string) bool {
	return v.table.form.Whole && v.hosts[name].securesOtherwise(in)
}

// securesOtherwise reports whether a cluster's demand differs with the endpoints of another input. It is false if h is
// nil.
func (h *Host) securesOtherwise(in *input.Input) bool {
	return h != nil && slices.ContainsFunc(h.clusters, func(c clusterUnit) bool {
		return c.demand != demanding(in, c.selection, c.labels)
	})
}
