package cluster

import (
	"math"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// upgrades says whether HTTP/1.1 is sent on as HTTP/2: what the rule says, else the mesh, and that for HTTP ports alone.
func upgrades(pool *networkingv1.ConnectionPoolSettings, port *model.ServicePort, mesh *model.Mesh) bool {
	http := pool.GetHttp()
	if http.GetUseClientProtocol() {
		return false
	}
	switch http.GetH2UpgradePolicy() {
	case networkingv1.ConnectionPoolSettings_HTTPSettings_UPGRADE:
		return true
	case networkingv1.ConnectionPoolSettings_HTTPSettings_DO_NOT_UPGRADE:
		return false
	}
	return port.Protocol == model.Protocol_PROTOCOL_HTTP && mesh.Spec.GetH2UpgradePolicy() == meshv1.MeshConfig_UPGRADE
}

// pool sets the limits and the lifetimes of connections. Istio opens Envoy's limits wide: what is not set is unlimited.
func (d *builder) pool(settings *networkingv1.ConnectionPoolSettings, budget *networkingv1.TrafficPolicy_RetryBudget) {
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
	if t := tcp.GetConnectTimeout(); positive(t) {
		d.ConnectTimeout = t
	}
	d.keepalive(tcp.GetTcpKeepalive())
	d.lifetimes(tcp, http)
	if http.GetUseClientProtocol() {
		d.useClientProtocol()
	}
	if h2 := d.http2(); h2 != nil {
		if n := http.GetMaxConcurrentStreams(); n > 0 {
			h2.MaxConcurrentStreams = wrapperspb.UInt32(uint32(n))
		}
		if k := http.GetHttp2KeepAlive(); positive(k.GetTimeout()) && positive(k.GetInterval()) {
			h2.ConnectionKeepalive = &corev3.KeepaliveSettings{Interval: k.Interval, Timeout: k.Timeout}
		}
	}
}

// retryBudget has Istio's defaults: a fifth of the active requests, and at least three.
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
	if positive(b.BudgetInterval) {
		budget.BudgetInterval = b.BudgetInterval
	}
	return budget
}

// lifetimes sets how long connections live. The idle timeout of tcp holds for HTTP where http has none.
func (d *builder) lifetimes(tcp *networkingv1.ConnectionPoolSettings_TCPSettings, http *networkingv1.ConnectionPoolSettings_HTTPSettings) {
	common := &corev3.HttpProtocolOptions{}
	if idle := http.GetIdleTimeout(); notNegative(idle) {
		common.IdleTimeout = idle
	} else if idle := tcp.GetIdleTimeout(); notNegative(idle) {
		common.IdleTimeout = idle
	}
	if n := http.GetMaxRequestsPerConnection(); n > 0 {
		common.MaxRequestsPerConnection = wrapperspb.UInt32(uint32(n))
	}
	if t := tcp.GetMaxConnectionDuration(); positive(t) {
		common.MaxConnectionDuration = t
	}
	if common.IdleTimeout != nil || common.MaxRequestsPerConnection != nil || common.MaxConnectionDuration != nil {
		d.httpOptions().CommonHttpProtocolOptions = common
	}
}

// keepalive sets TCP keep-alive: the rule's values over the mesh's; neither: off.
func (d *builder) keepalive(rule *networkingv1.ConnectionPoolSettings_TCPSettings_TcpKeepalive) {
	mesh := d.mesh.Spec.GetTcpKeepalive()
	if rule == nil && mesh == nil {
		return
	}
	k := &corev3.TcpKeepalive{}
	for _, from := range []*networkingv1.ConnectionPoolSettings_TCPSettings_TcpKeepalive{mesh, rule} {
		if n := from.GetProbes(); n > 0 {
			k.KeepaliveProbes = wrapperspb.UInt32(n)
		}
		if t := from.GetTime(); positive(t) {
			k.KeepaliveTime = seconds(t)
		}
		if t := from.GetInterval(); positive(t) {
			k.KeepaliveInterval = seconds(t)
		}
	}
	d.UpstreamConnectionOptions = &clusterv3.UpstreamConnectionOptions{TcpKeepalive: k}
}

func seconds(t *durationpb.Duration) *wrapperspb.UInt32Value { return uint32Value(max(1, t.Seconds)) }
