package plan

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// clusterUnit is one cluster, and what its assignment selects.
type clusterUnit struct {
	unit
	selection
	labels map[string]string
}

// assigned says whether Envoy asks for the cluster's endpoints.
func (c clusterUnit) assigned() bool {
	return slices.ContainsFunc(c.res.Needs, func(r xds.Ref) bool { return r.Type == xds.Endpoint })
}

// inDNS says whether the endpoints of a service stand inside its clusters.
func inDNS(svc *model.Service) bool {
	r := svc.Spec.GetResolution()
	return r == model.Resolution_RESOLUTION_DNS || r == model.Resolution_RESOLUTION_DNS_ROUND_ROBIN
}

// planClusters plans outbound|port||host and one cluster more for each subset, for all ports that the scope sees.
func (s *scope) planClusters(h *host) {
	old := h.clusters
	h.clusters = nil
	var found []Problem
	if h.svc != nil {
		for _, p := range h.svc.Spec.GetPorts() {
			if p.GetProtocol() == model.Protocol_PROTOCOL_UDP || portOf(h.svc, p.GetNumber()) != p || !s.hasPort(h, p.GetNumber()) {
				continue
			}
			s.planCluster(h, p.GetNumber(), subset{}, &found)
			for _, sub := range h.rules.subsets {
				s.planCluster(h, p.GetNumber(), sub, &found)
			}
		}
	}
	s.problems.set("clusters "+h.name, found)
	s.replace(units(old), units(h.clusters))
}

func units(clusters []clusterUnit) []unit {
	out := make([]unit, len(clusters))
	for i, c := range clusters {
		out[i] = c.unit
	}
	return out
}

func (s *scope) planCluster(h *host, port uint32, sub subset, found *[]Problem) {
	name := xds.OutboundCluster(port, sub.GetName(), h.name)
	if s.patches.any(func(p model.Patch) bool { return removesCluster(p, s.side(), name) }) {
		return
	}
	c := clusterUnit{selection: selection{h.svc, h.name, port, sub.rule, sub.GetName(), s.peersFor(h.svc)}, labels: sub.GetLabels()}
	spec := cluster.Outbound{
		Service: h.svc, Host: h.name, Port: port, Subset: sub.GetName(), Rule: h.rules.main, SubsetRule: sub.rule,
		Mesh: s.mesh, Caps: s.key.Caps & xds.CapIdentity,
		Patches: s.patches.matching(func(p model.Patch) bool {
			return mergesCluster(p, s.side(), name)
		}),
	}
	if inDNS(h.svc) {
		spec.Members = s.membersOf(c.selection, c.labels)
	}
	s.secure(&spec, c.selection, c.labels)
	if u, ok := s.make(spec, h.svc.Key, found); ok {
		c.unit = u
		h.clusters = append(h.clusters, c)
	}
}

// hasPort says whether an egress listener that sees the host has room for this port.
func (s *scope) hasPort(h *host, port uint32) bool {
	for _, e := range s.egress {
		if e.has(h.svc, h.name) && (e.port == 0 || e.port == port || e.pulls[h.name] > 0) {
			return true
		}
	}
	return false
}

func removesCluster(p model.Patch, side networkingv1.EnvoyFilter_PatchContext, name string, hosts ...string) bool {
	return patch.RemovesCluster(p) && patch.ClusterMatches(p, side, name, hosts...)
}

func mergesCluster(p model.Patch, side networkingv1.EnvoyFilter_PatchContext, name string, hosts ...string) bool {
	return !patch.RemovesCluster(p) && patch.ClusterMatches(p, side, name, hosts...)
}
