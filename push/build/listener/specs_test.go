package listener

import (
	"maps"
	"slices"
	"testing"

	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// specs is a broad set of Specs: the tests of constraints, of determinism and of Envoy's own validation run over all.
func specs(t testing.TB) map[string]builder {
	all := outboundSpecs(t)
	maps.Copy(all, virtualSpecs(t))
	maps.Copy(all, ingressSpecs(t))
	maps.Copy(all, serverSpecs(t))
	return all
}

// logged returns a mesh with access logs, after the changes of edit, which may be nil.
func logged(t testing.TB, edit func(*meshv1.MeshConfig)) Common {
	c := stock(t)
	c.Mesh = mesh(t, func(m *meshv1.MeshConfig) {
		m.AccessLogFile = "/dev/stdout"
		if edit != nil {
			edit(m)
		}
	})
	return c
}

// chainTo returns a chain to clusters in equal parts.
func chainTo(c Chain, clusters ...string) Chain {
	var to []Target
	for _, name := range clusters {
		to = append(to, Target{Cluster: name, Weight: uint32(100 / len(clusters))})
	}
	c.Targets, c.StatPrefix = targets.List(to...), clusters[0]
	return c
}

// allPorts is a virtual inbound listener with one port of each protocol.
func allPorts(c Common) VirtualInbound {
	var list []InboundPort
	for p := range model.Protocol_name {
		list = append(list, InboundPort{Port: 8000 + uint32(p), Protocol: model.Protocol(p),
			Cluster: xds.InboundCluster(8000 + uint32(p)), Host: "web.shop", ServicePort: 80 + uint32(p)})
	}
	slices.SortFunc(list, func(a, b InboundPort) int { return int(a.Port) - int(b.Port) })
	return VirtualInbound{Common: c, Port: 15006, Ports: ports.List(list...)}
}

// secured is allPorts with one mTLS mode for all ports.
func secured(t testing.TB, m MTLS) VirtualInbound {
	v := allPorts(stock(t))
	v.Caps |= xds.CapIdentity
	list := slices.Clone(v.Ports.All())
	for i := range list {
		list[i].MTLS = m
	}
	v.Ports, v.Rest = ports.List(list...), m
	return v
}

// normalising returns a listener of a mesh that normalises paths.
func normalising(t testing.TB, n meshv1.MeshConfig_ProxyPathNormalization_NormalizationType) Outbound {
	return Outbound{Common: logged(t, func(m *meshv1.MeshConfig) {
		m.AccessLogEncoding = meshv1.MeshConfig_JSON
		m.PathNormalization = &meshv1.MeshConfig_ProxyPathNormalization{Normalization: n}
	}), Name: "0.0.0.0_80", Bind: "0.0.0.0", Port: 80, Route: "80", Fallback: xds.Passthrough}
}

// noCaps is a Common for proxies without any capability.
func noCaps(t testing.TB) Common {
	c := stock(t)
	c.Caps = 0
	return c
}

func outboundSpecs(t testing.TB) map[string]builder {
	db := chainTo(Chain{Policy: traffic.Intern(traffic.Effective(rule(t, `
host: db
trafficPolicy:
  loadBalancer: {consistentHash: {useSourceIp: true}}
  connectionPool: {tcp: {idleTimeout: 30s, maxConnectionDuration: 60s}}`), nil, 0, 9000))}, "outbound|9000||db.shop")
	sni := chainTo(Chain{SNI: strs.List("b.com", "A.com", "*.c.com")}, "outbound|443|v1|tls.shop", "outbound|443|v2|tls.shop")
	cidr := chainTo(Chain{CIDRs: strs.List("10.1.2.3/16", "10.9.0.1")}, "outbound|9000||cidr.shop")
	return map[string]builder{
		"http":             Outbound{Common: logged(t, nil), Name: "0.0.0.0_80", Bind: "0.0.0.0", Port: 80, Route: "80", Fallback: xds.Passthrough},
		"http registry":    Outbound{Common: stock(t), Name: "0.0.0.0_80", Bind: "0.0.0.0", Port: 80, Route: "80", Fallback: xds.BlackHole},
		"http egress":      Outbound{Common: stock(t), Name: "127.0.0.1_9080", Bind: "127.0.0.1", Port: 9080, Route: "9080", BindToPort: true},
		"http unix":        Outbound{Common: stock(t), Name: "unix:///tmp/e.sock_0", Bind: "unix:///tmp/e.sock", Route: "unix:///tmp/e.sock"},
		"sniffed":          Outbound{Common: stock(t), Name: "10.96.0.11_9000", Bind: "10.96.0.11", Port: 9000, Route: "db.shop:9000", Sniff: true, TCP: chains.List(db)},
		"sniffed alone":    Outbound{Common: stock(t), Name: "10.96.0.11_9000", Bind: "10.96.0.11", Port: 9000, Route: "db.shop:9000", Sniff: true},
		"tcp":              Outbound{Common: logged(t, nil), Name: "10.96.0.11_9000", Bind: "10.96.0.11", Port: 9000, TCP: chains.List(db)},
		"tcp chains":       Outbound{Common: stock(t), Name: "0.0.0.0_9000", Bind: "0.0.0.0", Port: 9000, TCP: chains.List(sni, cidr, db, sni, cidr, db)},
		"tcp ipv6":         Outbound{Common: stock(t), Name: "fd00::1_9000", Bind: "fd00::1", Port: 9000, TCP: chains.List(chainTo(Chain{CIDRs: strs.List("fd00::1", "fd01::/32")}, "outbound|9000||db.shop"))},
		"mixed":            Outbound{Common: stock(t), Name: "0.0.0.0_443", Bind: "0.0.0.0", Port: 443, Route: "443", TCP: chains.List(sni, cidr), Fallback: xds.Passthrough},
		"fallback alone":   Outbound{Common: stock(t), Name: "0.0.0.0_9000", Bind: "0.0.0.0", Port: 9000, Fallback: xds.Passthrough},
		"nothing":          Outbound{Common: stock(t), Name: "0.0.0.0_9000", Bind: "0.0.0.0", Port: 9000},
		"no targets":       Outbound{Common: stock(t), Name: "0.0.0.0_9000", Bind: "0.0.0.0", Port: 9000, TCP: chains.List(Chain{})},
		"no capabilities":  Outbound{Common: noCaps(t), Name: "0.0.0.0_443", Bind: "0.0.0.0", Port: 443, Route: "443", Sniff: true, TCP: chains.List(sni, cidr, db)},
		"base":             normalising(t, meshv1.MeshConfig_ProxyPathNormalization_BASE),
		"no normalisation": normalising(t, meshv1.MeshConfig_ProxyPathNormalization_NONE),
		"merge slashes":    normalising(t, meshv1.MeshConfig_ProxyPathNormalization_MERGE_SLASHES),
		"decode slashes":   normalising(t, meshv1.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES),
		"counted":          Outbound{Common: counts(t), Name: "0.0.0.0_80", Bind: "0.0.0.0", Port: 80, Route: "80", Fallback: xds.Passthrough},
		"overridden":       Outbound{Common: overridden(t), Name: "0.0.0.0_80", Bind: "0.0.0.0", Port: 80, Route: "80", Fallback: xds.Passthrough},
		"log formats": Outbound{Common: logged(t, func(m *meshv1.MeshConfig) {
			m.AccessLogFormat = "%START_TIME% %REQ_WITHOUT_QUERY(:PATH)%"
		}), Name: "0.0.0.0_80", Bind: "0.0.0.0", Port: 80, Route: "80"},
		"json format": Outbound{Common: logged(t, func(m *meshv1.MeshConfig) {
			m.AccessLogEncoding, m.AccessLogFormat = meshv1.MeshConfig_JSON, `{"a":"%PROTOCOL%","b":{"c":"%DURATION%"}}`
		}), Name: "0.0.0.0_80", Bind: "0.0.0.0", Port: 80, Route: "80"},
	}
}

func virtualSpecs(t testing.TB) map[string]builder {
	closed := allPorts(stock(t))
	closed.Closed = true
	tproxy := allPorts(logged(t, nil))
	tproxy.Transparent = true
	some := secured(t, Strict)
	some.Rest = Plain
	return map[string]builder{
		"virtual outbound":             VirtualOutbound{Common: logged(t, nil), Port: 15001, Passthrough: true},
		"virtual outbound tproxy":      VirtualOutbound{Common: stock(t), Port: 15001, Transparent: true},
		"virtual inbound":              allPorts(logged(t, nil)),
		"virtual inbound, counted":     allPorts(counts(t)),
		"virtual inbound closed":       closed,
		"virtual inbound strict":       secured(t, Strict),
		"virtual inbound permissive":   secured(t, Permissive),
		"virtual inbound, some strict": some,
		"virtual inbound tproxy":       tproxy,
		"virtual inbound no ports":     VirtualInbound{Common: stock(t), Port: 15006},
		"virtual inbound no caps":      allPorts(noCaps(t)),
	}
}

func ingressSpecs(t testing.TB) map[string]builder {
	inner := InboundPort{Port: 9080, Protocol: model.Protocol_PROTOCOL_HTTP, Cluster: "inbound|9080||", Host: "web.shop", ServicePort: 9080}
	secure := inner
	secure.Ended = ServerTLS{Mode: networkingv1.ServerTLSSettings_MUTUAL, Certificate: "/c", Key: "/k", Authorities: "/ca", Revoked: "/crl", Ciphers: strs.List("AES128-SHA"),
		Curves: strs.List("P-256"), Least: networkingv1.ServerTLSSettings_TLSV1_2, Most: networkingv1.ServerTLSSettings_TLSV1_3}
	byAgent := stock(t)
	byAgent.Caps |= xds.CapIdentity | xds.CapFileSecrets
	return map[string]builder{
		"ingress tls":    Ingress{Common: byAgent, Name: "127.0.0.1_9080", Bind: "127.0.0.1", Inner: secure},
		"ingress":        Ingress{Common: logged(t, nil), Name: "127.0.0.1_9080", Bind: "127.0.0.1", Inner: inner},
		"ingress unix":   Ingress{Common: stock(t), Name: "unix:///tmp/i.sock_9080", Bind: "unix:///tmp/i.sock", Inner: inner},
		"ingress closed": Ingress{Common: stock(t), Name: "127.0.0.1_9080", Bind: "127.0.0.1", Inner: inner, Closed: true},
		"ingress tcp": Ingress{Common: stock(t), Name: "127.0.0.1_9000", Bind: "127.0.0.1",
			Inner: InboundPort{Port: 9000, Protocol: model.Protocol_PROTOCOL_TCP, Cluster: "inbound|9000||"}},
		"ingress auto": Ingress{Common: stock(t), Name: "127.0.0.1_9000", Bind: "127.0.0.1",
			Inner: InboundPort{Port: 9000, Cluster: "inbound|9000||"}},
		"ingress udp": Ingress{Common: stock(t), Name: "127.0.0.1_9000", Bind: "127.0.0.1",
			Inner: InboundPort{Port: 9000, Protocol: model.Protocol_PROTOCOL_UDP, Cluster: "inbound|9000||"}},
	}
}
