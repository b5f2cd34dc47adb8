package plan

import (
	"fmt"
	"strings"

	"navarch.io/navarch/store/model"
)

// entrance makes, changes or deletes a Gateway that selects the gateways among the nodes, or others, or a
// VirtualService that is bound to Gateways. A third of the servers collide with another in port, host or protocol.
func (m *mesh) entrance() (put model.Record, del model.Key) {
	pick := func(from ...string) string { return from[m.entrances.IntN(len(from))] }
	kind, name, text := model.KindGateway, pick("g0", "g1", "g2"), ""
	if m.entrances.IntN(5) > 1 {
		kind, name = model.KindVirtualService, pick("d0", "d1", "d2", "d3")
		text = m.boundRules(pick)
	} else {
		var servers []string
		for range 1 + m.entrances.IntN(3) {
			servers = append(servers, m.server(pick, len(servers)))
		}
		text = fmt.Sprintf("{selector: {%s}, servers: [%s]}", pick("app: gw", "app: gw", "app: gw", "", "app: s0"), strings.Join(servers, ", "))
		text = m.withProtocols(text)
	}
	key := model.Key{Kind: kind, Namespace: pick("a", "a", "b", "istio-system"), Name: name}
	old, ok := m.records[key]
	if ok && m.entrances.IntN(4) == 0 {
		delete(m.records, key)
		return nil, old.Meta().Key
	}
	m.clock++
	created := m.clock
	if ok && m.entrances.IntN(4) > 0 {
		created = old.Meta().Created
	}
	put = rec(m.t, kind, fmt.Sprintf("%s/%s@%d", key.Namespace, name, created), text)
	m.records[key] = put
	return put, model.Key{}
}

// withProtocols replaces the protocol of each HTTP server in the text of a Gateway by a random one of the HTTP family,
// if the mesh has a source of them.
func (m *mesh) withProtocols(text string) string {
	const of = "protocol: HTTP}"
	for m.protocols != nil && strings.Contains(text, of) {
		text = strings.Replace(text, of, "protocol: "+[]string{"HTTP ", "HTTP2", "GRPC", "GRPC-WEB"}[m.protocols.IntN(4)]+"}", 1)
	}
	return text
}

// server is one server of a Gateway.
func (m *mesh) server(pick func(...string) string, i int) string {
	shape := pick(
		"protocol: HTTP", "protocol: HTTP", "protocol: HTTP, redirect: true", "protocol: TCP", "protocol: TCP",
		"protocol: HTTPS, mode: SIMPLE", "protocol: HTTPS, mode: SIMPLE", "protocol: HTTPS, mode: MUTUAL", "protocol: HTTPS, mode: ISTIO_MUTUAL",
		"protocol: TLS, mode: PASSTHROUGH", "protocol: TLS, mode: AUTO_PASSTHROUGH", "protocol: TLS, mode: SIMPLE")
	protocol, mode, _ := strings.Cut(shape, ", ")
	tls := ""
	switch mode {
	case "":
	case "redirect: true":
		tls = ", tls: {httpsRedirect: true}"
	case "mode: SIMPLE", "mode: MUTUAL":
		tls = fmt.Sprintf(", tls: {%s, credentialName: %s}", mode, pick("cert", "other"))
	default:
		tls = fmt.Sprintf(", tls: {%s}", mode)
	}
	return fmt.Sprintf("{port: {number: %s, name: p%d, %s}, hosts: %s%s%s}", pick("80", "80", "443", "443", "9000"), i, protocol,
		pick("['*']", "['*', 'www.test']", "['www.test']", "['www.test', 'a/shop.test']", "['*.test']", "['./shop.test']", "['*.local']"), tls,
		pick("", "", "", ", bind: 0.0.0.0", ", bind: '::'", ", bind: 10.1.0.1"))
}

