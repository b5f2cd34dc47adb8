package cluster

//lint:file-ignore SA1019 users' YAML still uses deprecated fields

import (
	"cmp"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/build/identity"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// Build encodes the cluster. Settings that gRPC's client does not support are left out or replaced, or they close the
// cluster. A closed cluster has no endpoints. The error is a model.Problem if the service has no port with the number
// Port. Any other error is that of xds.Encode.
func (s Proxyless) Build() (*xds.Resource, error) {
	r, _, err := s.build()
	return r, err
}

// Problems returns a model.Problem for each reported setting that Build leaves out or replaces, or that closes the
// cluster. The last element is the error of Build, if any. The result is nil if there is nothing to report. Problems
// builds the cluster.
func (s Proxyless) Problems() []error {
	_, problems, err := s.build()
	if err != nil {
		problems = append(problems, err)
	}
	return problems
}

// Build encodes the cluster with the name xds.BlackHole. Its endpoint assignment has this name too. The error is that
// of xds.Encode.
func (ProxylessBlackHole) Build() (*xds.Resource, error) {
	assignment := xds.Ref{Type: xds.Endpoint, Name: xds.BlackHole}
	return xds.Encode(xds.Cluster, xds.BlackHole, proxyless(xds.BlackHole, xds.BlackHole), assignment)
}

// proxyless returns an EDS cluster. The argument name is the cluster's name. The argument assignment is the name of its
// endpoint assignment.
func proxyless(name, assignment string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: assignment, EdsConfig: &corev3.ConfigSource{
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}, ResourceApiVersion: corev3.ApiVersion_V3,
		}},
		LbPolicy: clusterv3.Cluster_ROUND_ROBIN,
	}
}

// notForGRPC returns a warning about a setting that gRPC's client does not support.
func notForGRPC(at model.Place, message string) error {
	return model.Problem{Key: at.Key, Field: at.Field, Code: problem.NotSupported,
		Severity: problem.Warning, Message: message + " (proxyless gRPC)"}
}

// build returns the resource, the problems without the error of Build, and the error of Build.
func (s Proxyless) build() (*xds.Resource, []error, error) {
	name, service := xds.OutboundCluster(s.Port, s.Subset, s.Host), model.Place{Key: s.Service.Key, Field: "spec.resolution"}
	if s.port() == nil {
		return nil, nil, notForGRPC(model.Place{Key: s.Service.Key, Field: "spec.ports"}, "there is no such port")
	}
	p := s.Policy.Get()
	d := &builder{mesh: s.Mesh, Cluster: proxyless(name, name)}
	switch s.Discovery {
	case traffic.OriginalDst:
		d.closeCluster(notForGRPC(service, "NONE is not supported: a client does not know the address; the cluster is closed"))
	case traffic.Dynamic:
		d.closeCluster(notForGRPC(service, "DYNAMIC_DNS is not supported: a client resolves no names of a wildcard; the cluster is closed"))
	case traffic.StrictDNS, traffic.LogicalDNS:
		all := endpoint.Assignment(endpoint.Spec{Cluster: name, Members: s.Members, Horizon: s.Horizon}, resolvable)
		if len(all.Endpoints) != 1 || len(all.Endpoints[0].LbEndpoints) != 1 {
			d.closeCluster(notForGRPC(service, "DNS is supported for exactly one endpoint; the cluster is closed"))
			break
		}
		d.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_LOGICAL_DNS}
		d.EdsClusterConfig, d.LoadAssignment = nil, all
	case traffic.EDS:
	}
	d.setConnectionPool(&networkingv1.ConnectionPoolSettings{Http: &networkingv1.ConnectionPoolSettings_HTTPSettings{
		Http2MaxRequests: p.Pool.GetHttp().GetHttp2MaxRequests()}}, nil) // without a setting, gRPC limits requests to 1024
	d.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{
		{MaxRequests: d.CircuitBreakers.Thresholds[0].MaxRequests}}}
	s.setLoadBalancer(d, p)
	s.setMeshTLS(d, p)
	s.reportIgnored(d, p)
	var needed references
	if d.GetEdsClusterConfig().GetServiceName() == name {
		needed = referencesOf(d.Cluster)
	}
	r, err := encode(name, d.Cluster, needed)
	return r, d.problems, err
}

// closeCluster replaces the cluster with a cluster without endpoints, so that calls fail at once, and adds a problem.
// If the cluster were left out, a client would wait for it, and delay all routes of the route configuration.
func (d *builder) closeCluster(why error) {
	d.problems = append(d.problems, why)
	d.Cluster = proxyless(d.Name, xds.BlackHole)
}

