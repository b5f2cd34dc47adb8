package listener

import (
	"slices"
	"testing"
	"time"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

func TestOutboundChains(t *testing.T) {
	to := func(cluster string) Chain { return Chain{Targets: targets.List(Target{Cluster: cluster})} }
	sni := func(c Chain, names ...string) Chain { c.SNI = strs.List(names...); return c }
	cidr := func(c Chain, list ...string) Chain { c.CIDRs = strs.List(list...); return c }
	noHTTP, noTLS := stock(t), stock(t)
	noHTTP.Caps &^= xds.CapHTTPInspector
	noTLS.Caps &^= xds.CapTLSInspector
	tlsAndHTTP := []string{"envoy.filters.listener.tls_inspector", "envoy.filters.listener.http_inspector"}
	for _, c := range []struct {
		name      string
		spec      Outbound
		want      []string
		inspector []string
	}{
		{"HTTP alone takes all", Outbound{Route: "80"}, []string{"chain  > rds 80"}, nil},
		{"HTTP with a fallback", Outbound{Route: "80", Fallback: "P"},
			[]string{"chain  raw_buffer [http/1.1 h2c] > rds 80", "default PassthroughFilterChain > tcp P"}, tlsAndHTTP},
		{"HTTP with a fallback, without the inspector, takes all", Outbound{Common: noHTTP, Route: "80", Fallback: "P"}, []string{"chain  > rds 80"}, nil},
		{"sniffed", Outbound{Route: "80", Sniff: true, TCP: chains.List(to("a"))},
			[]string{"chain  raw_buffer [http/1.1 h2c] > rds 80", "default  > tcp a"}, tlsAndHTTP},
		{"sniffed without the inspector is TCP", Outbound{Common: noHTTP, Route: "80", Sniff: true, TCP: chains.List(to("a"))}, []string{"chain  > tcp a"}, nil},
		{"sniffed without the inspector and without TCP is HTTP", Outbound{Common: noHTTP, Route: "80", Sniff: true}, []string{"chain  > rds 80"}, nil},
		{"the first that matches all takes the rest", Outbound{TCP: chains.List(to("a"), to("b")), Fallback: "P"}, []string{"chain  > tcp a"}, nil},
		{"by name", Outbound{TCP: chains.List(sni(to("a"), "B.com", "a.com")), Fallback: "P"},
			[]string{"chain  sni=a.com sni=b.com > tcp a", "default PassthroughFilterChain > tcp P"}, tlsAndHTTP[:1]},
		{"by name without the inspector is nothing", Outbound{Common: noTLS, TCP: chains.List(sni(to("a"), "a.com")), Fallback: "P"},
			[]string{"chain PassthroughFilterChain > tcp P"}, nil},
		{"any name", Outbound{TCP: chains.List(sni(to("a"), "a.com", "*"))}, []string{"chain  > tcp a"}, nil},
		{"a name that Envoy cannot match", Outbound{TCP: chains.List(sni(to("a"), "x*.com"), sni(to("b"), "x*.com", "b.com"))},
			[]string{"chain  sni=b.com > tcp b"}, tlsAndHTTP[:1]},
		{"an earlier chain keeps its names", Outbound{TCP: chains.List(sni(to("a"), "a.com"), sni(to("b"), "b.com", "a.com"), sni(to("c"), "a.com"))},
			[]string{"chain  sni=a.com > tcp a", "chain  sni=b.com > tcp b"}, tlsAndHTTP[:1]},
		{"an earlier chain keeps its addresses", Outbound{TCP: chains.List(cidr(to("a"), "10.0.0.1"), cidr(to("b"), "10.0.0.2", "10.0.0.1/32"))},
			[]string{"chain  10.0.0.1/32 > tcp a", "chain  10.0.0.2/32 > tcp b"}, nil},
		{"an earlier chain keeps a part", Outbound{TCP: chains.List(
			cidr(sni(to("a"), "a.com"), "10.0.0.1"), cidr(sni(to("b"), "a.com", "b.com"), "10.0.0.1", "10.0.0.2"))},
			[]string{"chain  10.0.0.1/32 sni=a.com > tcp a", "chain  10.0.0.1/32 sni=b.com > tcp b", "chain  10.0.0.2/32 sni=a.com sni=b.com > tcp b"}, tlsAndHTTP[:1]},
		{"host bits are cut", Outbound{TCP: chains.List(cidr(to("a"), "10.1.2.3/8", "10.9.9.9/8"))}, []string{"chain  10.0.0.0/8 > tcp a"}, nil},
		{"any address", Outbound{TCP: chains.List(cidr(to("a"), "10.0.0.1", "0.0.0.0"))}, []string{"chain  > tcp a"}, nil},
		{"any network", Outbound{TCP: chains.List(cidr(to("a"), "1.2.3.4/0"))}, []string{"chain  > tcp a"}, nil},
		{"addresses that cannot be read match nothing", Outbound{TCP: chains.List(cidr(to("a"), "db.com"), cidr(to("b"), "db.com", "10.0.0.1"))},
			[]string{"chain  10.0.0.1/32 > tcp b"}, nil},
		{"weights", Outbound{TCP: chains.List(Chain{Targets: targets.List(Target{"a", 90}, Target{"b", 10}, Target{"c", 0})})}, []string{"chain  > tcp a:90 b:10 "}, nil},
		{"one weight is all", Outbound{TCP: chains.List(Chain{Targets: targets.List(Target{"a", 0}, Target{"b", 10})})}, []string{"chain  > tcp b"}, nil},
		{"no weight is none", Outbound{TCP: chains.List(Chain{Targets: targets.List(Target{"a", 0}, Target{"b", 0})})}, []string{"chain  > tcp BlackHoleCluster"}, nil},
		{"no targets", Outbound{TCP: chains.List(Chain{})}, []string{"chain  > tcp BlackHoleCluster"}, nil},
		{"nothing at all", Outbound{}, []string{"chain  > tcp BlackHoleCluster"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.spec.Mesh == nil {
				c.spec.Common = stock(t)
			}
			c.spec.Name, c.spec.Bind, c.spec.Port = "L", "10.0.0.1", 80
			_, l := build(t, c.spec)
			wantLines(t, shape(t, l), c.want)
			wantLines(t, listenerFilterNames(l), c.inspector)
		})
	}
}

func TestOutboundHTTP(t *testing.T) {
	spec := specs(t)["http"].(Outbound)
	r, l := build(t, spec)
	if want := []xds.Ref{{Type: xds.Route, Name: "80"}}; !slices.Equal(r.Needs, want) {
		t.Errorf("needs %v, want %v", r.Needs, want)
	}
	if l.BindToPort == nil || l.BindToPort.Value || l.TrafficDirection.String() != "OUTBOUND" || !l.ContinueOnListenerFiltersTimeout {
		t.Errorf("listener %v", l)
	}
	if l.ListenerFiltersTimeout.AsDuration() != 0 || l.ListenerFiltersTimeout == nil {
		t.Errorf("listener filters wait %v, want for ever", l.ListenerFiltersTimeout)
	}
	m := manager(t, l.FilterChains[0])
	wantLines(t, filterNames(m), []string{"envoy.filters.http.grpc_stats", "envoy.filters.http.fault", "envoy.filters.http.cors", "envoy.filters.http.router"})
	rds := m.GetRds().GetConfigSource()
	if rds.GetAds() == nil || rds.GetInitialFetchTimeout() == nil || rds.GetInitialFetchTimeout().AsDuration() != 0 {
		t.Errorf("routes come from %v, want ADS without a timeout", rds)
	}
	if m.StatPrefix != "outbound_0.0.0.0_80;" || m.ServerName != "" || m.UseRemoteAddress.GetValue() || m.StreamIdleTimeout == nil ||
		m.StreamIdleTimeout.AsDuration() != 0 || len(m.AccessLog) != 1 || m.UpgradeConfigs[0].UpgradeType != "websocket" ||
		!m.NormalizePath.GetValue() || m.MergeSlashes || m.GenerateRequestId != nil {
		t.Errorf("connection manager %v", m)
	}
	if len(proxy(t, l.DefaultFilterChain).AccessLog) != 1 || l.AccessLog != nil {
		t.Error("the log is not where it belongs")
	}
	spec.BindToPort = true
	spec.Caps = istioCaps | xds.CapFault
	spec.Fallback = ""
	spec.Mesh = mesh(t, func(m *meshv1.MeshConfig) {
		m.AccessLogFile = "/dev/stdout" // the proxy has no such extension now
		m.DefaultProviders = &meshv1.MeshConfig_DefaultProviders{Metrics: []string{"prom"}}
		m.ExtensionProviders = []*meshv1.MeshConfig_ExtensionProvider{{Name: "prom", Provider: &meshv1.MeshConfig_ExtensionProvider_Prometheus{
			Prometheus: &meshv1.MeshConfig_ExtensionProvider_PrometheusMetricsProvider{}}}}
	})
	_, l = build(t, spec)
	m = manager(t, l.FilterChains[0])
	wantLines(t, filterNames(m), []string{"istio.metadata_exchange", "istio.alpn", "envoy.filters.http.fault", "istio.stats", "envoy.filters.http.router"})
	if l.BindToPort != nil || len(m.AccessLog) != 0 {
		t.Errorf("bind to port %v, logs %v", l.BindToPort, m.AccessLog)
	}
}

func TestDetectionTimeout(t *testing.T) {
	spec := specs(t)["http"].(Outbound)
	spec.Mesh = mesh(t, func(m *meshv1.MeshConfig) { m.ProtocolDetectionTimeout = durationpb.New(3 * time.Second) })
	if _, l := build(t, spec); l.ListenerFiltersTimeout.AsDuration() != 3*time.Second {
		t.Errorf("listener filters wait %v, want 3s", l.ListenerFiltersTimeout)
	}
	spec.Fallback = "" // nothing to detect
	if _, l := build(t, spec); l.ListenerFiltersTimeout.AsDuration() != 0 {
		t.Errorf("listener filters wait %v, want for ever", l.ListenerFiltersTimeout)
	}
}

func TestPathNormalization(t *testing.T) {
	all := specs(t)
	for name, want := range map[string]struct {
		normalize, merge bool
		slashes          hcmv3.HttpConnectionManager_PathWithEscapedSlashesAction
	}{
		"http":             {true, false, hcmv3.HttpConnectionManager_KEEP_UNCHANGED},
		"base":             {true, false, hcmv3.HttpConnectionManager_KEEP_UNCHANGED},
		"no normalisation": {false, false, hcmv3.HttpConnectionManager_KEEP_UNCHANGED},
		"merge slashes":    {true, true, hcmv3.HttpConnectionManager_KEEP_UNCHANGED},
		"decode slashes":   {true, true, hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD},
	} {
		_, l := build(t, all[name])
		m := manager(t, l.FilterChains[0])
		if m.NormalizePath.GetValue() != want.normalize || m.MergeSlashes != want.merge || m.PathWithEscapedSlashesAction != want.slashes {
			t.Errorf("%s: %v %v %v, want %v", name, m.NormalizePath, m.MergeSlashes, m.PathWithEscapedSlashesAction, want)
		}
	}
}

func TestTCPPolicy(t *testing.T) {
	r := rule(t, `
host: db
trafficPolicy:
  loadBalancer: {consistentHash: {useSourceIp: true}}
  connectionPool: {tcp: {idleTimeout: 30s, maxConnectionDuration: 60s}}
subsets:
- {name: v1, trafficPolicy: {loadBalancer: {simple: RANDOM}}}
- {name: v2}`)
	build1 := func(c Chain) (time.Duration, time.Duration, int, string) {
		_, l := build(t, Outbound{Common: stock(t), Name: "L", Bind: "1.1.1.1", Port: 80, TCP: chains.List(c)})
		p := proxy(t, l.FilterChains[0])
		return p.IdleTimeout.AsDuration(), p.MaxDownstreamConnectionDuration.AsDuration(), len(p.HashPolicy), p.StatPrefix
	}
	policy := func(subset string) traffic.Ref {
		of, at := subsetOf(r, subset)
		return traffic.Intern(traffic.Effective(r, of, at, 9000))
	}
	cluster := func(subset string) Target { return Target{Cluster: xds.OutboundCluster(9000, subset, "db.shop")} }
	for _, c := range []struct {
		name   string
		chain  Chain
		idle   time.Duration
		hashed int
		stat   string
	}{
		{"no rule", Chain{Targets: targets.List(cluster(""))}, 0, 0, "outbound|9000||db.shop"},
		{"the host's rule", Chain{Targets: targets.List(cluster("")), Policy: policy(""), StatPrefix: "s"}, 30 * time.Second, 1, "s"},
		{"a subset with a load balancer of its own", Chain{Targets: targets.List(cluster("v1")), Policy: policy("v1"), StatPrefix: "s"}, 30 * time.Second, 0, "s"},
		{"a subset without", Chain{Targets: targets.List(cluster("v2")), Policy: policy("v2"), StatPrefix: "s"}, 30 * time.Second, 1, "s"},
	} {
		idle, longest, hashed, stat := build1(c.chain)
		if idle != c.idle || longest != 2*c.idle || hashed != c.hashed || stat != c.stat {
			t.Errorf("%s: %v %v %v %v", c.name, idle, longest, hashed, stat)
		}
	}
}

func TestVirtualOutbound(t *testing.T) {
	_, l := build(t, VirtualOutbound{Common: stock(t), Port: 15001, Passthrough: true})
	wantLines(t, shape(t, l), []string{"chain virtualOutbound-blackhole port=15001 > tcp BlackHoleCluster", "chain virtualOutbound-catchall-tcp > tcp PassthroughCluster"})
	if !l.UseOriginalDst.GetValue() || l.Transparent != nil || l.Address.GetSocketAddress().GetAddress() != "0.0.0.0" || l.AccessLog != nil {
		t.Errorf("listener %v", l)
	}
	spec := specs(t)["virtual outbound"].(VirtualOutbound)
	spec.Passthrough, spec.Transparent = false, true
	_, l = build(t, spec)
	wantLines(t, shape(t, l)[1:], []string{"chain virtualOutbound-catchall-tcp > tcp BlackHoleCluster"})
	if !l.Transparent.GetValue() || len(l.AccessLog) != 1 || l.AccessLog[0].GetFilter().GetResponseFlagFilter().GetFlags()[0] != "NR" {
		t.Errorf("listener %v", l)
	}
	spec.Mesh = mesh(t, func(m *meshv1.MeshConfig) { m.AccessLogFile, m.DisableEnvoyListenerLog = "/dev/stdout", true })
	if _, l = build(t, spec); l.AccessLog != nil {
		t.Errorf("logs %v, want none", l.AccessLog)
	}
	spec.Common = Common{Mesh: model.DefaultMesh()}
	if _, l = build(t, spec); l.UseOriginalDst != nil {
		t.Error("original destination without the extension")
	}
}

// subsetOf returns the rule and the place of a subset, the arguments of traffic.Effective. It returns nil if the rule
// has no subset of the name.
func subsetOf(rule *model.DestinationRule, name string) (*model.DestinationRule, int) {
	if rule != nil {
		for i, s := range rule.Spec.GetSubsets() {
			if s.GetName() == name {
				return rule, i
			}
		}
	}
	return nil, 0
}
