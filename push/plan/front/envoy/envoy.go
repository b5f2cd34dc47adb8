// Package envoy contains the common parts of the fronts for Envoys. A front plans the listeners and route
// configurations of one kind of proxy. The common parts are the clusters that every Envoy has, the resources that
// EnvoyFilters add, and the traffic to unknown destinations.
//
// Owns: nothing. Reads: plan/input. Never: plans a host, or the listeners of a single kind of proxy.
package envoy

import (
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/dnscache"
	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/plan/routes"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Outbound describes the outbound side of a scope of Envoys, without its hosts. A scope is the outbound configuration
// of a group of proxies. Only the planner's goroutine may use an Outbound.
type Outbound struct {
	In      *input.Input                          // the stored configuration, as the plan reads it
	Layer   *layer.Layer                          // receives the resources
	Key     view.Scope                            // the key of the scope
	Side    networkingv1.EnvoyFilter_PatchContext // the context of the side in EnvoyFilters
	Patches input.PatchSet                        // the patches of the proxies
	Sidecar *model.Sidecar                        // may be nil; its outboundTrafficPolicy overrides the mesh's
}

// PlanStatic plans the clusters that every Envoy has, except those that a patch removes. For proxies with
// xds.CapSelfDiscovery it also plans an empty assignment for the cluster of the proxies' own workload. Envoy waits for
// this assignment before it requests other resources. host.Variation replaces the assignment for proxies whose service
// is known. Problems are appended to found.
func (o Outbound) PlanStatic(found *[]input.Problem) {
	if o.Key.Caps.Has(xds.CapSelfDiscovery) {
		o.Fixed(endpoint.Spec{Cluster: xds.LocalCluster, AllPlain: true}, found)
	}
	for _, name := range o.staticClusters() {
		if o.Patches.RemovesCluster(o.Side, name) {
			continue
		}
		connection := traffic.PassthroughConnection(o.In.Meshes.Cluster)
		if name == xds.BlackHole { // the cluster forwards no connections
			connection = traffic.ConnectionOf(nil, o.In.Meshes.Cluster)
		}
		patches := o.Patches.Matching(func(p model.Patch) bool { return input.MergesCluster(p, o.Side, name) })
		spec := cluster.Static{Name: name, HeaderCase: o.Key.HeaderCase, Connection: connection, Mesh: o.In.Meshes.Cluster, Patches: patches}
		if name == xds.AllowAnyDynamic {
			o.resolving(&spec, found)
		}
		o.Fixed(spec, found)
	}
}

// staticClusters returns the names of the clusters of PlanStatic. If the proxies resolve the names of unknown hosts,
// the list includes a cluster for unknown hosts.
func (o Outbound) staticClusters() []string {
	if o.Key.Kind == view.Router { // no connections are redirected to a router, so it needs no passthrough
		return []string{xds.BlackHole}
	}
	if o.Unknown().ByName {
		return []string{xds.BlackHole, xds.Passthrough, xds.AllowAnyDynamic}
	}
	return []string{xds.BlackHole, xds.Passthrough}
}

// resolving sets the fields that only the cluster for unknown hosts has.
func (o Outbound) resolving(spec *cluster.Static, found *[]input.Problem) {
	policy := traffic.Policy{TLS: o.In.Mesh.Spec.GetOutboundTrafficPolicy().GetTls(),
		TLSAt: model.Place{Key: model.MeshKey, Field: "data.mesh.outboundTrafficPolicy.tls"}}
	client := traffic.Client{Identity: o.Key.Caps.Has(xds.CapIdentity)}
	var wrong *model.Problem
	if spec.TLS, wrong = traffic.TLSOf(policy, client, traffic.Plaintext); wrong != nil {
		*found = append(*found, *wrong)
	}
	spec.Unknown, spec.Families, spec.Policy = o.Unknown(), o.Key.Listening.Families, traffic.Intern(policy)
	if policy.TLS != nil {
		spec.Caps = o.Key.Caps & (xds.CapIdentity | xds.CapFileSecrets | xds.CapFileLists)
	}
}

// Fixed plans a resource that is constant during the life of the scope, and stores it in Layer. If an EnvoyFilter has
// added a resource of the same type and name (PlanAdded), Fixed keeps that resource. A Spec that cannot be built is
// left out. Problems are appended to found.
func (o Outbound) Fixed(spec pool.ResourceSpec, found *[]input.Problem) {
	if u, ok := o.In.Make(spec, model.MeshKey, found); ok && !o.Layer.Reserved(u.Res) {
		o.Layer.Add(u)
	}
}

// PlanAdded plans the clusters, listeners and filter configurations (ECDS) that EnvoyFilters add. It calls the function
// use with the name of each route configuration that an added listener requests, once for each listener. Problems are
// appended to found.
func (o Outbound) PlanAdded(use func(name string), found *[]input.Problem) {
	for u := range o.In.Added(o.Patches, o.Side, found) {
		o.Layer.Reserve(u)
		for _, ref := range u.Res.Needs {
			if ref.Type == xds.Route {
				use(ref.Name)
			}
		}
	}
	for u := range o.In.AddedExtensions(o.Patches, found) {
		o.Layer.Reserve(u)
	}
}

// Removals calls the function yield for each pair of a patch and a cluster of PlanStatic that the patch removes.
func (o Outbound) Removals(yield func(input.Removal)) {
	removing := o.Patches.Removing()
	if len(removing) == 0 {
		return
	}
	for _, name := range o.staticClusters() {
		removes := func(p model.Patch) bool { return input.RemovesCluster(p, o.Side, name) }
		removing.Removals(xds.Ref{Type: xds.Cluster, Name: name}, removes, yield)
	}
}

// policy returns the Sidecar's outboundTrafficPolicy, or nil.
func (o Outbound) policy() *networkingv1.OutboundTrafficPolicy {
	if o.Sidecar == nil {
		return nil
	}
	return o.Sidecar.Spec.GetOutboundTrafficPolicy()
}

// Unknown returns the settings of traffic to hosts that are not in the configuration. ByName is true if the proxies
// resolve the names of unknown hosts. The mode ALLOW_ANY_DYNAMIC_DNS of MeshConfig enables ByName, and an
// outboundTrafficPolicy of the Sidecar disables it
// (https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#MeshConfig-OutboundTrafficPolicy-Mode). For
// proxies without xds.CapDynamicForward (the extension that resolves names), the mode has the effect of ALLOW_ANY. If
// ByName is false, the result is zero.
func (o Outbound) Unknown() dnscache.Unknown {
	if o.policy() != nil || !o.Key.Caps.Has(xds.CapDynamicForward) ||
		o.In.Mesh.Spec.GetOutboundTrafficPolicy().GetMode() != meshv1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS {
		return dnscache.Unknown{}
	}
	return dnscache.Unknown{ByName: true, Resolver: o.Key.NameServer()}
}

// Passthrough reports whether connections to unknown destinations are forwarded. With an outboundTrafficPolicy of the
// Sidecar they are forwarded for mode ALLOW_ANY. Without this policy they are forwarded unless the mode of the mesh is
// REGISTRY_ONLY.
func (o Outbound) Passthrough() bool {
	if p := o.policy(); p != nil {
		return p.GetMode() == networkingv1.OutboundTrafficPolicy_ALLOW_ANY
	}
	return o.In.Mesh.Spec.GetOutboundTrafficPolicy().GetMode() != meshv1.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY
}

// EgressProxy returns the name of the cluster that receives traffic to unknown destinations. The field egressProxy of
// the Sidecar's outboundTrafficPolicy names its host. It returns "" if no egressProxy is set. The cluster exists only
// if the Sidecar imports the host. Without the cluster, Envoy closes the connections
// (https://istio.io/latest/docs/reference/config/networking/sidecar/#OutboundTrafficPolicy).
func (o Outbound) EgressProxy() string {
	proxy := o.policy().GetEgressProxy()
	if proxy == nil {
		return ""
	}
	return xds.OutboundCluster(proxy.GetPort().GetNumber(), proxy.GetSubset(), proxy.GetHost())
}

// CatchAll returns the Spec of the virtual host for unknown hosts in a route configuration, without patches. The result
// is false if c.OneHost is set. The route configuration then has a single virtual host for all names.
func (o Outbound) CatchAll(c routes.Config) (vhost.CatchAll, bool) {
	if c.OneHost {
		return vhost.CatchAll{}, false
	}
	spec := vhost.CatchAll{Passthrough: o.Passthrough(), EgressProxy: o.EgressProxy(), ByName: o.Unknown().ByName,
		Proxy: o.Key.Routes}
	spec.Sent = spec.ByName && o.In.Mesh.Spec.GetOutboundTrafficPolicy().GetTls().GetMode() == networkingv1.ClientTLSSettings_DISABLE
	if c.WithPorts { // passthrough of a request to the HTTP proxy itself would return to the HTTP proxy, in an endless loop
		spec.Passthrough, spec.Sent = spec.Passthrough && (spec.EgressProxy != "" || spec.ByName), false
	}
	return spec, true
}

// VirtualHostCaps returns the proxy capabilities in a scope key on which virtual hosts and outbound listeners depend.
// It clears xds.CapIdentity, xds.CapFileSecrets, xds.CapFileLists, xds.CapFileOwners and xds.CapSelfDiscovery.
func VirtualHostCaps(key view.Scope) xds.Caps {
	return key.Caps &^ (xds.CapIdentity | xds.CapFileSecrets | xds.CapFileLists | xds.CapFileOwners | xds.CapSelfDiscovery)
}
