package cluster

//lint:file-ignore SA1019 deprecated fields are what users' YAML still has

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

// Build draws the cluster. The error names what makes it one that gRPC's client does not know.
func (s Proxyless) Build() (*xds.Resource, error) {
	r, _, err := s.draw()
	return r, err
}

// Problems are the settings that the cluster is drawn without, or closed for.
func (s Proxyless) Problems() []error {
	_, problems, err := s.draw()
	if err != nil {
		problems = append(problems, err)
	}
	return problems
}

// Build draws the cluster. Errors are those of encoding.
func (ProxylessBlackHole) Build() (*xds.Resource, error) {
	return xds.Encode(xds.Cluster, xds.BlackHole, proxyless(xds.BlackHole, xds.BlackHole), xds.Ref{Type: xds.Endpoint, Name: xds.BlackHole})
}

// proxyless is a cluster with the endpoints of an assignment.
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

// notForGRPC is a problem of what gRPC's client cannot do.
func notForGRPC(at model.Place, message string) error {
	return model.Problem{Key: at.Key, Field: at.Field, Code: problem.NotSupported, Severity: problem.Warning, Message: message + " (proxyless gRPC)"}
}

func (s Proxyless) draw() (*xds.Resource, []error, error) {
	name, service := xds.OutboundCluster(s.Port, s.Subset, s.Host), model.Place{Key: s.Service.Key, Field: "spec.resolution"}
	if s.port() == nil {
		return nil, nil, notForGRPC(model.Place{Key: s.Service.Key, Field: "spec.ports"}, "there is no such port")
	}
	p := s.Policy.Get()
	d := &builder{mesh: s.Mesh, Cluster: proxyless(name, name)}
	switch s.Discovery {
	case traffic.OriginalDst:
		d.close(notForGRPC(service, "NONE is not supported: a client does not know the address; the cluster is closed"))
	case traffic.Dynamic:
		d.close(notForGRPC(service, "DYNAMIC_DNS is not supported: a client resolves no names of a wildcard; the cluster is closed"))
	case traffic.StrictDNS, traffic.LogicalDNS:
		all := endpoint.Assignment(endpoint.Spec{Cluster: name, Members: s.Members, Horizon: s.Horizon}, resolvable)
		if len(all.Endpoints) != 1 || len(all.Endpoints[0].LbEndpoints) != 1 {
			d.close(notForGRPC(service, "DNS is supported for exactly one endpoint; the cluster is closed"))
			break
		}
		d.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_LOGICAL_DNS}
		d.EdsClusterConfig, d.LoadAssignment = nil, all
	case traffic.EDS:
	}
	d.pool(&networkingv1.ConnectionPoolSettings{Http: &networkingv1.ConnectionPoolSettings_HTTPSettings{
		Http2MaxRequests: p.Pool.GetHttp().GetHttp2MaxRequests()}}, nil) // without a limit of its own, gRPC has one of 1024
	d.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{
		{MaxRequests: d.CircuitBreakers.Thresholds[0].MaxRequests}}}
	s.spread(d, p)
	s.authenticate(d, p)
	s.leaveOut(d, p)
	var needed needs
	if d.GetEdsClusterConfig().GetServiceName() == name {
		needed = needsOf(d.Cluster)
	}
	r, err := encode(name, d.Cluster, needed)
	return r, d.problems, err
}

// close makes the cluster one without endpoints, so that calls fail at once: a client waits for a cluster that is not there, with all that
// its routes lead to.
func (d *builder) close(why error) {
	d.problems = append(d.problems, why)
	d.Cluster = proxyless(d.Name, xds.BlackHole)
}

