package sidecar

import (
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/dnscache"
	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/pool"
	policies "navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// scope is what a front and its two tables read: what stays the same for as long as the scope exists, and its hosts.
type scope struct {
	in       *input.Input
	layer    *layer.Layer
	key      view.Scope
	hosts    *host.Table
	sidecar  *model.Sidecar // nil: none applies
	egress   []*egress
	patches  input.PatchSet
	problems input.Problems
	reports  reports
	ports    map[servedBy][]uint32 // of the hosts of VirtualServices, until the step is done
	// own marks the listeners and route configurations that are this scope's alone; others it shares with scopes that were forked,
	// and copies before it changes them.
	own *editor
}

// editor is the identity under which a scope may change a listener or a route configuration in place.
type editor struct{ _ byte }

// fork is the scope of a proxy group with another key, whose resources go to another layer. What both hold already is shared from now on.
func (s *scope) fork(key view.Scope, to *layer.Layer) *scope {
	s.own = &editor{}
	next := *s
	if next.egress = nil; key != s.key {
		next.egress, _ = egressOf(s.sidecar, key)
	} else {
		for _, e := range s.egress {
			same := *e
			same.Imports = e.Imports.Fork()
			next.egress = append(next.egress, &same)
		}
	}
	next.key, next.layer, next.hosts = key, to, s.hosts.Fork(key, importsOf(next.egress), to)
	next.own, next.problems, next.reports, next.ports = &editor{}, s.problems.Clone(), s.reports.clone(), map[servedBy][]uint32{}
	return &next
}

// staticClusters are those that every proxy has, and that of unknown hosts whose names it resolves.
func (s *scope) staticClusters() []string {
	if s.unknown().ByName {
		return []string{xds.BlackHole, xds.Passthrough, xds.AllowAnyDynamic}
	}
	return []string{xds.BlackHole, xds.Passthrough}
}

// planStatic plans the clusters that every proxy has, and the endpoints of the own workload of those of which nothing is known (host.Variation has the others):
// Envoy waits for these before it asks for anything else.
func (s *scope) planStatic(found *[]input.Problem) {
	if s.key.Caps.Has(xds.CapSelfDiscovery) {
		s.fixed(endpoint.Spec{Cluster: xds.LocalCluster, AllPlain: true}, found)
	}
	side := s.hosts.Side()
	for _, name := range s.staticClusters() {
		if s.patches.RemovesCluster(side, name) {
			continue
		}
		connection := policies.PassthroughConnection(s.in.Meshes.Cluster)
		if name == xds.BlackHole { // nothing passes through it
			connection = policies.ConnectionOf(nil, s.in.Meshes.Cluster)
		}
		spec := cluster.Static{Name: name, HeaderCase: s.key.HeaderCase, Connection: connection, Mesh: s.in.Meshes.Cluster, Patches: s.patches.Matching(func(p model.Patch) bool {
			return input.MergesCluster(p, side, name)
		})}
		if name == xds.AllowAnyDynamic {
			s.resolving(&spec, found)
		}
		s.fixed(spec, found)
	}
}

// resolving says what the cluster of unknown hosts has beside the other static ones.
func (s *scope) resolving(spec *cluster.Static, found *[]input.Problem) {
	policy := policies.Policy{TLS: s.in.Mesh.Spec.GetOutboundTrafficPolicy().GetTls(), TLSAt: model.Place{Key: model.MeshKey, Field: "data.mesh.outboundTrafficPolicy.tls"}}
	var wrong *model.Problem
	if spec.TLS, wrong = policies.TLSOf(policy, policies.Client{Identity: s.key.Caps.Has(xds.CapIdentity)}, policies.Plaintext); wrong != nil {
		*found = append(*found, *wrong)
	}
	spec.Unknown, spec.Families, spec.Policy = s.unknown(), s.key.Listening.Families, policies.Intern(policy)
	if policy.TLS != nil {
		spec.Caps = s.key.Caps & (xds.CapIdentity | xds.CapFileSecrets | xds.CapFileLists)
	}
}

// fixed plans a resource that stays the same for as long as the scope exists.
func (s *scope) fixed(spec pool.ResourceSpec, found *[]input.Problem) {
	if u, ok := s.in.Make(spec, model.MeshKey, found); ok && !s.layer.Reserved(u.Res) {
		s.layer.Add(u)
	}
}

// unknown is how the scope reaches unknown hosts. Their names are resolved as the mesh says, where no Sidecar says otherwise, which cannot say it
// (https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#MeshConfig-OutboundTrafficPolicy-Mode). A proxy without the extensions has them as
// with ALLOW_ANY.
func (s *scope) unknown() dnscache.Unknown {
	if s.sidecar != nil && s.sidecar.Spec.GetOutboundTrafficPolicy() != nil || !s.key.Caps.Has(xds.CapDynamicForward) ||
		s.in.Mesh.Spec.GetOutboundTrafficPolicy().GetMode() != meshv1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS {
		return dnscache.Unknown{}
	}
	return dnscache.Unknown{ByName: true, Resolver: s.key.NameServer()}
}

// passthrough says whether unknown destinations are let pass: the Sidecar's policy, else the mesh's.
func (s *scope) passthrough() bool {
	if p := s.sidecar; p != nil && p.Spec.GetOutboundTrafficPolicy() != nil {
		return p.Spec.GetOutboundTrafficPolicy().GetMode() == networkingv1.OutboundTrafficPolicy_ALLOW_ANY
	}
	return s.in.Mesh.Spec.GetOutboundTrafficPolicy().GetMode() != meshv1.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY
}

// egressProxy is the cluster that the Sidecar has unknown destinations go to, empty where it says none. Whether there is one, the Sidecar's imports
// decide: connections to one that is not there are closed
// (https://istio.io/latest/docs/reference/config/networking/sidecar/#OutboundTrafficPolicy).
func (s *scope) egressProxy() string {
	if s.sidecar == nil || s.sidecar.Spec.GetOutboundTrafficPolicy().GetEgressProxy() == nil {
		return ""
	}
	proxy := s.sidecar.Spec.GetOutboundTrafficPolicy().GetEgressProxy()
	return xds.OutboundCluster(proxy.GetPort().GetNumber(), proxy.GetSubset(), proxy.GetHost())
}

// anonymous are the capabilities without those of the agent: what only clusters read makes no second listener, nor virtual host.
func (s *scope) anonymous() xds.Caps {
	return s.key.Caps &^ (xds.CapIdentity | xds.CapFileSecrets | xds.CapFileLists | xds.CapSelfDiscovery)
}
