package plan

import (
	"cmp"
	"strings"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// A server whose TLS cannot be served as it is stated closes its own connections, and its Gateway has a problem that
// names the server. Servers that lose a port to an older Gateway have a problem that names the winner.
func TestProblemsOfServers(t *testing.T) {
	gateway := func(name, servers string) model.Record {
		return rec(t, model.KindGateway, name, "{selector: {app: gw}, servers: ["+servers+"]}")
	}
	router := node("shop", "gw-0", "app=gw")
	router.Kind = view.Router
	p := New(Settings{Snapshot: snapshot(
		gateway("shop/first@1", "{port: {number: 443, name: a, protocol: HTTPS}, hosts: [a.test], tls: {mode: SIMPLE}}, "+
			"{port: {number: 9000, name: b, protocol: TCP}, hosts: ['*']}"),
		gateway("other/second@2", "{port: {number: 9000, name: c, protocol: TCP}, hosts: ['*']}"))})
	p.Join(router)
	var all []string
	for _, one := range p.Problems() {
		all = append(all, one.Error())
	}
	for _, want := range []string{
		"Gateway shop/first: spec.servers[0]: tls.serverCertificate: a certificate or its key is missing; connections are closed",
		"Gateway other/second: spec.servers[0]",
		"shop/first",
	} {
		if !strings.Contains(strings.Join(all, "\n"), want) {
			t.Errorf("no problem %q in\n%s", want, strings.Join(all, "\n"))
		}
	}
}

// Envoy itself reads no files that a Gateway of another namespace names: a missing file would cost the whole
// listener. The chain stays, and closes its connections. An agent that serves files serves them for all Gateways.
// Promise: security-gateways.md#make-a-gateway-fail
func TestFilesOfForeignGateways(t *testing.T) {
	gateway := func(namespace, host string) model.Record {
		return rec(t, model.KindGateway, namespace+"/front", "{selector: {app: gw}, servers: [{port: {number: 443, name: "+namespace+
			", protocol: HTTPS}, hosts: ["+host+"], tls: {mode: SIMPLE, serverCertificate: /c, privateKey: /k}}]}")
	}
	for caps, want := range map[xds.Caps][2]string{0: {"file-cert:/c~/k", "BlackHoleCluster"},
		xds.CapIdentity | xds.CapFileSecrets: {"file-cert:/c~/k", "file-cert:/c~/k"}} {
		router := routerOf("edge", "gw")
		router.Caps |= caps
		p := New(Settings{Snapshot: snapshot(gateway("edge", "a.test"), gateway("evil", "b.test"))})
		chains, _ := chainsOf(t, p.Join(router).Set(), "0.0.0.0_443")
		for i, host := range []string{"a.test ", "b.test "} {
			if !strings.Contains(string(chains[host]), want[i]) || i == 1 && caps == 0 && strings.Contains(string(chains[host]), "/c") {
				t.Errorf("caps %d: chain %s is %q, want %s", caps, host, chains[host], want[i])
			}
		}
		const foreign = "Gateway evil/front: spec.servers[0]: tls: the gateway's agent does not serve these files"
		if got := problemTexts(p); strings.Contains(got, foreign) != (caps == 0) || strings.Contains(got, "edge/front") {
			t.Errorf("caps %d: problems %q", caps, got)
		}
	}
}

// A rule of another namespace than the gateway's gets no private key for its cluster, even if a Gateway makes the
// gateway request the Secret. Promise: security-gateways.md#keys-secrets-and-configmaps
func TestClientCertificateOfAForeignRule(t *testing.T) {
	for namespace, foreign := range map[string]bool{"edge": false, "evil": true} {
		p, _, gw := gatewayPlanner(append(entryAt(t, "EDS", 8443, "10.9.0.1"),
			rec(t, model.KindGateway, "evil/front", "{selector: {app: gw}, servers: [{port: {number: 443, name: a, protocol: HTTPS}, hosts: [a.test], "+
				"tls: {mode: SIMPLE, credentialName: bank}}]}"),
			rec(t, model.KindDestinationRule, namespace+"/d", "{host: evil.test, trafficPolicy: {tls: {mode: MUTUAL, credentialName: bank}}}"))...)
		c := clusterOf(t, gw.Set(), "outbound|80||evil.test")
		if uses := strings.Contains(c.GetTransportSocket().String(), "kubernetes://bank"); uses == foreign {
			t.Errorf("a rule of %s: the cluster has the Secret: %t", namespace, uses)
		}
		want := "DestinationRule evil/d: spec.trafficPolicy.tls.credentialName: the private key of a Secret is used for rules"
		if got := problemTexts(p); strings.Contains(got, want) != foreign {
			t.Errorf("a rule of %s: problems %q", namespace, got)
		}
	}
}

// Files that no agent serves are in secrets of the control plane: Envoy refuses the secret of a missing file alone. The
// listener names no file.
// Promise: security-gateways.md#make-a-gateway-fail
func TestFilesWithoutAgent(t *testing.T) {
	const front = `{selector: {app: gw}, servers: [{port: {number: 443, name: a, protocol: HTTPS}, hosts: [a.test], tls: {mode: MUTUAL,
		serverCertificate: /c, privateKey: /k, caCertificates: /ca, caCrl: /crl}}]}`
	for caps, want := range map[xds.Caps]string{0: "file-cert:/c~/k file-root:/ca~/crl",
		xds.CapIdentity | xds.CapFileSecrets | xds.CapFileLists: ""} {
		router := routerOf("edge", "gw")
		router.Caps |= caps
		set := New(Settings{Snapshot: snapshot(rec(t, model.KindGateway, "edge/front", front))}).Join(router).Set()
		if got := names(set, xds.Secret); got != want {
			t.Errorf("caps %d: secrets %q, want %q", caps, got, want)
		}
		if l := listenerOf(t, set, "0.0.0.0_443").String(); strings.Contains(l, "filename") {
			t.Errorf("caps %d: the listener names a file: %s", caps, l)
		}
		if caps == 0 {
			trust := decode(t, set, xds.Secret, "file-root:/ca~/crl", &tlsv3.Secret{}).GetValidationContext()
			if trust.GetTrustedCa().GetFilename() != "/ca" || trust.GetCrl().GetFilename() != "/crl" {
				t.Errorf("the secret is %v", trust)
			}
		}
	}
}

// Envoy itself reads no files that a rule of another namespace than the gateway's names: it would refuse the cluster.
// An agent that serves files serves them, and is told the namespace that has them served.
// Promise: security-gateways.md#make-a-gateway-fail
func TestFilesOfForeignRules(t *testing.T) {
	const files = xds.CapIdentity | xds.CapFileSecrets
	for _, c := range []struct {
		namespace, tls string
		caps           xds.Caps
		want           string // empty: the cluster is closed
	}{
		{"edge", "caCertificates: /ca", 0, `"/ca"`},
		{"evil", "caCertificates: /ca", 0, ""},
		{"evil", "caCertificates: /ca", files, `"file-root:/ca"`},
		{"evil", "caCertificates: /ca, caCrl: /crl", files, ""},
		{"evil", "caCertificates: /ca, caCrl: /crl", files | xds.CapFileLists | xds.CapFileOwners, `"file-root:/ca~/crl~~evil"`},
		{"edge", "caCertificates: /ca", files | xds.CapFileOwners, `"file-root:/ca"`},
		{"evil", "sni: a.test", files | xds.CapFileOwners, `"file-root:system"`},
		{"evil", "sni: a.test", 0, "/etc/ssl/certs/ca-certificates.crt"},
	} {
		router := routerOf("edge", "gw")
		router.Caps |= c.caps
		p := New(Settings{Snapshot: snapshot(append(entryAt(t, "EDS", 8443, "10.9.0.1"),
			rec(t, model.KindDestinationRule, c.namespace+"/d", "{host: evil.test, trafficPolicy: {tls: {mode: SIMPLE, "+c.tls+"}}}"))...)})
		got := clusterOf(t, p.Join(router).Set(), "outbound|80||evil.test").String()
		closed := strings.Contains(problemTexts(p), "DestinationRule evil/d: spec.trafficPolicy.tls: the gateway's agent does not serve these files")
		if closed != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: closed %t, cluster %s", c, closed, got)
		}
	}
}

