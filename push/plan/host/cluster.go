package host

import (
	"slices"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// clusterUnit is one cluster, and what its assignment selects.
type clusterUnit struct {
	layer.Unit
	selection input.Selection
	labels    map[string]string // of the subset
}

// assigned says whether Envoy asks for the cluster's endpoints.
func (c clusterUnit) assigned() bool {
	return slices.ContainsFunc(c.Res.Needs, func(r xds.Ref) bool { return r.Type == xds.Endpoint })
}

// InDNS says whether the endpoints of a service stand inside its clusters.
func InDNS(svc *model.Service) bool {
	r := svc.Spec.GetResolution()
	return r == model.Resolution_RESOLUTION_DNS || r == model.Resolution_RESOLUTION_DNS_ROUND_ROBIN
}

// planClusters plans outbound|port||host and one cluster more for each subset, for all ports that the scope sees.
func (t *Table) planClusters(h *Host) {
	old := h.clusters
	h.clusters = nil
	var found []input.Problem
	if h.Service != nil {
		for _, p := range h.Service.Spec.GetPorts() {
			if p.GetProtocol() == model.Protocol_PROTOCOL_UDP || input.PortOf(h.Service, p.GetNumber()) != p || !t.hasPort(h, p.GetNumber()) {
				continue
			}
			t.planCluster(h, p.GetNumber(), subset{}, &found)
			for _, sub := range h.Rules.subsets {
				t.planCluster(h, p.GetNumber(), sub, &found)
			}
		}
	}
	t.problems.Set("clusters "+h.Name, found)
	t.layer.Replace(units(old), units(h.clusters))
}

func units(clusters []clusterUnit) []layer.Unit {
	out := make([]layer.Unit, len(clusters))
	for i, c := range clusters {
		out[i] = c.Unit
	}
	return out
}

func (t *Table) planCluster(h *Host, port uint32, sub subset, found *[]input.Problem) {
	name := xds.OutboundCluster(port, sub.GetName(), h.Name)
	if t.patches.Any(func(p model.Patch) bool { return input.RemovesCluster(p, Side(t.key), name) }) {
		return
	}
	c := clusterUnit{selection: t.selection(h, port, sub), labels: sub.GetLabels()}
	spec := cluster.Outbound{
		Service: h.Service, Host: h.Name, Port: port, Subset: sub.GetName(), Rule: h.Rules.Main, SubsetRule: sub.rule,
		Mesh: t.in.Mesh, Caps: t.key.Caps & xds.CapIdentity,
		Patches: t.patches.Matching(func(p model.Patch) bool {
			return input.MergesCluster(p, Side(t.key), name)
		}),
	}
	if InDNS(h.Service) {
		spec.Members = t.in.Members(c.selection, c.labels)
	}
	t.secure(&spec, c.selection, c.labels)
	if u, ok := t.in.Make(spec, h.Service.Key, found); ok {
		c.Unit = u
		h.clusters = append(h.clusters, c)
	}
}

// selection is what decides the members of a cluster.
func (t *Table) selection(h *Host, port uint32, sub subset) input.Selection {
	q := input.Selection{Service: h.Service, Host: h.Name, Port: port, Rule: sub.rule, Subset: sub.GetName()}
	if t.key.Caps.Has(xds.CapIdentity) { // others never speak mTLS
		q.Peers = t.in.Peers(h.Service.Key.Namespace)
	}
	return q
}
