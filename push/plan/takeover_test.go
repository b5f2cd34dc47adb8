package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// shares returns a VirtualService of a shared host.
func shares(t testing.TB, name, more string, prefixes ...string) model.Record {
	var rules []string
	for _, p := range prefixes {
		match := ""
		if p != "" {
			match = fmt.Sprintf("match: [{uri: {%s}}], ", p)
		}
		rules = append(rules, "{"+match+"route: [{destination: {host: s0.a.svc.cluster.local}}]}")
	}
	return rec(t, model.KindVirtualService, name, "{hosts: [www.test], gateways: [edge/front]"+more+", http: ["+strings.Join(rules, ", ")+"]}")
}

// Of VirtualServices of two namespaces that share a host at a gateway, a younger one that takes requests from an older
// one is named on both objects. A path that stays with the older one is no problem.
// Promise: security-gateways.md#allowed-by-istios-defaults
func TestTakenOver(t *testing.T) {
	const early = ", exportTo: [edge]"
	for _, c := range []struct {
		name    string
		records []model.Record
		want    string // younger > older: a path that is taken over; winner < loser: a path that is lost
	}{
		{"a path before a catch-all", []model.Record{shares(t, "a/old@1", "", ""), shares(t, "b/new@2", "", "prefix: /pay")}, "b/new > a/old: www.test/pay"},
		{"of one namespace", []model.Record{shares(t, "a/old@1", "", ""), shares(t, "a/new@2", "", "prefix: /pay")}, ""},
		{"the older one before", []model.Record{shares(t, "a/old@1", "", "prefix: /pay"), shares(t, "b/new@2", "", "")}, ""},
		{"the same path later", []model.Record{shares(t, "a/old@1", "", "prefix: /pay"), shares(t, "b/new@2", "", "prefix: /pay/now")}, "a/old < b/new: www.test/pay/now"},
		{"two catch-alls", []model.Record{shares(t, "a/old@1", "", ""), shares(t, "b/new@2", "", "")}, "a/old < b/new: www.test/"},
		{"two catch-alls of one namespace", []model.Record{shares(t, "a/old@1", "", ""), shares(t, "a/new@2", "", "")}, "a/old < a/new: www.test/"},
		{"the same path without regard to case", []model.Record{shares(t, "a/old@1", "", "prefix: /pay"), rec(t, model.KindVirtualService, "a/new@2",
			"{hosts: [www.test], gateways: [edge/front], http: [{match: [{uri: {prefix: /pay}, ignoreUriCase: true}], route: [{destination: {host: s0.a.svc.cluster.local}}]}]}")}, ""},
		{"the same path, the older one for a header", []model.Record{rec(t, model.KindVirtualService, "a/old@1",
			"{hosts: [www.test], gateways: [edge/front], http: [{match: [{uri: {prefix: /pay}, headers: {x: {exact: v}}}], route: [{destination: {host: s0.a.svc.cluster.local}}]}]}"),
			shares(t, "a/new@2", "", "prefix: /pay")}, ""},
		{"exported to the gateway", []model.Record{shares(t, "a/old@1", "", "prefix: /pay/now"), shares(t, "b/new@2", early, "prefix: /pay")},
			"b/new > a/old: www.test/pay/now"},
		{"below the older one's path", []model.Record{shares(t, "a/old@1", "", "prefix: /pay"), shares(t, "b/new@2", early, "exact: /pay/now")},
			"b/new > a/old: www.test/pay/now"},
		{"the same path exactly", []model.Record{shares(t, "a/old@1", "", "exact: /pay"), shares(t, "b/new@2", early, "exact: /pay")}, "b/new > a/old: www.test/pay"},
		{"the same expression", []model.Record{shares(t, "a/old@1", "", "regex: /p.*"), shares(t, "b/new@2", early, "regex: /p.*")}, "b/new > a/old: www.test/p.*"},
		{"all requests", []model.Record{shares(t, "a/old@1", "", ""), shares(t, "b/new@2", early, "")}, "b/new > a/old: www.test/"},
		{"other paths", []model.Record{shares(t, "a/old@1", "", "prefix: /pay"), shares(t, "b/new@2", early, "prefix: /play", "exact: /pa")}, ""},
		{"behind its own catch-all", []model.Record{shares(t, "a/old@1", "", ""), shares(t, "b/new@2", "", "", "prefix: /pay")}, "a/old < b/new: www.test/"},
		{"another port", []model.Record{shares(t, "a/old@1", "", ""), rec(t, model.KindVirtualService, "b/new@2",
			"{hosts: [www.test], gateways: [edge/front], http: [{match: [{port: 81, uri: {prefix: /pay}}], route: [{destination: {host: s0.a.svc.cluster.local}}]}]}")}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _, _ := gatewayPlanner(append(c.records, svc(t, "a/s0", "10.96.0.1", "http:80:HTTP"),
				rec(t, model.KindGateway, "edge/front", "{selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}"))...)
			var younger, older []string
			lost := false
			for _, one := range p.Problems() {
				if one.Code != problem.Duplicate {
					continue
				}
				key := one.Key.Namespace + "/" + one.Key.Name
				if strings.Contains(one.Message, "gets no requests") {
					if want := fmt.Sprintf("%s < %s: ", winnerOf(one.Message), key); !strings.HasPrefix(c.want, want) ||
						!strings.Contains(one.Message, "for "+strings.TrimPrefix(c.want, want)+" at gateways") {
						t.Errorf("%s: %s, want %q", key, one.Message, c.want)
					}
					lost = true
					continue
				}
				if strings.Contains(one.Message, "takes requests") {
					younger = append(younger, key)
				} else {
					older = append(older, key)
				}
				if _, path, found := strings.Cut(c.want, ": "); !found || !strings.Contains(one.Message, "for "+path+" at gateways") {
					t.Errorf("%s: %s", key, one.Message)
				}
			}
			if strings.Contains(c.want, "<") {
				if !lost || len(younger)+len(older) > 0 {
					t.Errorf("lost: %v, and taken over: %v, %v; want %q", lost, younger, older, c.want)
				}
				return
			}
			got := strings.TrimSpace(strings.Join(younger, " ") + " > " + strings.Join(older, " "))
			if want, _, _ := strings.Cut(c.want, ":"); got != want && !(want == "" && got == ">") {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// winnerOf returns the namespace and name of the VirtualService that a message says precedes.
func winnerOf(message string) string {
	_, of, _ := strings.Cut(message, ": ")
	of, _, _ = strings.Cut(of, " precedes")
	return strings.TrimPrefix(of, "VirtualService ")
}

// An edit that takes the path back removes the problems.
func TestTakenOverNoMore(t *testing.T) {
	p, _, _ := gatewayPlanner(svc(t, "a/s0", "10.96.0.1", "http:80:HTTP"), shares(t, "a/old@1", "", ""), shares(t, "b/new@2", "", "prefix: /pay"),
		rec(t, model.KindGateway, "edge/front", "{selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}"))
	named := func() int {
		n := 0
		for _, one := range p.Problems() {
			if one.Code == problem.Duplicate {
				n++
			}
		}
		return n
	}
	if n := named(); n != 2 {
		t.Errorf("%d problems, want 2", n)
	}
	edited(p, shares(t, "a/old@1", "", "prefix: /pay", ""))
	if n := named(); n != 1 {
		t.Errorf("%d problems of a path that stays, want 1: the younger one's match is lost", n)
	}
	edited(p, shares(t, "a/old@1", "", "exact: /pay", ""))
	if n := named(); n != 2 {
		t.Errorf("%d problems of other paths, want 2", n)
	}
}

// The hosts of other servers are listed up to 256, in order; with more of them only those that must not be served.
func TestMisdirectedHosts(t *testing.T) {
	servers := func(n int) string {
		all := []string{"{port: {number: 443, name: any, protocol: HTTPS}, hosts: ['*'], tls: {mode: SIMPLE, credentialName: c}}",
			"{port: {number: 443, name: m, protocol: HTTPS}, hosts: [closed.test], tls: {mode: MUTUAL, credentialName: m}}"}
		for i := range n {
			all = append(all, fmt.Sprintf("{port: {number: 443, name: s%d, protocol: HTTPS}, hosts: [h%03d.test], tls: {mode: SIMPLE, credentialName: c%d}}", i, i, i))
		}
		return "{selector: {app: gw}, servers: [" + strings.Join(all, ", ") + "]}"
	}
	for n, want := range map[int]int{2: 2, 256: 256, 257: 0} {
		p, _, gw := gatewayPlanner(svc(t, "a/s0", "10.96.0.1", "http:80:HTTP"), rec(t, model.KindGateway, "edge/front", servers(n)))
		got := 0
		for _, vh := range routesOfSet(t, gw.Set(), "https.443.s0.front.edge").VirtualHosts {
			if vh.Name == "misdirected:443" {
				got = len(vh.Domains)
			}
		}
		if got != want {
			t.Errorf("%d other servers: %d hosts are misdirected, want %d", n, got, want)
		}
		guarded := routesOfSet(t, gw.Set(), "https.443.any.front.edge").VirtualHosts
		i := slices.IndexFunc(guarded, func(vh *routev3.VirtualHost) bool { return vh.Name == "misdirected:443" })
		if i < 0 || guarded[i].Domains[0] != "closed.test" {
			t.Errorf("%d other servers: no guard of the host of MUTUAL in %v", n, guarded)
		}
		named := slices.ContainsFunc(p.Problems(), func(one model.Problem) bool {
			return strings.Contains(one.Message, "misdirected requests are answered 404")
		})
		if named != (want == 0) {
			t.Errorf("%d other servers: named %v", n, named)
		}
	}
	off := routerOf("edge", "gw")
	off.Routers.Misdirected404 = true
	set := planFor(snapshot(rec(t, model.KindGateway, "edge/front", servers(2))), off)
	if got := domains(routesOfSet(t, set, "https.443.s0.front.edge")); got != "blackhole:443: *" {
		t.Errorf("turned off: %s", got)
	}
	got := domains(routesOfSet(t, set, "https.443.any.front.edge"))
	if !strings.Contains(got, "misdirected:443: closed.test closed.test.") {
		t.Errorf("turned off, of all hosts: %s", got)
	}
}

// A host that a route configuration serves, by its name or by a wildcard, is not misdirected there; an edit of a
// VirtualService moves it from one to the other.
func TestMisdirectedFollowsVirtualServices(t *testing.T) {
	gateway := rec(t, model.KindGateway, "edge/front", `{selector: {app: gw}, servers: [
		{port: {number: 443, name: any, protocol: HTTPS}, hosts: ['*.test'], tls: {mode: SIMPLE, credentialName: c}},
		{port: {number: 443, name: one, protocol: HTTPS}, hosts: [a.test], tls: {mode: SIMPLE, credentialName: a}},
		{port: {number: 443, name: two, protocol: HTTPS}, hosts: [b.test], tls: {mode: SIMPLE, credentialName: b}}]}`)
	bound := func(hosts string) model.Record {
		return rec(t, model.KindVirtualService, "edge/v", "{hosts: ["+hosts+"], gateways: [edge/front], http: [{route: [{destination: {host: s0.a.svc.cluster.local}}]}]}")
	}
	p, _, gw := gatewayPlanner(svc(t, "a/s0", "10.96.0.1", "http:80:HTTP"), gateway, bound("c.test"))
	for _, step := range []struct{ hosts, want string }{
		{"c.test", "a.test b.test"}, {"a.test", "b.test"}, {"'*.test'", ""}, {"c.test", "a.test b.test"},
	} {
		edited(p, bound(step.hosts))
		got := ""
		for _, vh := range routesOfSet(t, gw.Set(), "https.443.any.front.edge").VirtualHosts {
			if vh.Name == "misdirected:443" {
				got = strings.Join(vh.Domains, " ")
			}
		}
		if got != step.want {
			t.Errorf("with %s: misdirected %q, want %q", step.hosts, got, step.want)
		}
	}
}

// A younger server of another namespace that requires client certificates turns away no requests of an older server
// without TLS, and says so itself. With the older server alone, or if it is of the same namespace, it does.
// Promise: security-gateways.md#take-hosts-ports-and-traffic
func TestMutualHostOfATenant(t *testing.T) {
	older := rec(t, model.KindGateway, "edge/front@1", `{selector: {app: gw}, servers: [
		{port: {number: 443, name: s, protocol: HTTPS}, hosts: [s.test], tls: {mode: SIMPLE, credentialName: c}},
		{port: {number: 443, name: p, protocol: HTTP}, hosts: [www.test, '*.shop.test']}]}`)
	for _, c := range []struct {
		namespace, want string
	}{
		{"b", "misdirected:443: s.test\na.shop.test:443: a.shop.test\nwww.test:443: www.test\nb/mutual spec.servers[0].hosts"},
		{"edge", "blackhole:443: *\nmisdirected:443: *.shop.test *.shop.test. www.test www.test. www.test:* s.test\nedge/front spec.servers[1].hosts\nedge/front spec.servers[1].hosts"},
	} {
		younger := rec(t, model.KindGateway, c.namespace+"/mutual@2", `{selector: {app: gw}, servers: [
			{port: {number: 443, name: m, protocol: HTTPS}, hosts: [www.test, '*.shop.test'], tls: {mode: MUTUAL, credentialName: c}}]}`)
		routes := func(host string) model.Record {
			return rec(t, model.KindVirtualService, "edge/"+host, "{hosts: ["+host+"], gateways: [edge/front], http: [{route: [{destination: {host: s0.a.svc.cluster.local}}]}]}")
		}
		p, _, gw := gatewayPlanner(svc(t, "a/s0", "10.96.0.1", "http:80:HTTP"), older, younger, routes("www.test"), routes("a.shop.test"))
		got := domains(routesOfSet(t, gw.Set(), "http.443"))
		for _, one := range p.Problems() {
			if strings.Contains(one.Message, "client certificate") {
				got += fmt.Sprintf("\n%s/%s %s", one.Key.Namespace, one.Key.Name, one.Field)
			}
		}
		if got != c.want {
			t.Errorf("of %s:\n%s\nwant\n%s", c.namespace, got, c.want)
		}
	}
}

// An older server without TLS serves a host of a MUTUAL server; a younger server beside it gets none of the host's
// requests, neither by a VirtualService of the host nor by one of a wildcard. Without a rule of the older one they are
// answered 421.
// Promise: security-gateways.md#take-hosts-ports-and-traffic
func TestMutualHostBesideAnOlderServer(t *testing.T) {
	gateway := func(name, server string) model.Record {
		return rec(t, model.KindGateway, name, "{selector: {app: gw}, servers: [{port: {number: 443, name: p, protocol: "+server+"}]}")
	}
	rule := func(name, gateway, host string) model.Record {
		namespace, _, _ := strings.Cut(name, "/")
		return rec(t, model.KindVirtualService, name, fmt.Sprintf("{hosts: ['%s'], gateways: [%s], "+
			"http: [{route: [{destination: {host: s0.%s.svc.cluster.local}}]}]}", host, gateway, namespace))
	}
	for _, hosts := range []string{"'*.test'", "m.test"} { // of the older server
		p, _, gw := gatewayPlanner(svc(t, "edge/s0", "10.96.0.1", "http:80:HTTP"), svc(t, "evil/s0", "10.96.0.2", "http:80:HTTP"),
			gateway("edge/local@1", "HTTP}, bind: 127.0.0.1, hosts: [local.test]"), // so that the port takes several without TLS
			gateway("edge/old@2", "HTTP}, hosts: ["+hosts+"]"),
			gateway("bank/mutual@3", "HTTPS}, hosts: [m.test], tls: {mode: MUTUAL, credentialName: c}"),
			gateway("evil/young@4", "HTTP}, hosts: ['*', '*.test', m.test]"),
			rule("evil/m", "evil/young", "m.test"), rule("evil/test", "evil/young", "*.test"), rule("evil/any", "evil/young", "*"))
		to := func() string { // the destination of each virtual host
			var out []string
			for _, vh := range routesOfSet(t, gw.Set(), "http.443").VirtualHosts {
				one := fmt.Sprint(vh.Domains)
				for _, r := range vh.Routes {
					one += fmt.Sprint(" ", r.GetRoute().GetCluster(), r.GetDirectResponse().GetStatus())
				}
				out = append(out, one)
			}
			return strings.Join(out, "\n")
		}
		const refused = "[m.test m.test.] 421"
		if got := to(); !strings.Contains(got, refused) {
			t.Errorf("%s, without a rule of the older server:\n%s", hosts, got)
		}
		edited(p, rule("edge/wild", "edge/old", "*.test"))
		const served = "[m.test] outbound|80||s0.edge.svc.cluster.local0"
		if got := to(); !strings.Contains(got, served) || !strings.Contains(got, "[m.test.] 421") {
			t.Errorf("%s, with a rule of a wildcard:\n%s", hosts, got)
		}
		edited(p, rule("edge/m", "edge/old", "m.test"))
		if got := to(); !strings.Contains(got, served) || strings.Contains(got, served+" ") {
			t.Errorf("%s, with a rule of the host:\n%s", hosts, got)
		}
		editedOrGone(p, nil, rule("edge/m", "", "").Meta().Key)
		editedOrGone(p, nil, rule("edge/wild", "", "").Meta().Key)
		if got := to(); !strings.Contains(got, refused) {
			t.Errorf("%s, afterwards:\n%s", hosts, got)
		}
	}
}