// HTTPS with HTTP/3 beside it whose TLS cannot be ended has one problem, and no UDP listener.
func TestProblemOfHTTP3(t *testing.T) {
	router := routerOf("edge", "gw")
	router.Routers.QUIC = true
	p := New(Settings{Snapshot: snapshot(svc(t, "edge/gw", "10.96.0.1", "https:443:HTTPS", "h3:443:UDP"),
		eps(t, "edge/gw-1", "{name: https, number: 443}", "10.1.0.1"),
		rec(t, model.KindGateway, "edge/front", "{selector: {app: gw}, servers: ["+
			"{port: {number: 443, name: a, protocol: HTTPS}, hosts: [a.test], tls: {mode: SIMPLE}}]}"))})
	gw := p.Join(router)
	var all []string
	for _, one := range p.Problems() {
		all = append(all, one.Error())
	}
	if len(all) != 1 || !strings.Contains(all[0], "a certificate or its key is missing") {
		t.Errorf("problems %q, want one", all)
	}
	if names := names(gw.Set(), xds.Listener); strings.Contains(names, "udp_") {
		t.Errorf("listeners %s", names)
	}
}

// A CUSTOM policy at a gateway whose provider does not exist has a problem, from the gateway alone.
func TestProblemsOfProviders(t *testing.T) {
	p, _, _ := gatewayPlanner(
		rec(t, model.KindGateway, "edge/front", "{selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}"),
		security(t, model.KindAuthorizationPolicy, "edge/asks", "{action: CUSTOM, provider: {name: nobody}, rules: [{}]}", &securityv1.AuthorizationPolicy{}))
	var all []string
	for _, one := range p.Problems() {
		all = append(all, one.Error())
	}
	if got := strings.Join(all, "\n"); !strings.Contains(got, `AuthorizationPolicy edge/asks: spec.provider.name: "nobody" cannot be queried`) {
		t.Errorf("the policy has no problem of its provider in\n%s", got)
	}
}

