package plan

import (
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
)

// A route of a gateway to the gateway itself is refused, in any form: each request would return, and be routed again.
// The problem names the rule. Promise: security-gateways.md#publish-the-gateway-itself
func TestRoutesToTheGatewayItself(t *testing.T) {
	mesh := append(entryAt(t, "EDS", 8080, "10.1.0.2", "10.9.0.1"),
		rec(t, model.KindGateway, "edge/front@1", `{selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']},
			{port: {number: 9000, name: tcp, protocol: TCP}, hosts: ['*']}]}`),
		rec(t, model.KindService, "edge/gw", `{hosts: [gw.edge.svc.cluster.local], exportTo: ['*'], selector: {app: gw}, addresses: [10.96.0.1],
			ports: [{name: http, number: 80, protocol: PROTOCOL_HTTP, targetNumber: 8080}, {name: tcp, number: 9000, protocol: PROTOCOL_TCP, targetNumber: 9000},
				{name: status, number: 15021, protocol: PROTOCOL_TCP, targetNumber: 15021}]}`),
		eps(t, "edge/gw-1", "{name: http, number: 8080}, {name: tcp, number: 9000}, {name: status, number: 15021}", "10.1.0.1", "10.1.0.2"),
		svc(t, "a/s0", "10.96.0.2", "http:80:HTTP"),
		rec(t, model.KindVirtualService, "evil/v", `{hosts: [loop.test], gateways: [edge/front],
			http: [{match: [{uri: {prefix: /status}}], route: [{destination: {host: gw.edge.svc.cluster.local, port: {number: 15021}}}]},
				{match: [{uri: {prefix: /copy}}], route: [{destination: {host: s0.a.svc.cluster.local}}],
					mirrors: [{destination: {host: gw.edge.svc.cluster.local, port: {number: 80}}}]},
				{route: [{destination: {host: gw.edge.svc.cluster.local, port: {number: 80}}}]}],
			tcp: [{match: [{port: 9000}], route: [{destination: {host: gw.edge.svc.cluster.local, port: {number: 80}}}]}]}`))
	p, _, gw := gatewayPlanner(mesh...)
	allowed := routerOf("edge", "allowed")
	allowed.Routers.Local = true
	const http = "outbound|80||gw.edge.svc.cluster.local"
	for h, open := range map[*Handle]bool{gw: false, p.Join(allowed): true} {
		routes := routesOfSet(t, h.Set(), "http.8080").VirtualHosts[0].Routes
		if got := routes[0].GetRoute().GetCluster(); got != "outbound|15021||gw.edge.svc.cluster.local" {
			t.Errorf("the port of readiness: %s", got)
		}
		if got := routes[1].GetRoute().GetRequestMirrorPolicies(); len(got) == 1 != open {
			t.Errorf("%s: mirrors %v", h.Node.Name, got)
		}
		if got := routes[2].GetRoute().GetCluster(); got == http != open || !open && got != "BlackHoleCluster" {
			t.Errorf("%s: the route leads to %s", h.Node.Name, got)
		}
		if chains, _ := chainsOf(t, h.Set(), "0.0.0.0_9000"); strings.Contains(string(chains[""]), http) != open {
			t.Errorf("%s: the TCP chain is %q", h.Node.Name, chains[""])
		}
		if got := destinations(t, h, "outbound|80||evil.test"); strings.Contains(got, "10.1.0.2") != open || !strings.Contains(got, "10.9.0.1") {
			t.Errorf("%s: the endpoints of another namespace's host are %q", h.Node.Name, got)
		}
	}
	for _, want := range []string{
		"VirtualService evil/v: spec.http[1]: destination gw.edge.svc.cluster.local, port 80, is the gateway itself",
		"VirtualService evil/v: spec.tcp[0]: destination gw.edge.svc.cluster.local, port 80, is the gateway itself",
		"ServiceEntry evil/e: spec.endpoints: host evil.test: gateways do not get the endpoint 10.1.0.2, port 8080: the address is of the gateway's own Pods",
	} {
		if got := problemTexts(p); !strings.Contains(got, want) {
			t.Errorf("problems\n%s\nwant %q", got, want)
		}
	}
	if sidecar := p.Join(node("a", "other")); !strings.Contains(destinations(t, sidecar, "outbound|80||evil.test"), "10.1.0.2") {
		t.Error("a sidecar lacks the endpoint")
	}
}
