package plan

import (
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
)

// A wildcard host whose names are resolved on request leads a gateway to names below it alone: a client or a rule that
// could choose another host would reach the gateway's own administration by 127.0.0.1:15000 (Envoy resolves what the
// request has as its host). Sidecars, and gateways with NAVARCH_GATEWAY_LOCAL_DESTINATIONS, are led anywhere.
// Promise: security-gateways.md#publish-the-gateway-itself
func TestHostsThatClientsChoose(t *testing.T) {
	const to, cluster = "route: [{destination: {host: '*.evil.test', port: {number: 80}}}]", `"outbound|80||*.evil.test"`
	const mirror = "route: [{destination: {host: s0.a.svc.cluster.local}}], mirror: {host: '*.evil.test', port: {number: 80}}"
	for name, c := range map[string]struct {
		host, rule string
		kept       bool
	}{
		"a name below":             {"a.evil.test", "http: [{" + to + "}]", true},
		"all names below":          {"'*.evil.test'", "http: [{" + to + "}]", true},
		"a name below, rewritten":  {"a.evil.test", "http: [{rewrite: {authority: b.evil.test}, " + to + "}]", true},
		"loopback":                 {"127.0.0.1", "http: [{" + to + "}]", false},
		"another name":             {"other.test", "http: [{" + to + "}]", false},
		"any host":                 {"'*'", "http: [{" + to + "}]", false},
		"a mirror":                 {"'*'", "http: [{" + mirror + "}]", false},
		"rewritten to loopback":    {"a.evil.test", "http: [{rewrite: {authority: '127.0.0.1:15000'}, " + to + "}]", false},
		"a port of the own":        {"a.evil.test", "http: [{rewrite: {authority: 'a.evil.test:15000'}, " + to + "}]", false},
		"set by the rule's header": {"a.evil.test", "http: [{headers: {request: {set: {Host: localhost}}}, " + to + "}]", false},
		"set by the route's header": {"a.evil.test", "http: [{route: [{headers: {request: {add: {':authority': localhost}}}, " +
			"destination: {host: '*.evil.test', port: {number: 80}}}]}]", false},
		"SNI below":                 {"'*.evil.test'", "tls: [{match: [{sniHosts: ['*.evil.test']}], " + to + "}]", true},
		"SNI of another name":       {"localhost.test", "tls: [{match: [{sniHosts: [localhost.test]}], " + to + "}]", false},
		"any SNI":                   {"'*'", "tls: [{match: [{sniHosts: ['*']}], " + to + "}]", false},
		"connections, whatever SNI": {"'*'", "tcp: [{" + to + "}]", false},
	} {
		p, _, gw := gatewayPlanner(svc(t, "a/s0", "10.96.0.1", "http:80:HTTP"),
			rec(t, model.KindGateway, "edge/front", `selector: {app: gw}
servers:
- {port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}
- {port: {number: 443, name: tls, protocol: TLS}, tls: {mode: PASSTHROUGH}, hosts: ['*']}
- {port: {number: 9000, name: tcp, protocol: TCP}, hosts: ['*']}`),
			rec(t, model.KindServiceEntry, "evil/e", "{hosts: ['*.evil.test'], exportTo: ['*'], external: true, resolution: RESOLUTION_DYNAMIC_DNS, "+
				"ports: [{name: http, number: 80, protocol: PROTOCOL_HTTP}]}"),
			rec(t, model.KindVirtualService, "evil/v@1", "{hosts: ["+c.host+"], gateways: [edge/front], "+c.rule+"}"))
		allowed := routerOf("edge", "allowed")
		allowed.Routers.Local = true
		leads := func(h *Handle) bool {
			text := string(fold(t, h.Set()))
			_, text, _ = strings.Cut(text, `"listeners"`)
			return strings.Contains(strings.ReplaceAll(text, ": ", ":"), `"cluster":`+cluster)
		}
		if leads(gw) != c.kept || !leads(p.Join(allowed)) {
			t.Errorf("%s: the gateway is led there: %v, want %v; with local destinations %v", name, leads(gw), c.kept, leads(p.Join(allowed)))
		}
		if got := problemTexts(p); !strings.HasPrefix(c.rule, "t") && strings.Contains(got, "by this route gateways connect only to names below *.evil.test") == c.kept {
			t.Errorf("%s: problems %q", name, got)
		}
	}
}