// A younger server of another namespace does not redirect the requests of a host that an older server serves.
// Promise: security-gateways.md#take-hosts-ports-and-traffic
func TestRedirectOfAForeignGateway(t *testing.T) {
	server := func(name, hosts, tls string) model.Record {
		return rec(t, model.KindGateway, name, "{selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["+hosts+"]"+tls+"}]}")
	}
	const redirect = ", tls: {httpsRedirect: true}"
	for name, c := range map[string]struct {
		older, younger model.Record
		redirected     bool
	}{
		"a foreign one":             {server("edge/front@1", "'*'", ""), server("evil/g@2", "h0.test", redirect), false},
		"one of the same namespace": {server("edge/front@1", "'*'", ""), server("edge/g@2", "h0.test", redirect), true},
		"the older":                 {server("edge/front@1", "h0.test", redirect), server("evil/g@2", "h0.test", ""), true},
	} {
		p, _, gw := gatewayPlanner(svc(t, "a/s0", "10.96.0.1", "http:80:HTTP"), c.older, c.younger, boundRule(t, 0, "/a"),
			rec(t, model.KindService, "edge/gw", "{hosts: [gw.edge.svc.cluster.local], addresses: [10.96.9.1], selector: {app: gw}, "+
				"ports: [{name: http, number: 80, targetNumber: 8080, protocol: PROTOCOL_HTTP}]}"))
		for _, vh := range routesOfSet(t, gw.Set(), "http.8080").VirtualHosts {
			if vh.Domains[0] == "h0.test" && (vh.RequireTls != 0) != c.redirected {
				t.Errorf("%s: redirected %v, want %t", name, vh.RequireTls, c.redirected)
			}
		}
		const want = "Gateway evil/g: spec.servers[0].tls.httpsRedirect: host h0.test on port 80 (8080 of the Pod): Gateway edge/front (spec.servers[0]) takes precedence"
		if got := problemTexts(p); strings.Contains(got, want) == c.redirected {
			t.Errorf("%s: problems %q", name, got)
		}
	}
}

