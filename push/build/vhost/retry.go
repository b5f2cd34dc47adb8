package vhost

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previoushostsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	previousprioritiesv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// statusCodes is Envoy's retry condition for the status codes of RetryPolicy.RetriableStatusCodes.
const statusCodes = "retriable-status-codes"

// meshRetries returns the retry policy for rules without one: the mesh's, or else the default of MeshConfig.
func (d *routeBuilder) meshRetries() *networkingv1.HTTPRetry {
	if d.Mesh != nil && d.Mesh.Spec.GetDefaultHttpRetryPolicy() != nil {
		return d.Mesh.Spec.DefaultHttpRetryPolicy
	}
	return model.DefaultMesh().Spec.DefaultHttpRetryPolicy
}

// retryPolicy encodes a retry policy. It returns nil if attempts is 0, which switches retries off. The result permits
// at most model.MostRetries retries. If hashed is false, a retry prefers a host that was not tried yet. If hashed is
// true, consistent hashing selects the same host again. The policy's field retryIgnorePreviousHosts overrides hashed
// (https://istio.io/latest/docs/reference/config/networking/virtual-service/#HTTPRetry).
func retryPolicy(in *networkingv1.HTTPRetry, hashed bool) *routev3.RetryPolicy {
	if in.GetAttempts() <= 0 {
		return nil
	}
	out := &routev3.RetryPolicy{
		NumRetries:                    wrapperspb.UInt32(uint32(min(in.GetAttempts(), model.MostRetries))),
		HostSelectionRetryMaxAttempts: 5,
		PerTryTimeout:                 duration(in.GetPerTryTimeout()),
	}
	on := in.GetRetryOn()
	if on == "" {
		on = model.DefaultMesh().Spec.DefaultHttpRetryPolicy.RetryOn
	}
	out.RetryOn, out.RetriableStatusCodes = splitRetryOn(on)
	elsewhere := !hashed
	if in.GetRetryIgnorePreviousHosts() != nil {
		elsewhere = in.GetRetryIgnorePreviousHosts().GetValue()
	}
	if elsewhere {
		out.RetryHostPredicate = []*routev3.RetryPolicy_RetryHostPredicate{{
			Name: "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{
				TypedConfig: xds.Any(&previoushostsv3.PreviousHostsPredicate{}),
			},
		}}
	}
	if in.GetRetryRemoteLocalities().GetValue() {
		out.RetryPriority = &routev3.RetryPolicy_RetryPriority{
			Name: "envoy.retry_priorities.previous_priorities",
			ConfigType: &routev3.RetryPolicy_RetryPriority_TypedConfig{
				TypedConfig: xds.Any(&previousprioritiesv3.PreviousPrioritiesConfig{UpdateFrequency: 2}),
			},
		}
	}
	if b := duration(in.GetBackoff()); b != nil && b.AsDuration() > 0 {
		out.RetryBackOff = &routev3.RetryPolicy_RetryBackOff{BaseInterval: b}
	}
	return out
}

// splitRetryOn splits a retryOn list into Envoy's conditions and HTTP status codes. If there are status codes, the
// conditions include retriable-status-codes, which Envoy requires for them.
func splitRetryOn(on string) (string, []uint32) {
	var words []string
	var codes []uint32
	for part := range strings.SplitSeq(on, ",") {
		part = strings.TrimSpace(part)
		if code, err := strconv.Atoi(part); err == nil && http.StatusText(code) != "" {
			codes = append(codes, uint32(code))
		} else if part != "" {
			words = append(words, part)
		}
	}
	if len(codes) > 0 && !slices.Contains(words, statusCodes) {
		words = append(words, statusCodes)
	}
	return strings.Join(words, ","), codes
}

// addHash adds the hash policy of a destination to action, unless action has an equal one. It reports whether the
// destination has a hash policy.
func addHash(action *routev3.RouteAction, dest Destination) bool {
	policy := hashPolicy(dest.Hash)
	if policy == nil {
		return false
	}
	if !slices.ContainsFunc(action.HashPolicy, func(p *routev3.RouteAction_HashPolicy) bool { return proto.Equal(p, policy) }) {
		action.HashPolicy = append(action.HashPolicy, policy)
	}
	return true
}

// hashPolicy encodes the key of a consistent hash. It returns nil if there is no key that Envoy accepts.
func hashPolicy(in *networkingv1.LoadBalancerSettings_ConsistentHashLB) *routev3.RouteAction_HashPolicy {
	out := &routev3.RouteAction_HashPolicy{}
	switch key := in.GetHashKey().(type) {
	case *networkingv1.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName:
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_Header_{
			Header: &routev3.RouteAction_HashPolicy_Header{HeaderName: key.HttpHeaderName},
		}
	case *networkingv1.LoadBalancerSettings_ConsistentHashLB_HttpCookie:
		cookie := &routev3.RouteAction_HashPolicy_Cookie{
			Name: key.HttpCookie.GetName(), Path: key.HttpCookie.GetPath(), Ttl: duration(key.HttpCookie.GetTtl()),
		}
		for _, a := range key.HttpCookie.GetAttributes() {
			cookie.Attributes = append(cookie.Attributes, &routev3.RouteAction_HashPolicy_CookieAttribute{Name: a.GetName(), Value: a.GetValue()})
		}
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_Cookie_{Cookie: cookie}
	case *networkingv1.LoadBalancerSettings_ConsistentHashLB_UseSourceIp:
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_ConnectionProperties_{
			ConnectionProperties: &routev3.RouteAction_HashPolicy_ConnectionProperties{SourceIp: key.UseSourceIp},
		}
	case *networkingv1.LoadBalancerSettings_ConsistentHashLB_HttpQueryParameterName:
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_QueryParameter_{
			QueryParameter: &routev3.RouteAction_HashPolicy_QueryParameter{Name: key.HttpQueryParameterName},
		}
	default:
		return nil
	}
	if out.ValidateAll() != nil {
		return nil
	}
	return out
}
