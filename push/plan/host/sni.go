package host

import (
	"slices"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// PassedBySNI reports whether gateways forward mTLS of their clients to a port of a service by SNI. It is true only
// with Form.BySNI, for services inside the mesh that are not aliases, and for ports that are not UDP.
func (t *Table) PassedBySNI(svc *model.Service, port *model.ServicePort) bool {
	return t.form.BySNI && !svc.Spec.GetExternal() && port.GetProtocol() != model.Protocol_PROTOCOL_UDP &&
		svc.Spec.GetAliasFor() == ""
}

// Reached reports whether clients in other networks may reach a port of a service through a gateway. It is true if the
// host is not local to its Kubernetes cluster (Input.ClusterLocal), and an endpoint of the subset accepts mTLS. Only
// ready endpoints count, unless the service has publishNotReadyAddresses. If subsetName is "" or unknown, all endpoints
// of the port count. svc is the service of h that defines the port.
func (t *Table) Reached(h *Host, svc *model.Service, port uint32, subsetName string) bool {
	if t.in.ClusterLocal(h.Name, t.key.Domain) {
		return false
	}
	sub, _ := h.Rules.subset(subsetName)
	return anyAcceptsMTLS(t.in, t.selection(svc, h.Name, port, sub), sub.GetLabels())
}

// ReachedOtherwise reports whether the result of Reached, for any port and subset of a host, may differ with the
// endpoints of another input. For each cluster to which gateways forward by SNI, it compares whether an endpoint
// accepts mTLS. The result is false for unknown hosts, and always without Form.BySNI.
func (t *Table) ReachedOtherwise(in *input.Input, name string) bool {
	h := t.Get(name)
	return t.form.BySNI && h != nil && slices.ContainsFunc(h.clusters, func(c clusterUnit) bool {
		q := c.selection
		q.NotReady = false
		return c.bySNI && c.reached != anyAcceptsMTLS(in, q, c.labels)
	})
}

// anyAcceptsMTLS reports whether a member (an endpoint) of a selection accepts mTLS.
func anyAcceptsMTLS(in *input.Input, q input.Selection, labels map[string]string) bool {
	return slices.ContainsFunc(in.Members(q, labels).All(), acceptsMTLS)
}

func acceptsMTLS(m model.Member) bool { return m.Endpoint.GetMtls() }

// Subsets returns the names of the subsets that the host's DestinationRules define. Each name occurs once. The subsets
// of the oldest rule come first. The result is nil without subsets. The caller owns the result.
func (h *Host) Subsets() (names []string) {
	for _, s := range h.Rules.subsets {
		names = append(names, s.GetName())
	}
	return names
}

var memberLists intern.Table[model.Member]

// bySNI plans the cluster to which a gateway forwards its clients' mTLS connections for a port and subset. It appends
// the cluster to the host's clusters.
func (p *clusterPlan) bySNI(svc *model.Service, port uint32, sub subset) {
	h, name := p.host, xds.SNICluster(port, sub.GetName(), p.host.Name)
	c, spec, policy := p.begin(name, svc, port, sub)
	if p.patches.RemovesCluster(p.Side(), name) || spec.Discovery == traffic.Dynamic {
		return
	}
	c.bySNI, c.reached = true, anyAcceptsMTLS(p.in, c.selection, c.labels)
	c.selection.NotReady = policy.Outlier.GetMinHealthPercent() <= 0
	p.place.Network = p.place.Network || p.in.Gateways.Len() > 0
	spec.BySNI, spec.Caps = true, p.key.Caps&xds.CapSelfDiscovery
	if spec.Discovery == traffic.StrictDNS || spec.Discovery == traffic.LogicalDNS {
		spec.Members = passable(p.members(c.selection, c.labels, p.found), p.inputs)
		spec.Balance = p.balance(c.setting, p.inputs, spec.Members)
		spec.Families, h.placed = p.key.Listening.Families, true
	}
	if u, ok := p.in.Make(p.form.Cluster(spec), svc.Key, p.found); ok {
		c.Unit = u
		h.clusters = append(h.clusters, c)
	}
}

// passable returns the members to which a gateway forwards mTLS of its clients. They accept mTLS, and are not known to
// be in another network (istio: pilot/pkg/xds/endpoints, endpoint_builder.go).
func passable(members intern.List[model.Member], inputs view.Inputs) intern.List[model.Member] {
	return memberLists.List(slices.DeleteFunc(slices.Clone(members.All()), func(m model.Member) bool {
		network := m.Endpoint.GetNetwork()
		return !acceptsMTLS(m) || network != "" && inputs.Network != "" && network != inputs.Network
	})...)
}