// A policy that selects a gateway and names no port at which it listens has a warning with the Pod's ports. A policy
// without a selector is for sidecars too, and gets no warning.
func TestProblemsOfUnboundPolicyPorts(t *testing.T) {
	policy := func(name, spec string) model.Record {
		return security(t, model.KindAuthorizationPolicy, name, spec, &securityv1.AuthorizationPolicy{})
	}
	const deny, selector = "action: DENY, rules: [{to: [{operation: {paths: [/admin], ports: ['%s']}}]}]", "selector: {matchLabels: {app: gw}}, "
	for name, c := range map[string]struct {
		policy model.Record
		field  string // of the expected problem; "": none
	}{
		"the port of the Gateway's server": {policy("edge/p", "{"+selector+strings.ReplaceAll(deny, "%s", "80")+"}"), "spec.rules[0].to[0].operation.ports"},
		"the port of the Pod":              {policy("edge/p", "{"+selector+strings.ReplaceAll(deny, "%s", "8080")+"}"), ""},
		"one of both":                      {policy("edge/p", "{"+selector+strings.ReplaceAll(deny, "%s", "80', '8080")+"}"), ""},
		"a condition": {policy("edge/p", "{"+selector+"rules: [{}, {when: [{key: destination.port, values: ['443', '80']}]}]}"),
			"spec.rules[1].when[0].values"},
		"a condition that excludes a port": {policy("edge/p", "{"+selector+"rules: [{when: [{key: destination.port, notValues: ['80']}]}]}"), ""},
		"for all workloads":                {policy("edge/p", "{"+strings.ReplaceAll(deny, "%s", "80")+"}"), ""},
	} {
		p, _, _ := gatewayPlanner(c.policy,
			rec(t, model.KindService, "edge/gw", "{hosts: [gw.edge.svc.cluster.local], addresses: [10.96.9.1], selector: {app: gw}, "+
				"ports: [{name: http, number: 80, targetNumber: 8080, protocol: PROTOCOL_HTTP}]}"),
			rec(t, model.KindGateway, "edge/front", "{selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}"))
		want := ""
		if c.field != "" {
			want = "AuthorizationPolicy edge/p: " + c.field + ": names no port at which the gateways of namespace edge listen, so it matches nothing " +
				"there: state the port of the Pod, not that of the Gateway's server (here 8080 for port 80)"
		}
		if got := problemTexts(p); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}

// A destination without a port at a gateway means the port of the server. If its service has several other ports, the
// VirtualService has a problem, with at most five of the ports.
func TestProblemsOfPortsAtGateways(t *testing.T) {
	const many = "p1:8001:HTTP,p2:8002:HTTP,p3:8003:HTTP,p4:8004:HTTP,p5:8005:HTTP,p6:8006:HTTP"
	for name, c := range map[string]struct{ ports, exportTo, destination, want string }{
		"no port of two":       {"a:8001:HTTP,b:8002:HTTP", "", "", "states no port and has no port 80 (it has 8001, 8002), to which requests to h0.test come"},
		"no port of many":      {many, "", "", "states no port and has no port 80 (it has 8001, 8002, 8003, 8004, 8005 and others), to which requests to h0.test come"},
		"no port, one fits":    {"a:80:HTTP,b:8002:HTTP", "", "", ""},
		"the only port":        {"a:8001:HTTP", "", "", ""},
		"another port":         {"a:8001:HTTP,b:8002:HTTP", "", ", port: {number: 9}", "has no port 9 here (it has 8001, 8002)"},
		"a service of others":  {"a:8001:HTTP", "edge", ", port: {number: 9}", "has no port 9 here"},
		"its port":             {"a:8001:HTTP,b:8002:HTTP", "", ", port: {number: 8002}", ""},
		"a service for tenant": {"a:8001:HTTP", "edge, shop", ", port: {number: 9}", "has no port 9 here (it has 8001)"},
	} {
		var ports []string
		for p := range strings.SplitSeq(c.ports, ",") {
			name, number, _ := strings.Cut(strings.TrimSuffix(p, ":HTTP"), ":")
			ports = append(ports, "{name: "+name+", number: "+number+", protocol: PROTOCOL_HTTP}")
		}
		p, _, _ := gatewayPlanner(
			rec(t, model.KindService, "a/s0", "{hosts: [s0.a.svc.cluster.local], exportTo: ["+cmp.Or(c.exportTo, "'*'")+"], addresses: [10.96.0.1], ports: ["+strings.Join(ports, ", ")+"]}"),
			rec(t, model.KindGateway, "edge/front", "{selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}"),
			rec(t, model.KindVirtualService, "shop/v@1", "{hosts: [h0.test], gateways: [edge/front], http: [{route: [{destination: {host: s0.a.svc.cluster.local"+
				c.destination+"}}]}]}"))
		if c.want != "" {
			c.want = "VirtualService shop/v: spec.http: destination s0.a.svc.cluster.local " + c.want + "; requests to it are answered 503"
		}
		if got := problemTexts(p); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}
