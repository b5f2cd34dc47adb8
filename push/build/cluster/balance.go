package cluster

//lint:file-ignore SA1019 users' YAML and deployed proxies still use deprecated fields

import (
	"math/big"
	"strconv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	upstreamsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typematcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// setOutlierDetection sets passive health checking. Success rates are never enforced. A threshold of 0 disables its
// check, except that for local origin failures 0 means Envoy's default.
func (d *builder) setOutlierDetection(p traffic.Policy) {
	o := p.Outlier
	if o == nil {
		return
	}
	out := &clusterv3.OutlierDetection{EnforcingSuccessRate: wrapperspb.UInt32(0)}
	d.OutlierDetection = out
	five := o.Consecutive_5XxErrors
	if five == nil && o.ConsecutiveGatewayErrors == nil && o.ConsecutiveErrors > 0 {
		five = wrapperspb.UInt32(uint32(o.ConsecutiveErrors)) // deprecated
	}
	enforcing := func(n *wrapperspb.UInt32Value) *wrapperspb.UInt32Value {
		if n.GetValue() == 0 {
			return wrapperspb.UInt32(0)
		}
		return wrapperspb.UInt32(100)
	}
	if five != nil {
		out.Consecutive_5Xx, out.EnforcingConsecutive_5Xx = five, enforcing(five)
	}
	if n := o.ConsecutiveGatewayErrors; n != nil {
		out.ConsecutiveGatewayFailure, out.EnforcingConsecutiveGatewayFailure = n, enforcing(n)
	}
	if n := o.FailurePercentageThreshold; n != nil {
		out.FailurePercentageThreshold, out.EnforcingFailurePercentage = n, enforcing(n)
	}
	if traffic.Positive(o.Interval) {
		out.Interval = o.Interval
	}
	if traffic.Positive(o.BaseEjectionTime) {
		out.BaseEjectionTime = o.BaseEjectionTime
	}
	if o.MaxEjectionPercent > 0 {
		out.MaxEjectionPercent = wrapperspb.UInt32(uint32(min(o.MaxEjectionPercent, 100)))
	}
	if o.SplitExternalLocalOriginErrors {
		out.SplitExternalLocalOriginErrors = true
		out.EnforcingLocalOriginSuccessRate = wrapperspb.UInt32(0)
		if n := o.ConsecutiveLocalOriginFailures; n.GetValue() > 0 {
			out.ConsecutiveLocalOriginFailure, out.EnforcingConsecutiveLocalOriginFailure = n, wrapperspb.UInt32(100)
		}
	}
	d.CommonLbConfig.HealthyPanicThreshold = percent(float64(o.MinHealthPercent))
	d.setErrorCodes(o.OutlierDetectionHttpErrorCodes)
}

// setErrorCodes sets the HTTP status codes that count as errors. Without codes, Envoy counts 5xx.
func (d *builder) setErrorCodes(codes []uint32) {
	var any []*matcherv3.MatchPredicate
	for _, code := range codes {
		any = append(any, &matcherv3.MatchPredicate{Rule: &matcherv3.MatchPredicate_HttpResponseHeadersMatch{
			HttpResponseHeadersMatch: &matcherv3.HttpHeadersMatch{Headers: []*routev3.HeaderMatcher{{
				Name: ":status",
				HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &typematcherv3.StringMatcher{
					MatchPattern: &typematcherv3.StringMatcher_Exact{Exact: strconv.FormatUint(uint64(code), 10)}}},
			}}},
		}})
	}
	match := &matcherv3.MatchPredicate{Rule: &matcherv3.MatchPredicate_OrMatch{OrMatch: &matcherv3.MatchPredicate_MatchSet{Rules: any}}}
	switch len(any) {
	case 0:
		return
	case 1: // Envoy requires at least two elements in a set
		match = any[0]
	}
	d.httpOptions().OutlierDetection = &upstreamsv3.HttpProtocolOptions_OutlierDetection{ErrorMatcher: match}
}