// boundRules is the body of a VirtualService that is bound to Gateways.
func (m *mesh) boundRules(pick func(...string) string) string {
	to := func() string {
		return fmt.Sprintf("{destination: {host: %s.%s.svc.cluster.local%s}}", pick("s0", "s1", "s2"), pick("a", "b"),
			pick("", "", ", subset: v1", ", port: {number: 80}"))
	}
	rule := func() string {
		return fmt.Sprintf("{%sroute: [%s]}", pick("", "match: [{uri: {prefix: /a}}], ", "match: [{uri: {exact: /b}}, {uri: {prefix: /}}], ",
			"match: [{port: 443}], ", "match: [{sourceLabels: {app: gw}}], ", "match: [{sourceLabels: {version: v1}}], ", "match: [{gateways: [a/g0]}], "), to())
	}
	hosts := pick("[www.test]", "[www.test]", "[shop.test]", "['*.test']", "[www.test, shop.test]", "['*']")
	rules := fmt.Sprintf("http: [%s, %s]", rule(), rule())
	switch m.entrances.IntN(5) {
	case 0:
		rules = fmt.Sprintf("tcp: [{route: [%s]}]", to())
	case 1:
		rules = fmt.Sprintf("tls: [{match: [{sniHosts: %s}], route: [%s]}]", pick("[www.test]", "[shop.test]", "['*.test']", "['*']", "['*', www.test]",
			"['*-x.test', shop.test]"), to())
	}
	return fmt.Sprintf("{hosts: %s, gateways: %s, exportTo: ['%s'], %s}", hosts, pick("[a/g0]", "[a/g0, a/g1]", "[mesh, a/g0]", "[b/g1, a/g2]", "[istio-system/g0]"),
		pick("*", "*", "*", ".", "a"), rules)
}

// leading makes, changes or deletes what leads to the Pods of the gateways among the nodes: their Service, its
// endpoints, or a ServiceEntry of another namespace with endpoints at local addresses and the agent's ports.
func (m *mesh) leading() (put model.Record, del model.Key) {
	pick := func(from ...string) string { return from[m.local.IntN(len(from))] }
	const host = "leading.example.com"
	own := func() string { return pick("10.1.0.1", "10.1.0.2", "10.1.0.3") }
	var text string
	var key model.Key
	switch m.local.IntN(8) {
	case 0:
		key = model.Key{Kind: model.KindService, Namespace: "a", Name: "gw"}
		text = "{hosts: [gw.a.svc.cluster.local], exportTo: ['*'], selector: {app: gw}, addresses: [" + pick("10.96.0.9", "10.1.0.3") +
			"], ports: [{name: status, number: 15021, protocol: PROTOCOL_TCP}]}"
	case 1, 2, 3:
		key = model.Key{Kind: model.KindEndpoints, Namespace: "a", Name: "gw-1"}
		text = fmt.Sprintf("{hosts: [gw.a.svc.cluster.local], ports: [{name: status, number: 15021}], endpoints: [{address: %s}, {address: %s, health: %s}]}",
			own(), own(), pick("HEALTH_READY", "HEALTH_NOT_READY"))
	case 4, 5:
		key = model.Key{Kind: model.KindServiceEntry, Namespace: pick("a", "b", "b"), Name: "leading"}
		text = fmt.Sprintf("{hosts: [%s], exportTo: ['*'], resolution: %s, ports: [{name: http, number: 80, protocol: PROTOCOL_HTTP}]}", host,
			pick("RESOLUTION_EDS", "RESOLUTION_EDS", "RESOLUTION_DNS"))
	default:
		key = model.Key{Kind: model.KindEndpoints, Namespace: pick("a", "b", "b"), Name: model.ServiceEntryPrefix + "leading"}
		text = fmt.Sprintf("{hosts: [%s], ports: [{name: http, number: %s, service: 80}], endpoints: [{address: %s}, {address: %s}]}", host,
			pick("15020", "15020", "8080"), own(), pick("127.0.0.1", "10.1.0.9", "169.254.169.254", own()))
	}
	old, ok := m.records[key]
	if ok && m.local.IntN(5) == 0 {
		delete(m.records, key)
		return nil, old.Meta().Key
	}
	put = rec(m.t, key.Kind, key.Namespace+"/"+key.Name, text)
	m.records[key] = put
	return put, model.Key{}
}