// setLoadBalancer sets the load balancer. All gRPC clients support ROUND_ROBIN and RING_HASH. Other balancers are
// reported and replaced by one of these two.
func (s Proxyless) setLoadBalancer(d *builder, p traffic.Policy) {
	lb, at := p.Balancer, p.BalancerAt
	if hash := lb.GetConsistentHash(); hash != nil {
		if hash.GetMaglev() != nil {
			d.problems = append(d.problems,
				notForGRPC(traffic.Within(at, "consistentHash.maglev"), "is not supported; a ring hash is used"))
		}
		if hash.GetHttpHeaderName() == "" {
			d.problems = append(d.problems, notForGRPC(traffic.Within(at, "consistentHash"),
				"is supported only for httpHeaderName; requests are balanced at random"))
		}
		ring := builder{Cluster: &clusterv3.Cluster{}}
		size := cmp.Or(hash.GetRingHash().GetMinimumRingSize(), hash.GetMinimumRingSize())
		ring.setConsistentHash(&networkingv1.LoadBalancerSettings_ConsistentHashLB{MinimumRingSize: size}, at)
		d.LbPolicy, d.LbConfig = ring.LbPolicy, ring.LbConfig
		d.problems = append(d.problems, ring.problems...)
		return
	}
	switch lb.GetSimple() {
	case networkingv1.LoadBalancerSettings_UNSPECIFIED, networkingv1.LoadBalancerSettings_ROUND_ROBIN:
	default:
		d.problems = append(d.problems,
			notForGRPC(traffic.Within(at, "simple"), lb.GetSimple().String()+" is not supported; ROUND_ROBIN is used"))
	}
}

// setMeshTLS sets the mesh's mTLS, with the certificate provider of the application's bootstrap (gRFC A29). A rule that
// requires unsupported TLS closes the cluster.
func (s Proxyless) setMeshTLS(d *builder, p traffic.Policy) {
	switch s.TLS {
	case traffic.Plaintext, traffic.AutoEndpoints:
		// The plan never sets AutoEndpoints here: gRPC's client does not know the mode of each endpoint.
	case traffic.AutoAll, traffic.Mutual:
		context := &tlsv3.UpstreamTlsContext{CommonTlsContext: s.clientTLS(p.TLS)}
		d.TransportSocket = socket("envoy.transport_sockets.tls", context)
	case traffic.Originate, traffic.Closed:
		message := p.TLS.GetMode().String() + " is not supported: a client's certificates come from its bootstrap"
		if p.TLS.GetMode() == networkingv1.ClientTLSSettings_ISTIO_MUTUAL {
			message = "ISTIO_MUTUAL requires a certificate of the mesh, and the application has no certificate provider"
		}
		d.closeCluster(notForGRPC(traffic.Within(p.TLSAt, "mode"), message+"; the cluster is closed"))
	}
}

// clientTLS returns the TLS context of a client. The context accepts the identities of the service (peers). If these
// identities are unknown, the context accepts every identity of the mesh's trust domains. The argument rule may be nil.
func (s Proxyless) clientTLS(rule *networkingv1.ClientTLSSettings) *tlsv3.CommonTlsContext {
	peers, known := s.peers(rule.GetSubjectAltNames())
	var names []*matcherv3.StringMatcher
	for _, uri := range peers {
		names = append(names, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: uri}})
	}
	if !known {
		for _, domain := range identity.TrustDomains(s.Mesh.Spec) {
			prefix := &matcherv3.StringMatcher_Prefix{Prefix: "spiffe://" + domain + "/"}
			names = append(names, &matcherv3.StringMatcher{MatchPattern: prefix})
		}
	}
	return identity.Providers(names)
}

// reportIgnored reports the settings that gRPC's client ignores.
func (s Proxyless) reportIgnored(d *builder, p traffic.Policy) {
	for _, one := range []struct {
		set     bool
		at      model.Place
		message string
	}{
		{p.Outlier != nil, p.OutlierAt, "is not supported: clients do not count consecutive errors"},
		{p.Pool.GetTcp() != nil, traffic.Within(p.PoolAt, "tcp"), "is not supported"},
		{p.Pool.GetHttp() != nil && !onlyRequests(p.Pool.GetHttp()), traffic.Within(p.PoolAt, "http"),
			"only http2MaxRequests is supported"},
		{p.Balancer.GetWarmup() != nil || p.Balancer.GetWarmupDurationSecs() != nil, traffic.Within(p.BalancerAt, "warmup"),
			"is not supported"},
		{p.ProxyProtocol != nil, p.ProxyProtocolAt, "is not supported"},
		{p.Tunnel != nil, p.TunnelAt, "is not supported"},
		{p.RetryBudget != nil, p.RetryBudgetAt, "is not supported"},
	} {
		if one.set {
			d.problems = append(d.problems, notForGRPC(one.at, one.message))
		}
	}
}

// onlyRequests reports whether http2MaxRequests is the only field that is set.
func onlyRequests(h *networkingv1.ConnectionPoolSettings_HTTPSettings) bool {
	return proto.Equal(h, &networkingv1.ConnectionPoolSettings_HTTPSettings{Http2MaxRequests: h.GetHttp2MaxRequests()})
}