// setLoadBalancer sets the load balancer. ORIGINAL_DST clusters do not balance, so the setting does not apply to them.
func (d *builder) setLoadBalancer(p traffic.Policy) {
	lb := p.Balancer
	if d.GetType() == clusterv3.Cluster_ORIGINAL_DST {
		return
	}
	if hash := lb.GetConsistentHash(); hash != nil {
		d.setConsistentHash(hash, p.BalancerAt)
		return
	}
	switch lb.GetSimple() {
	case networkingv1.LoadBalancerSettings_RANDOM:
		d.LbPolicy = clusterv3.Cluster_RANDOM
	case networkingv1.LoadBalancerSettings_ROUND_ROBIN:
		d.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
		if slow := slowStart(lb); slow != nil {
			d.LbConfig = &clusterv3.Cluster_RoundRobinLbConfig_{RoundRobinLbConfig: &clusterv3.Cluster_RoundRobinLbConfig{SlowStartConfig: slow}}
		}
	default:
		d.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
		if slow := slowStart(lb); slow != nil {
			config := &clusterv3.Cluster_LeastRequestLbConfig{SlowStartConfig: slow}
			d.LbConfig = &clusterv3.Cluster_LeastRequestLbConfig_{LeastRequestLbConfig: config}
		}
	}
}

// These are the sizes of the largest hash tables that Envoy supports. The validators of Envoy's API do not check sizes.
// Envoy refuses larger tables or crashes
// (https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/cluster/v3/cluster.proto).
const (
	maxTable = 5000011 // size of a Maglev table; must be a prime
	maxRing  = 8388608 // size of a ring
)

// slowStartKey is the runtime key of the warm-up's aggression. Envoy requires a key, and Istio sends this one. No
// runtime sets a value for the key.
const slowStartKey = "("

// slowStart encodes the warm-up of new endpoints. It returns nil if lb has no warm-up with a positive duration. By
// Istio's defaults the traffic grows linearly from 10 %.
func slowStart(lb *networkingv1.LoadBalancerSettings) *clusterv3.Cluster_SlowStartConfig {
	w := lb.GetWarmup()
	if w == nil {
		if t := lb.GetWarmupDurationSecs(); traffic.Positive(t) {
			return &clusterv3.Cluster_SlowStartConfig{SlowStartWindow: t}
		}
		return nil
	}
	if !traffic.Positive(w.Duration) {
		return nil
	}
	aggression := 1.0
	if a := w.Aggression.GetValue(); a > 0 {
		aggression = a
	}
	least := percent(10)
	if w.MinimumPercent != nil {
		least = percent(w.MinimumPercent.Value)
	}
	return &clusterv3.Cluster_SlowStartConfig{
		SlowStartWindow:  w.Duration,
		Aggression:       &corev3.RuntimeDouble{DefaultValue: aggression, RuntimeKey: slowStartKey},
		MinWeightPercent: least,
	}
}

// setConsistentHash sets a consistent-hash balancer. The routes state the key to hash. The argument place is the
// position of the balancer's settings, for problems.
func (d *builder) setConsistentHash(h *networkingv1.LoadBalancerSettings_ConsistentHashLB, place model.Place) {
	if m := h.GetMaglev(); m != nil {
		d.LbPolicy = clusterv3.Cluster_MAGLEV
		switch size := m.TableSize; {
		case size == 0:
		case size > maxTable || !new(big.Int).SetUint64(size).ProbablyPrime(0):
			d.report(problem.Invalid, traffic.Within(place, "consistentHash.maglev.tableSize"),
				"%d: want a prime of at most %d; Envoy's default is used", size, maxTable)
		default:
			config := &clusterv3.Cluster_MaglevLbConfig{TableSize: wrapperspb.UInt64(size)}
			d.LbConfig = &clusterv3.Cluster_MaglevLbConfig_{MaglevLbConfig: config}
		}
		return
	}
	size := h.GetRingHash().GetMinimumRingSize()
	if size == 0 {
		size = h.MinimumRingSize // deprecated
	}
	if size == 0 {
		size = 1024
	}
	if size > maxRing {
		d.report(problem.Invalid, traffic.Within(place, "consistentHash"), "minimumRingSize %d: at most %d, which is used", size, maxRing)
		size = maxRing
	}
	d.LbPolicy = clusterv3.Cluster_RING_HASH
	config := &clusterv3.Cluster_RingHashLbConfig{MinimumRingSize: wrapperspb.UInt64(size)}
	d.LbConfig = &clusterv3.Cluster_RingHashLbConfig_{RingHashLbConfig: config}
}
