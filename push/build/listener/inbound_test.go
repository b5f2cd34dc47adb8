package listener

import (
	"slices"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// uninspected returns the ports on which the HTTP inspector is off; nil without the inspector.
func uninspected(l *listenerv3.Listener) (off []int32) {
	for _, f := range l.ListenerFilters {
		if f.Name != "envoy.filters.listener.http_inspector" {
			continue
		}
		off = []int32{}
		rules := []*listenerv3.ListenerFilterChainMatchPredicate{f.FilterDisabled}
		if or := f.FilterDisabled.GetOrMatch(); or != nil {
			rules = or.Rules
		}
		for _, r := range rules {
			if p := r.GetDestinationPortRange(); p != nil {
				off = append(off, p.Start)
			}
		}
	}
	return off
}

func TestVirtualInbound(t *testing.T) {
	http := InboundPort{Port: 8080, Protocol: model.Protocol_PROTOCOL_HTTP, Cluster: "inbound|8080||", Host: "web.shop", ServicePort: 80}
	tcp := InboundPort{Port: 9000, Protocol: model.Protocol_PROTOCOL_TCP, Cluster: "inbound|9000||", Host: "db.shop", ServicePort: 9000}
	auto := InboundPort{Port: 7000, Protocol: model.Protocol_PROTOCOL_AUTO, Cluster: "inbound|7000||", Host: "any.shop", ServicePort: 7000}
	tls := InboundPort{Port: 8443, Protocol: model.Protocol_PROTOCOL_HTTPS, Cluster: "inbound|8443||", Host: "web.shop", ServicePort: 443}
	udp := InboundPort{Port: 53, Protocol: model.Protocol_PROTOCOL_UDP, Cluster: "inbound|53||", Host: "dns.shop", ServicePort: 53}
	dnsTCP := InboundPort{Port: 53, Protocol: model.Protocol_PROTOCOL_TCP, Cluster: "inbound|53||", Host: "dns.shop", ServicePort: 53}
	self := InboundPort{Port: 15006, Protocol: model.Protocol_PROTOCOL_HTTP, Cluster: "inbound|15006||", Host: "self.shop", ServicePort: 80}
	blackHole := "chain virtualInbound-blackhole port=15006 > tcp BlackHoleCluster"
	catchAll := []string{blackHole,
		"chain virtualInbound-catchall-http raw_buffer [http/1.1 h2c] > http InboundPassthroughCluster",
		"chain virtualInbound raw_buffer > tcp InboundPassthroughCluster"}
	for _, c := range []struct {
		name string
		spec VirtualInbound
		want []string
		off  []int32
	}{
		{"no ports", VirtualInbound{}, catchAll, []int32{15006}},
		{"ports", VirtualInbound{Ports: ports.List(http, tcp, auto, tls)}, append(slices.Clone(catchAll),
			"chain 0.0.0.0_8080 port=8080 raw_buffer > http inbound|8080||",
			"chain 0.0.0.0_9000 port=9000 raw_buffer > tcp inbound|9000||",
			"chain 0.0.0.0_7000 port=7000 raw_buffer [http/1.1 h2c] > http inbound|7000||",
			"chain 0.0.0.0_7000 port=7000 raw_buffer > tcp inbound|7000||",
			"chain 0.0.0.0_8443 port=8443 raw_buffer > tcp inbound|8443||"), []int32{8080, 8443, 9000, 15006}},
		{"a port twice is the first's, UDP is no one's, our own is skipped", VirtualInbound{Ports: ports.List(self, udp, dnsTCP, http, InboundPort{Port: 8080, Protocol: model.Protocol_PROTOCOL_TCP, Cluster: "x"})},
			append(slices.Clone(catchAll), "chain 0.0.0.0_53 port=53 raw_buffer > tcp inbound|53||", "chain 0.0.0.0_8080 port=8080 raw_buffer > http inbound|8080||"), []int32{53, 8080, 15006}},
		{"closed", VirtualInbound{Ports: ports.List(http, tcp), Closed: true}, []string{blackHole,
			"chain virtualInbound-catchall-http raw_buffer [http/1.1 h2c] > http BlackHoleCluster",
			"chain virtualInbound raw_buffer +envoy.filters.network.rbac > tcp BlackHoleCluster",
			"chain 0.0.0.0_8080 port=8080 raw_buffer > http BlackHoleCluster",
			"chain 0.0.0.0_9000 port=9000 raw_buffer +envoy.filters.network.rbac > tcp BlackHoleCluster"}, []int32{8080, 9000, 15006}},
		{"closed without RBAC", VirtualInbound{Common: Common{Mesh: model.DefaultMesh()}, Ports: ports.List(http, tcp), Closed: true}, []string{blackHole,
			"chain virtualInbound raw_buffer > tcp BlackHoleCluster",
			"chain 0.0.0.0_8080 port=8080 raw_buffer > http BlackHoleCluster", "chain 0.0.0.0_9000 port=9000 raw_buffer > tcp BlackHoleCluster"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.spec.Port = 15006
			if c.spec.Mesh == nil {
				c.spec.Common = stock(t)
			}
			_, l := build(t, c.spec)
			wantLines(t, shape(t, l), c.want)
			if off := uninspected(l); !slices.Equal(off, c.off) || (off == nil) != (c.off == nil) {
				t.Errorf("the HTTP inspector is off on %v, want %v", off, c.off)
			}
		})
	}
}

// The chains of a port follow from its mTLS mode.
func TestInboundMTLS(t *testing.T) {
	at := func(p model.Protocol, m MTLS) VirtualInbound {
		return VirtualInbound{Ports: ports.List(InboundPort{Port: 80, Protocol: p, Cluster: "in", Host: "web", ServicePort: 80, MTLS: m})}
	}
	mesh, http, tcp := "istio-peer-exchange istio istio-http/1.0 istio-http/1.1 istio-h2", "istio-http/1.0 istio-http/1.1 istio-h2", "istio-peer-exchange istio"
	const chain = "chain 0.0.0.0_80 port=80 "
	for _, c := range []struct {
		name string
		spec VirtualInbound
		want []string
	}{
		{"HTTP permissive", at(model.Protocol_PROTOCOL_HTTP, Permissive), []string{chain + "tls [" + mesh + "] > http in", chain + "raw_buffer > http in"}},
		{"HTTP strict", at(model.Protocol_PROTOCOL_HTTP, Strict), []string{chain + "tls > http in"}},
		{"HTTP plain", at(model.Protocol_PROTOCOL_HTTP, Plain), []string{chain + "raw_buffer > http in"}},
		{"HTTP refused", at(model.Protocol_PROTOCOL_HTTP, Refused), []string{chain + "raw_buffer > http BlackHoleCluster"}},
		{"TCP permissive", at(model.Protocol_PROTOCOL_TCP, Permissive), []string{chain + "tls [" + mesh + "] > tcp in", chain + "raw_buffer > tcp in", chain + "tls > tcp in"}},
		{"TCP strict", at(model.Protocol_PROTOCOL_TCP, Strict), []string{chain + "tls > tcp in"}},
		{"anything permissive", at(model.Protocol_PROTOCOL_AUTO, Permissive), []string{chain + "tls [" + http + "] > http in", chain + "tls [" + tcp + "] > tcp in",
			chain + "raw_buffer [http/1.1 h2c] > http in", chain + "raw_buffer > tcp in", chain + "tls > tcp in"}},
		{"anything strict", at(model.Protocol_PROTOCOL_AUTO, Strict), []string{chain + "tls [" + http + "] > http in", chain + "tls > tcp in"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.spec.Port, c.spec.Common = 15006, stock(t)
			c.spec.Caps |= xds.CapIdentity
			_, l := build(t, c.spec)
			const catchAll = 3
			wantLines(t, shape(t, l)[catchAll:], c.want)
			for _, chain := range l.FilterChains[catchAll:] {
				own := chain.FilterChainMatch.TransportProtocol == "tls" && (chain.TransportSocket != nil || chain.FilterChainMatch.ApplicationProtocols != nil)
				if (chain.TransportSocket != nil) != own {
					t.Errorf("chain %v: TLS of the mesh is not where it should be", chain.FilterChainMatch)
				}
				if chain.TransportSocket == nil {
					continue
				}
				tls := &tlsv3.DownstreamTlsContext{}
				if err := chain.TransportSocket.GetTypedConfig().UnmarshalTo(tls); err != nil || !tls.RequireClientCertificate.GetValue() {
					t.Errorf("%v, TLS %v", err, tls)
				}
				trust := tls.CommonTlsContext.GetCombinedValidationContext().DefaultValidationContext.MatchTypedSubjectAltNames
				if len(trust) != 1 || trust[0].Matcher.GetPrefix() != "spiffe://cluster.local/" {
					t.Errorf("whom it believes: %v", trust)
				}
				if chain.Filters[0].Name == hcmName && manager(t, chain).ForwardClientCertDetails != hcmv3.HttpConnectionManager_APPEND_FORWARD {
					t.Error("the client's identity is not passed on")
				}
			}
		})
	}
}

func TestVirtualInboundFilters(t *testing.T) {
	spec := specs(t)["virtual inbound"].(VirtualInbound)
	_, l := build(t, spec)
	wantLines(t, listenerFilterNames(l), []string{"envoy.filters.listener.original_dst", "envoy.filters.listener.http_inspector"})
	if l.Transparent != nil || l.TrafficDirection.String() != "INBOUND" || l.BindToPort != nil || len(l.AccessLog) != 1 ||
		l.MaxConnectionsToAcceptPerSocketEvent.GetValue() != 1 {
		t.Errorf("listener %v", l)
	}
	spec.Transparent = true
	_, l = build(t, spec)
	wantLines(t, listenerFilterNames(l), []string{"envoy.filters.listener.original_dst", "envoy.filters.listener.original_src", "envoy.filters.listener.http_inspector"})
	if !l.Transparent.GetValue() {
		t.Error("TPROXY without a transparent socket")
	}
}

func TestInboundHTTP(t *testing.T) {
	build1 := func(p model.Protocol, caps xds.Caps, closed bool) *hcmv3.HttpConnectionManager {
		_, l := build(t, VirtualInbound{Common: Common{Mesh: model.DefaultMesh(), Caps: caps}, Port: 15006, Closed: closed,
			Ports: ports.List(InboundPort{Port: 8080, Protocol: p, Cluster: "inbound|8080||", Host: "web.shop.svc.cluster.local", ServicePort: 80})})
		return manager(t, l.FilterChains[len(l.FilterChains)-1])
	}
	m := build1(model.Protocol_PROTOCOL_HTTP, xds.StockCaps, false)
	rc := m.GetRouteConfig()
	r := rc.VirtualHosts[0].Routes[0]
	if m.StatPrefix != "inbound_0.0.0.0_8080;" || m.ServerName != "istio-envoy" || m.Http2ProtocolOptions != nil || m.UseRemoteAddress.GetValue() ||
		m.ForwardClientCertDetails != hcmv3.HttpConnectionManager_SANITIZE {
		t.Errorf("connection manager %v", m)
	}
	if rc.Name != "inbound|8080||" || rc.ValidateClusters == nil || rc.ValidateClusters.Value || rc.VirtualHosts[0].Name != "inbound|http|80" ||
		!slices.Equal(rc.VirtualHosts[0].Domains, []string{"*"}) || r.Decorator.Operation != "web.shop.svc.cluster.local:80/*" ||
		r.GetRoute().GetCluster() != "inbound|8080||" || r.GetRoute().Timeout == nil || r.GetRoute().Timeout.AsDuration() != 0 || r.GetRoute().MaxStreamDuration == nil || r.GetRoute().RetryPolicy.GetNumRetries().GetValue() != 2 {
		t.Errorf("routes %v", rc)
	}
	wantLines(t, filterNames(m), []string{"envoy.filters.http.grpc_stats", "envoy.filters.http.fault", "envoy.filters.http.cors", "envoy.filters.http.router"})

	m = build1(model.Protocol_PROTOCOL_GRPC_WEB, xds.StockCaps|istioCaps, true)
	wantLines(t, filterNames(m), []string{"istio.metadata_exchange", "envoy.filters.http.rbac", "envoy.filters.http.grpc_web",
		"envoy.filters.http.grpc_stats", "envoy.filters.http.fault", "envoy.filters.http.cors", "envoy.filters.http.router"})
	if m.Http2ProtocolOptions == nil || m.GetRouteConfig().VirtualHosts[0].Routes[0].GetRoute().RetryPolicy != nil {
		t.Errorf("gRPC: %v", m)
	}
	wantLines(t, filterNames(build1(model.Protocol_PROTOCOL_HTTP2, 0, true)), []string{"envoy.filters.http.router"})
}

func TestIngress(t *testing.T) {
	spec := specs(t)["ingress"].(Ingress)
	r, l := build(t, spec)
	wantLines(t, shape(t, l), []string{"chain 127.0.0.1_9080 port=9080 raw_buffer > http inbound|9080||"})
	if l.BindToPort != nil || l.UseOriginalDst != nil || len(l.ListenerFilters) != 0 || len(r.Needs) != 0 || l.TrafficDirection.String() != "INBOUND" {
		t.Errorf("listener %v, needs %v", l, r.Needs)
	}
	if got := manager(t, l.FilterChains[0]).StatPrefix; got != "inbound_127.0.0.1_9080;" {
		t.Errorf("statistics at %q", got)
	}
	spec.Also = strs.List("::1")
	if _, l = build(t, spec); len(l.AdditionalAddresses) != 1 || l.AdditionalAddresses[0].Address.GetSocketAddress().GetAddress() != "::1" {
		t.Errorf("further addresses %v", l.AdditionalAddresses)
	}
	_, l = build(t, specs(t)["ingress unix"])
	if l.Address.GetPipe().GetPath() != "/tmp/i.sock" || l.FilterChains[0].FilterChainMatch.DestinationPort != nil {
		t.Errorf("listener %v", l)
	}
}
