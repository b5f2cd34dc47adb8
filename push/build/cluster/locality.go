package cluster

import (
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// LocalitySetting is how localities are preferred for the cluster of (rule, subset, port): as its rules say, else as the mesh does. Nil:
// not at all. Failover needs outlier detection, or Envoy would never fall back to another priority
// (https://istio.io/latest/docs/reference/config/networking/destination-rule/#LocalityLoadBalancerSetting).
func LocalitySetting(mesh *model.Mesh, rule, subsetRule *model.DestinationRule, subset string, port uint32) *networkingv1.LocalityLoadBalancerSetting {
	balancer, outlier := localityPolicy(rule, subsetRule, subset, port)
	setting := balancer.GetLocalityLbSetting()
	if setting == nil {
		setting = mesh.Spec.GetLocalityLbSetting()
	}
	if setting == nil || setting.Enabled != nil && !setting.Enabled.Value || len(setting.GetDistribute()) == 0 && outlier == nil {
		return nil
	}
	return setting
}

// localityPolicy is the part of the effective policy that localities hang on.
func localityPolicy(rule, subsetRule *model.DestinationRule, subset string, port uint32) (*networkingv1.LoadBalancerSettings, *networkingv1.OutlierDetection) {
	var balancer *networkingv1.LoadBalancerSettings
	var outlier *networkingv1.OutlierDetection
	if rule != nil {
		balancer, outlier, _ = localityPolicyAt(rule.Spec.GetTrafficPolicy(), port)
	}
	if subset == "" || subsetRule == nil {
		return balancer, outlier
	}
	for _, s := range subsetRule.Spec.GetSubsets() {
		if s.GetName() != subset || s.GetTrafficPolicy() == nil {
			continue
		}
		b, o, whole := localityPolicyAt(s.GetTrafficPolicy(), port)
		if whole || b != nil {
			balancer = b
		}
		if whole || o != nil {
			outlier = o
		}
		break
	}
	return balancer, outlier
}

// localityPolicyAt is that of one traffic policy; whole: it is the port's own, and stands in the place of all others.
func localityPolicyAt(tp *networkingv1.TrafficPolicy, port uint32) (b *networkingv1.LoadBalancerSettings, o *networkingv1.OutlierDetection, whole bool) {
	for _, p := range tp.GetPortLevelSettings() {
		if p.GetPort().GetNumber() == port {
			return p.GetLoadBalancer(), p.GetOutlierDetection(), true
		}
	}
	return tp.GetLoadBalancer(), tp.GetOutlierDetection(), false
}
