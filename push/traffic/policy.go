// Package traffic decides the effective traffic policy of one cluster, from DestinationRules: which level's setting applies, how the cluster
// is secured, how Envoy finds its endpoints. The planner decides it once; Specs carry the result, and builders draw it.
//
// Owns: nothing; values are immutable.  Reads: records.  Never: Envoy's protobuf, snapshots.
package traffic

import (
	"fmt"
	"iter"
	"unique"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// Policy is the traffic policy that holds for one (host, subset, port). Parts may be nil; they belong to the record. Places are where the
// parts stand, for problems. Comparable.
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

// Ref is a Policy as Specs carry it: one word, equal for equal policies. The zero Ref is the empty Policy.
type Ref struct{ handle unique.Handle[Policy] }

// Intern makes the Ref of a Policy.
func Intern(p Policy) Ref {
	if p == (Policy{}) {
		return Ref{}
	}
	return Ref{unique.Make(p)}
}

// Get is the Policy.
func (r Ref) Get() Policy {
	if r == (Ref{}) {
		return Policy{}
	}
	return r.handle.Value()
}

// Effective finds the policy of (rule, subset, port): the subset's settings stand over the host's, setting by setting;
// settings of the port stand in the place of all others of their level, unset ones included
// (https://istio.io/latest/docs/reference/config/networking/destination-rule/#TrafficPolicy, portLevelSettings). Those
// of a port of the subset stand so in the place of the host's too, but for what a port has no settings of, which the
// host's are as for other ports (istio: pilot/pkg/networking/util, MergeSubsetTrafficPolicy). subsetRule is the rule
// that defines the subset, and index the place of the subset in that rule; both rules may be nil.
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
		p = p.portless()
	}
	return p.under(over)
}

// ofPort is the policy of one port; whole: it is that port's own.
func ofPort(tp *networkingv1.TrafficPolicy, port uint32, at model.Place) (p Policy, whole bool) {
	for i, s := range tp.GetPortLevelSettings() {
		if s.GetPort().GetNumber() == port {
			p = Policy{Pool: s.ConnectionPool, Outlier: s.OutlierDetection, Balancer: s.LoadBalancer, TLS: s.Tls}
			return p.located(Within(at, fmt.Sprintf("portLevelSettings[%d]", i))), true
		}
	}
	p = Policy{
		Pool: tp.GetConnectionPool(), Outlier: tp.GetOutlierDetection(), Balancer: tp.GetLoadBalancer(), TLS: tp.GetTls(),
		ProxyProtocol: tp.GetProxyProtocol(), RetryBudget: tp.GetRetryBudget(), Tunnel: tp.GetTunnel(),
	}
	return p.located(at), false
}

// located has the places of the parts that there are.
func (p Policy) located(at model.Place) Policy {
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

// portless is p with nothing but the parts that settings of a port cannot have.
func (p Policy) portless() Policy {
	return Policy{ProxyProtocol: p.ProxyProtocol, RetryBudget: p.RetryBudget, Tunnel: p.Tunnel, ProxyProtocolAt: p.ProxyProtocolAt, RetryBudgetAt: p.RetryBudgetAt, TunnelAt: p.TunnelAt}
}

// under is p with the parts that `over` has in their place.
func (p Policy) under(over Policy) Policy {
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

// Over is p with the mesh's default (defaultTrafficPolicy) for connection pool and outlier detection, where no rule says them: each as a whole
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

// Within is a field of what stands at a place.
func Within(at model.Place, field string) model.Place {
	return model.Place{Key: at.Key, Field: at.Field + "." + field}
}

// Settings is what the traffic policies of all levels have in common.
type Settings interface {
	GetLoadBalancer() *networkingv1.LoadBalancerSettings
	GetOutlierDetection() *networkingv1.OutlierDetection
	GetTls() *networkingv1.ClientTLSSettings
}

// All are the traffic policies of a rule: of the host, its subsets, and the ports of both. For those who ask what a rule may read,
// whatever cluster it is for.
func All(rule *networkingv1.DestinationRule) iter.Seq[Settings] {
	return func(yield func(Settings) bool) {
		levels := []*networkingv1.TrafficPolicy{rule.GetTrafficPolicy()}
		for _, subset := range rule.GetSubsets() {
			levels = append(levels, subset.GetTrafficPolicy())
		}
		for _, level := range levels {
			if level == nil {
				continue
			}
			if !yield(level) {
				return
			}
			for _, port := range level.GetPortLevelSettings() {
				if !yield(port) {
					return
				}
			}
		}
	}
}

// Localities is how localities are preferred: as the policy says, else as the service (its traffic distribution) or the mesh does. A zone-aware setting
// is for proxies that know their own workload's cluster alone (selfDiscovery), and goes before the other one of the same object
// (https://istio.io/latest/docs/reference/config/networking/destination-rule/#ZoneAwareLoadBalancerSetting).
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

// locality is the setting for proxies that are not zone-aware; nil: localities are not preferred.
// Failover needs outlier detection, or Envoy would never fall back to another priority, unless the service asks for it
// (https://istio.io/latest/docs/reference/config/networking/destination-rule/#LocalityLoadBalancerSetting).
func (p Policy) locality(service *model.Service, mesh *model.Mesh) *networkingv1.LocalityLoadBalancerSetting {
	setting := p.Balancer.GetLocalityLbSetting()
	if preferred := DistributionOf(service); setting == nil && preferred != nil {
		return preferred
	}
	if setting == nil {
		setting = mesh.Spec.GetLocalityLbSetting()
	}
	if setting == nil || setting.Enabled != nil && !setting.Enabled.Value || len(setting.GetDistribute()) == 0 && p.Outlier == nil {
		return nil
	}
	return setting
}

// distributions are what the traffic distributions of services come to (istio: pilot/pkg/networking/core/loadbalancer, GetLocalityLbSetting).
var distributions = map[model.Distribution]*networkingv1.LocalityLoadBalancerSetting{
	model.Distribution_DISTRIBUTION_SAME_ZONE: {FailoverPriority: []string{model.NetworkLabel, model.RegionLabel, model.ZoneLabel}},
	model.Distribution_DISTRIBUTION_SAME_NODE: {FailoverPriority: []string{model.NetworkLabel, model.RegionLabel, model.ZoneLabel, model.SubzoneLabel, model.NodeLabel}},
}

// DistributionOf is the setting that the traffic distribution of a service comes to, the same pointer for all of one kind; nil: none.
func DistributionOf(service *model.Service) *networkingv1.LocalityLoadBalancerSetting {
	return distributions[service.Spec.GetDistribution()]
}
