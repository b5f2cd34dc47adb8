// Package traffic computes the effective traffic policy of one cluster from DestinationRules: the settings that apply,
// the TLS mode, and the discovery of endpoints. It has no state.
//
// Owns: nothing; values are immutable. Reads: records of store/model. Never: uses Envoy's protobuf; reads snapshots.
package traffic

import (
	"fmt"
	"iter"
	"unique"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// Policy is the effective traffic policy of one host, subset and port. A setting that is nil is not set. Settings
// belong to the DestinationRule or Mesh that states them, and are read-only. The fields with the suffix At name the
// object and field of a setting, for reported problems. They are zero for nil settings. A comparison of two Policies
// compares the pointers of settings.
type Policy struct {
	Pool          *networkingv1.ConnectionPoolSettings
	Outlier       *networkingv1.OutlierDetection
	Balancer      *networkingv1.LoadBalancerSettings
	TLS           *networkingv1.ClientTLSSettings
	ProxyProtocol *networkingv1.TrafficPolicy_ProxyProtocol
	RetryBudget   *networkingv1.TrafficPolicy_RetryBudget
	Tunnel        *networkingv1.TrafficPolicy_TunnelSettings

	PoolAt, OutlierAt, BalancerAt, TLSAt, ProxyProtocolAt, RetryBudgetAt, TunnelAt model.Place
}

// Ref is an interned Policy. Equal policies have equal Refs, and a Ref has the size of a pointer. The zero Ref stands
// for the zero Policy.
type Ref struct{ handle unique.Handle[Policy] }

// Intern returns the Ref of a Policy.
func Intern(p Policy) Ref {
	if p == (Policy{}) {
		return Ref{}
	}
	return Ref{unique.Make(p)}
}

// Get returns the Policy of the Ref.
func (r Ref) Get() Policy {
	if r == (Ref{}) {
		return Policy{}
	}
	return r.handle.Value()
}

// Effective returns the policy of a host, subset and port. The parameter rule is the DestinationRule of the host. The
// DestinationRule subsetRule defines the subset, at the given index of its spec.subsets. Both rules may be nil. Without
// subsetRule the index is ignored. Effective panics if subsetRule has no subset at the index.
//
// Each setting of the subset's policy replaces the same setting of the host's policy. If a policy has portLevelSettings
// for the port, they replace the whole policy. Settings that are missing in the portLevelSettings are not set
// (https://istio.io/latest/docs/reference/config/networking/destination-rule/#TrafficPolicy, portLevelSettings). If the
// subset's policy has portLevelSettings for the port, they also replace all settings of the host's policy that can be
// port-level (istio: pilot/pkg/networking/util, MergeSubsetTrafficPolicy).
func Effective(rule, subsetRule *model.DestinationRule, index int, port uint32) Policy {
	var p Policy
	if rule != nil && rule.Spec.GetTrafficPolicy() != nil {
		p, _ = ofPort(rule.Spec.TrafficPolicy, port, model.Place{Key: rule.Key, Field: "spec.trafficPolicy"})
	}
	if subsetRule == nil || subsetRule.Spec.GetSubsets()[index].GetTrafficPolicy() == nil {
		return p
	}
	over, whole := ofPort(subsetRule.Spec.Subsets[index].TrafficPolicy, port,
		model.Place{Key: subsetRule.Key, Field: fmt.Sprintf("spec.subsets[%d].trafficPolicy", index)})
	if whole {
		p = p.withoutPortSettings()
	}
	return p.overriddenBy(over)
}

// ofPort returns the policy of a host or subset for a port. The parameter at is the place of the host's or subset's
// trafficPolicy. The result whole reports whether the policy comes from portLevelSettings.
func ofPort(tp *networkingv1.TrafficPolicy, port uint32, at model.Place) (p Policy, whole bool) {
	for i, s := range tp.GetPortLevelSettings() {
		if s.GetPort().GetNumber() == port {
			p = Policy{Pool: s.ConnectionPool, Outlier: s.OutlierDetection, Balancer: s.LoadBalancer, TLS: s.Tls}
			return p.withPlaces(Within(at, fmt.Sprintf("portLevelSettings[%d]", i))), true
		}
	}
	p = Policy{
		Pool: tp.GetConnectionPool(), Outlier: tp.GetOutlierDetection(), Balancer: tp.GetLoadBalancer(), TLS: tp.GetTls(),
		ProxyProtocol: tp.GetProxyProtocol(), RetryBudget: tp.GetRetryBudget(), Tunnel: tp.GetTunnel(),
	}
	return p.withPlaces(at), false
}

// withPlaces returns a copy of p with the places of all settings that are not nil. The parameter at is the place of the
// policy.
func (p Policy) withPlaces(at model.Place) Policy {
	if p.Pool != nil {
		p.PoolAt = Within(at, "connectionPool")
	}
	if p.ProxyProtocol != nil {
		p.ProxyProtocolAt = Within(at, "proxyProtocol")
	}
	if p.RetryBudget != nil {
		p.RetryBudgetAt = Within(at, "retryBudget")
	}
	if p.Outlier != nil {
		p.OutlierAt = Within(at, "outlierDetection")
	}
	if p.Balancer != nil {
		p.BalancerAt = Within(at, "loadBalancer")
	}
	if p.TLS != nil {
		p.TLSAt = Within(at, "tls")
	}
	if p.Tunnel != nil {
		p.TunnelAt = Within(at, "tunnel")
	}
	return p
}

// withoutPortSettings returns a copy of p that has only the settings that cannot be port-level.
func (p Policy) withoutPortSettings() Policy {
	return Policy{ProxyProtocol: p.ProxyProtocol, RetryBudget: p.RetryBudget, Tunnel: p.Tunnel,
		ProxyProtocolAt: p.ProxyProtocolAt, RetryBudgetAt: p.RetryBudgetAt, TunnelAt: p.TunnelAt}
}

// overriddenBy returns a copy of p in which the settings of over replace those of p. If over lacks a setting, the
// setting of p stays.
func (p Policy) overriddenBy(over Policy) Policy {
	if over.Pool != nil {
		p.Pool, p.PoolAt = over.Pool, over.PoolAt
	}
	if over.Outlier != nil {
		p.Outlier, p.OutlierAt = over.Outlier, over.OutlierAt
	}
	if over.Balancer != nil {
		p.Balancer, p.BalancerAt = over.Balancer, over.BalancerAt
	}
	if over.TLS != nil {
		p.TLS, p.TLSAt = over.TLS, over.TLSAt
	}
	if over.ProxyProtocol != nil {
		p.ProxyProtocol, p.ProxyProtocolAt = over.ProxyProtocol, over.ProxyProtocolAt
	}
	if over.RetryBudget != nil {
		p.RetryBudget, p.RetryBudgetAt = over.RetryBudget, over.RetryBudgetAt
	}
	if over.Tunnel != nil {
		p.Tunnel, p.TunnelAt = over.Tunnel, over.TunnelAt
	}
	return p
}

// Over returns a copy of p with the mesh's connection pool and outlier detection (defaultTrafficPolicy), if p lacks
// them. A setting that p has is not merged with the mesh's
// (https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#MeshConfig-DefaultTrafficPolicy).
func (p Policy) Over(mesh *model.Mesh) Policy {
	base := mesh.Spec.GetDefaultTrafficPolicy()
	at := model.Place{Key: model.MeshKey, Field: "data.mesh.defaultTrafficPolicy"}
	if p.Pool == nil && base.GetConnectionPool() != nil {
		p.Pool, p.PoolAt = base.GetConnectionPool(), Within(at, "connectionPool")
	}
	if p.Outlier == nil && base.GetOutlierDetection() != nil {
		p.Outlier, p.OutlierAt = base.GetOutlierDetection(), Within(at, "outlierDetection")
	}
	return p
}

// Within returns the place of a field inside the field that the parameter at names.
func Within(at model.Place, field string) model.Place {
	return model.Place{Key: at.Key, Field: at.Field + "." + field}
}

// Settings is a traffic policy of a host, a subset or a port, reduced to three of its settings. A method returns nil if
// the policy does not have the setting.
type Settings interface {
	GetLoadBalancer() *networkingv1.LoadBalancerSettings
	GetOutlierDetection() *networkingv1.OutlierDetection
	GetTls() *networkingv1.ClientTLSSettings
}

// At is the position of a traffic policy in a rule. The function All yields such positions.
type At struct {
	subset int // index of the subset; -1: the policy of the host
	port   int // index in portLevelSettings; -1: the policy of all ports
}

// String returns the path of the policy's field, such as spec.subsets[0].trafficPolicy.portLevelSettings[1].
func (a At) String() string {
	path := "spec"
	if a.subset >= 0 {
		path += fmt.Sprintf(".subsets[%d]", a.subset)
	}
	if path += ".trafficPolicy"; a.port >= 0 {
		path += fmt.Sprintf(".portLevelSettings[%d]", a.port)
	}
	return path
}

// All iterates over the traffic policies of a rule. The policy of the host comes first, and then the policies of the
// subsets. The portLevelSettings of a policy follow directly after the policy. All leaves out missing policies, and
// allocates no memory for a policy.
func All(rule *networkingv1.DestinationRule) iter.Seq2[At, Settings] {
	return func(yield func(At, Settings) bool) {
		level := func(subset int, policy *networkingv1.TrafficPolicy) bool {
			if policy == nil {
				return true
			}
			if !yield(At{subset, -1}, policy) {
				return false
			}
			for i, port := range policy.GetPortLevelSettings() {
				if !yield(At{subset, i}, port) {
					return false
				}
			}
			return true
		}
		if !level(-1, rule.GetTrafficPolicy()) {
			return
		}
		for i, subset := range rule.GetSubsets() {
			if !level(i, subset.GetTrafficPolicy()) {
				return
			}
		}
	}
}

// Localities returns the settings for load balancing by locality. The settings are from the policy, or else from the
// service's traffic distribution, or else from the mesh. The parameter selfDiscovery is true if the proxy has a cluster
// for its own workload. Enabled zone-aware settings apply only to such proxies, and have priority over other settings
// of the same object
// (https://istio.io/latest/docs/reference/config/networking/destination-rule/#ZoneAwareLoadBalancerSetting). The result
// is zero if there are no such settings, or if they are disabled. Settings of the policy or the mesh that are not
// zone-aware need distribute or outlier detection. If both are missing, the result is zero too.
func (p Policy) Localities(service *model.Service, mesh *model.Mesh, selfDiscovery bool) Localities {
	zones := p.Balancer.GetZoneAwareLbSetting()
	if zones == nil && p.Balancer.GetLocalityLbSetting() == nil && DistributionOf(service) == nil {
		zones = mesh.Spec.GetZoneAwareLbSetting()
	}
	if selfDiscovery && zones.GetEnabled().GetValue() {
		return Localities{Zones: zones}
	}
	return Localities{Setting: p.locality(service, mesh)}
}

// locality returns the settings that are not zone-aware; nil means no preference. Settings without `distribute` require
// outlier detection. Without outlier detection, Envoy would never use a lower priority. A service's traffic
// distribution does not require outlier detection
// (https://istio.io/latest/docs/reference/config/networking/destination-rule/#LocalityLoadBalancerSetting).
func (p Policy) locality(service *model.Service, mesh *model.Mesh) *networkingv1.LocalityLoadBalancerSetting {
	setting := p.Balancer.GetLocalityLbSetting()
	if preferred := DistributionOf(service); setting == nil && preferred != nil {
		return preferred
	}
	if setting == nil {
		setting = mesh.Spec.GetLocalityLbSetting()
	}
	off := setting == nil || setting.Enabled != nil && !setting.Enabled.Value
	if off || len(setting.GetDistribute()) == 0 && p.Outlier == nil {
		return nil
	}
	return setting
}

// distributions maps the traffic distribution of a service to a setting of localities (istio:
// pilot/pkg/networking/core/loadbalancer, GetLocalityLbSetting).
var distributions = map[model.Distribution]*networkingv1.LocalityLoadBalancerSetting{
	model.Distribution_DISTRIBUTION_SAME_ZONE: {FailoverPriority: []string{
		model.NetworkLabel, model.RegionLabel, model.ZoneLabel}},
	model.Distribution_DISTRIBUTION_SAME_NODE: {FailoverPriority: []string{
		model.NetworkLabel, model.RegionLabel, model.ZoneLabel, model.SubzoneLabel, model.NodeLabel}},
}

// DistributionOf returns the settings of a service's traffic distribution, or nil if the service does not set one.
// All services with the same distribution get the same pointer. The result is read-only.
func DistributionOf(service *model.Service) *networkingv1.LocalityLoadBalancerSetting {
	return distributions[service.Spec.GetDistribution()]
}
