package cluster

import (
	"math"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/traffic"
)

// setConnectionPool sets the limits and lifetimes of connections. If the argument settings does not state a limit, the
// limit is the highest possible value, as in Istio.
func (d *builder) setConnectionPool(
	settings *networkingv1.ConnectionPoolSettings, budget *networkingv1.TrafficPolicy_RetryBudget,
) {
	tcp, http := settings.GetTcp(), settings.GetHttp()
	limit := func(n int32) *wrapperspb.UInt32Value {
		if n <= 0 {
			return wrapperspb.UInt32(math.MaxUint32)
		}
		return wrapperspb.UInt32(uint32(n))
	}
	d.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections:     limit(tcp.GetMaxConnections()),
		MaxPendingRequests: limit(http.GetHttp1MaxPendingRequests()),
		MaxRequests:        limit(http.GetHttp2MaxRequests()),
		MaxRetries:         limit(http.GetMaxRetries()),
		RetryBudget:        retryBudget(budget),
		TrackRemaining:     true,
	}}}
	d.setLifetimes(tcp, http)
	if http.GetUseClientProtocol() {
		d.useClientProtocol()
	}
	if h2 := d.http2(); h2 != nil {
		if n := http.GetMaxConcurrentStreams(); n > 0 {
			h2.MaxConcurrentStreams = wrapperspb.UInt32(uint32(n))
		}
		if k := http.GetHttp2KeepAlive(); traffic.Positive(k.GetTimeout()) && traffic.Positive(k.GetInterval()) {
			h2.ConnectionKeepalive = &corev3.KeepaliveSettings{Interval: k.Interval, Timeout: k.Timeout}
		}
	}
}

// retryBudget encodes a retry budget. For nil it returns nil. By Istio's defaults, 20 % of the active requests may be
// retries, and three concurrent retries are always permitted.
func retryBudget(b *networkingv1.TrafficPolicy_RetryBudget) *clusterv3.CircuitBreakers_Thresholds_RetryBudget {
	if b == nil {
		return nil
	}
	budget := &clusterv3.CircuitBreakers_Thresholds_RetryBudget{BudgetPercent: percent(20), MinRetryConcurrency: wrapperspb.UInt32(3)}
	if b.Percent != nil {
		budget.BudgetPercent = percent(b.Percent.Value)
	}
	if b.MinRetryConcurrency > 0 {
		budget.MinRetryConcurrency = wrapperspb.UInt32(b.MinRetryConcurrency)
	}
	if traffic.Positive(b.BudgetInterval) {
		budget.BudgetInterval = b.BudgetInterval
	}
	return budget
}

// setLifetimes sets the idle timeout, the maximum duration and the maximum number of requests of a connection. The idle
// timeout of tcp applies to HTTP if http sets no valid idle timeout.
func (d *builder) setLifetimes(
	tcp *networkingv1.ConnectionPoolSettings_TCPSettings, http *networkingv1.ConnectionPoolSettings_HTTPSettings,
) {
	common := &corev3.HttpProtocolOptions{}
	if idle := http.GetIdleTimeout(); notNegative(idle) {
		common.IdleTimeout = idle
	} else if idle := tcp.GetIdleTimeout(); notNegative(idle) {
		common.IdleTimeout = idle
	}
	if n := http.GetMaxRequestsPerConnection(); n > 0 {
		common.MaxRequestsPerConnection = wrapperspb.UInt32(uint32(n))
	}
	if t := tcp.GetMaxConnectionDuration(); traffic.Positive(t) {
		common.MaxConnectionDuration = t
	}
	if common.IdleTimeout != nil || common.MaxRequestsPerConnection != nil || common.MaxConnectionDuration != nil {
		d.httpOptions().CommonHttpProtocolOptions = common
	}
}

// setKeepalive sets TCP keep-alive if it is on. For a value of 0 the system's setting applies.
func (d *builder) setKeepalive(k traffic.Keepalive) {
	if !k.On {
		return
	}
	value := func(n uint32) *wrapperspb.UInt32Value {
		if n == 0 {
			return nil
		}
		return wrapperspb.UInt32(n)
	}
	d.UpstreamConnectionOptions = &clusterv3.UpstreamConnectionOptions{TcpKeepalive: &corev3.TcpKeepalive{
		KeepaliveProbes: value(k.Probes), KeepaliveTime: value(k.Time), KeepaliveInterval: value(k.Interval)}}
}
