package cluster

import (
	"fmt"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// policy is the traffic policy that holds for one cluster, and where its parts stand (for problems). Parts may be nil.
type policy struct {
	pool        *networkingv1.ConnectionPoolSettings
	outlier     *networkingv1.OutlierDetection
	balancer    *networkingv1.LoadBalancerSettings
	tls         *networkingv1.ClientTLSSettings
	proxy       *networkingv1.TrafficPolicy_ProxyProtocol
	retryBudget *networkingv1.TrafficPolicy_RetryBudget
	tunnel      *networkingv1.TrafficPolicy_TunnelSettings

	poolAt, outlierAt, balancerAt, tlsAt, tunnelAt place
}

// place is where a setting stands: a field of a record.
type place struct {
	key   model.Key
	field string
}

func (at place) dot(field string) place { return place{at.key, at.field + "." + field} }

// sibling is another field of the message that the place is in.
func (at place) sibling(field string) place {
	return place{at.key, at.field[:strings.LastIndexByte(at.field, '.')+1] + field}
}

// effective finds the policy of (rule, subset, port): the subset's settings stand over the host's, setting by setting;
// settings of the port stand in the place of all others of their level, unset ones included
// (https://istio.io/latest/docs/reference/config/networking/destination-rule/#TrafficPolicy, portLevelSettings).
func effective(rule, subsetRule *model.DestinationRule, subset string, port uint32) policy {
	var p policy
	if rule != nil {
		p, _ = ofPort(rule.Spec.TrafficPolicy, port, place{rule.Key, "spec.trafficPolicy"})
	}
	if subset == "" || subsetRule == nil {
		return p
	}
	for i, s := range subsetRule.Spec.Subsets {
		if s.Name != subset || s.TrafficPolicy == nil {
			continue
		}
		over, whole := ofPort(s.TrafficPolicy, port, place{subsetRule.Key, fmt.Sprintf("spec.subsets[%d].trafficPolicy", i)})
		if whole {
			return over
		}
		return p.under(over)
	}
	return p
}

// ofPort is the policy of one port; whole: it is that port's own.
func ofPort(tp *networkingv1.TrafficPolicy, port uint32, at place) (p policy, whole bool) {
	for i, s := range tp.GetPortLevelSettings() {
		if s.GetPort().GetNumber() == port {
			at = at.dot(fmt.Sprintf("portLevelSettings[%d]", i))
			p = policy{pool: s.ConnectionPool, outlier: s.OutlierDetection, balancer: s.LoadBalancer, tls: s.Tls}
			return p.located(at), true
		}
	}
	p = policy{
		pool: tp.GetConnectionPool(), outlier: tp.GetOutlierDetection(), balancer: tp.GetLoadBalancer(), tls: tp.GetTls(),
		proxy: tp.GetProxyProtocol(), retryBudget: tp.GetRetryBudget(), tunnel: tp.GetTunnel(),
	}
	return p.located(at), false
}

func (p policy) located(at place) policy {
	p.poolAt = at.dot("connectionPool")
	p.outlierAt, p.balancerAt, p.tlsAt, p.tunnelAt = at.dot("outlierDetection"), at.dot("loadBalancer"), at.dot("tls"), at.dot("tunnel")
	return p
}

// under is p with the parts that `over` has in their place.
func (p policy) under(over policy) policy {
	if over.pool != nil {
		p.pool, p.poolAt = over.pool, over.poolAt
	}
	if over.outlier != nil {
		p.outlier, p.outlierAt = over.outlier, over.outlierAt
	}
	if over.balancer != nil {
		p.balancer, p.balancerAt = over.balancer, over.balancerAt
	}
	if over.tls != nil {
		p.tls, p.tlsAt = over.tls, over.tlsAt
	}
	if over.proxy != nil {
		p.proxy = over.proxy
	}
	if over.retryBudget != nil {
		p.retryBudget = over.retryBudget
	}
	if over.tunnel != nil {
		p.tunnel, p.tunnelAt = over.tunnel, over.tunnelAt
	}
	return p
}