// spread sets the load balancer: of those that Istio's rules name, all gRPC clients know ROUND_ROBIN and RING_HASH.
func (s Proxyless) spread(d *builder, p traffic.Policy) {
	lb, at := p.Balancer, p.BalancerAt
	if hash := lb.GetConsistentHash(); hash != nil {
		if hash.GetMaglev() != nil {
			d.problems = append(d.problems, notForGRPC(traffic.Within(at, "consistentHash.maglev"), "is not supported; a ring hash is used"))
		}
		if hash.GetHttpHeaderName() == "" {
			d.problems = append(d.problems, notForGRPC(traffic.Within(at, "consistentHash"), "is supported for httpHeaderName alone; each request is hashed at random"))
		}
		ring := builder{Cluster: &clusterv3.Cluster{}}
		ring.hash(&networkingv1.LoadBalancerSettings_ConsistentHashLB{MinimumRingSize: cmp.Or(hash.GetRingHash().GetMinimumRingSize(), hash.GetMinimumRingSize())}, at)
		d.LbPolicy, d.LbConfig = ring.LbPolicy, ring.LbConfig
		d.problems = append(d.problems, ring.problems...)
		return
	}
	switch lb.GetSimple() {
	case networkingv1.LoadBalancerSettings_UNSPECIFIED, networkingv1.LoadBalancerSettings_ROUND_ROBIN:
	default:
		d.problems = append(d.problems, notForGRPC(traffic.Within(at, "simple"), lb.GetSimple().String()+" is not supported; ROUND_ROBIN is used"))
	}
}

// authenticate sets mTLS of the mesh, with the certificate provider of the application's bootstrap (gRFC A29). What a rule demands and
// cannot be had closes the cluster: it keeps its name and has no endpoints.
func (s Proxyless) authenticate(d *builder, p traffic.Policy) {
	switch s.TLS {
	case traffic.Plaintext, traffic.AutoEndpoints: // the latter is no plan for gRPC's client, which does not know each endpoint's mode
	case traffic.AutoAll, traffic.Mutual:
		d.TransportSocket = socket("envoy.transport_sockets.tls", &tlsv3.UpstreamTlsContext{CommonTlsContext: s.providers(p.TLS)})
	case traffic.Originate, traffic.Closed:
		message := p.TLS.GetMode().String() + " is not supported: a client's certificates come from its bootstrap"
		if p.TLS.GetMode() == networkingv1.ClientTLSSettings_ISTIO_MUTUAL {
			message = "ISTIO_MUTUAL wants a certificate of the mesh, and the application has no certificate provider"
		}
		d.close(notForGRPC(traffic.Within(p.TLSAt, "mode"), message+"; the cluster is closed"))
	}
}

// providers is the TLS context of a client: the identities of the service are the only names that it believes.
func (s Proxyless) providers(rule *networkingv1.ClientTLSSettings) *tlsv3.CommonTlsContext {
	peers, known := s.peers(rule.GetSubjectAltNames())
	var names []*matcherv3.StringMatcher
	for _, uri := range peers {
		names = append(names, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: uri}})
	}
	if !known {
		for _, domain := range identity.TrustDomains(s.Mesh.Spec) {
			names = append(names, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "spiffe://" + domain + "/"}})
		}
	}
	return identity.Providers(names)
}

// leaveOut names the settings that gRPC's client ignores.
func (s Proxyless) leaveOut(d *builder, p traffic.Policy) {
	for _, one := range []struct {
		is   bool
		at   model.Place
		what string
	}{
		{p.Outlier != nil, p.OutlierAt, "is not supported: clients count no errors in a row"},
		{p.Pool.GetTcp() != nil, traffic.Within(p.PoolAt, "tcp"), "is not supported"},
		{p.Pool.GetHttp() != nil && !onlyRequests(p.Pool.GetHttp()), traffic.Within(p.PoolAt, "http"), "of these http2MaxRequests alone is supported"},
		{p.Balancer.GetWarmup() != nil || p.Balancer.GetWarmupDurationSecs() != nil, traffic.Within(p.BalancerAt, "warmup"), "is not supported"},
		{p.ProxyProtocol != nil, p.ProxyProtocolAt, "is not supported"},
		{p.Tunnel != nil, p.TunnelAt, "is not supported"},
		{p.RetryBudget != nil, p.RetryBudgetAt, "is not supported"},
	} {
		if one.is {
			d.problems = append(d.problems, notForGRPC(one.at, one.what))
		}
	}
}

// onlyRequests says whether nothing but http2MaxRequests is set.
func onlyRequests(h *networkingv1.ConnectionPoolSettings_HTTPSettings) bool {
	return proto.Equal(h, &networkingv1.ConnectionPoolSettings_HTTPSettings{Http2MaxRequests: h.GetHttp2MaxRequests()})
}
