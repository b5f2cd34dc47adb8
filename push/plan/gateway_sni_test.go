//go:build !race

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// serverAt is a server of port 443: "PROTOCOL[+MODE] HOST...".
func serverAt(i int, text string) string {
	kind, hosts, _ := strings.Cut(text, " ")
	protocol, mode, ends := strings.Cut(kind, "+")
	tls := ""
	switch {
	case mode == "SIMPLE" || mode == "MUTUAL":
		tls = ", tls: {mode: " + mode + ", credentialName: c}"
	case ends:
		tls = ", tls: {mode: " + mode + "}"
	}
	return fmt.Sprintf("{port: {number: 443, name: p%d, protocol: %s}, hosts: ['%s']%s}", i, protocol, strings.ReplaceAll(hosts, " ", "', '"), tls)
}

// entranceOf is a Gateway "NAMESPACE@CREATED: SERVER; SERVER", or a VirtualService "NAMESPACE@CREATED > OF: SNI SNI"
// for the Gateway of the namespace OF. Without an SNI it has a tcp rule. The destination is NAMESPACE.test.
func entranceOf(t testing.TB, text string) model.Record {
	of, what, _ := strings.Cut(text, ": ")
	of, gateway, binds := strings.Cut(of, " > ")
	namespace, created, _ := strings.Cut(of, "@")
	if !binds {
		var servers []string
		for i, server := range strings.Split(what, "; ") {
			servers = append(servers, serverAt(i, server))
		}
		return rec(t, model.KindGateway, namespace+"/g@"+created, "{selector: {app: gw}, servers: ["+strings.Join(servers, ", ")+"]}")
	}
	to := "route: [{destination: {host: " + namespace + ".test}}]"
	rule := "tls: [{match: [{sniHosts: ['" + strings.ReplaceAll(what, " ", "', '") + "']}], " + to + "}]"
	if what == "" {
		rule = "tcp: [{" + to + "}]"
	}
	return rec(t, model.KindVirtualService, namespace+"/"+gateway+"@"+created, "{hosts: ['*'], gateways: ["+gateway+"/g], "+rule+"}")
}

// sniOf returns the namespace that each chain of port 443 leads to, as "SNI SNI=NAMESPACE", sorted; "*": no SNI.
func sniOf(t testing.TB, h *Handle) string {
	if h.Set().Types[xds.Listener].Get("0.0.0.0_443") == nil {
		return "closed"
	}
	var all []string
	for _, c := range listenerOf(t, h.Set(), "0.0.0.0_443").FilterChains {
		names := strings.Join(c.GetFilterChainMatch().GetServerNames(), " ")
		if names == "" {
			names = "*"
		}
		all = append(all, names+"="+leadsOf(t, c))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// leadsOf returns the namespace of the Gateway or of the destination behind a chain; "http" stands for the servers of
// plain HTTP.
func leadsOf(t testing.TB, c *listenerv3.FilterChain) string {
	for _, f := range c.Filters {
		m, err := f.GetTypedConfig().UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.(type) {
		case *hcmv3.HttpConnectionManager:
			if route := strings.Split(m.GetRds().GetRouteConfigName(), "."); route[0] == "https" {
				return route[len(route)-1]
			}
			return "http"
		case *tcpv3.TcpProxy:
			_, host, _ := strings.Cut(m.GetCluster(), "||")
			return strings.TrimSuffix(host, ".test")
		}
	}
	return "nowhere"
}

// The connections of an SNI belong to the oldest server that states the name, or to an older rule for it. No younger
// Gateway or VirtualService takes them, and the loser has a problem with the winner's name. Envoy accepts all of it.
// Promise: security-gateways.md#take-hosts-ports-and-traffic, security-gateways.md#make-a-gateway-fail
func TestSNIBelongsToTheOldest(t *testing.T) {
	envoy := envoytest.Binary(t)
	all := newTogether(t)
	const passAll, bankPays = "edge@1: TLS+PASSTHROUGH *", "bank@2: HTTPS+MUTUAL pay.test"
	for i, c := range []struct {
		objects  string // separated by |
		want     string
		problems string // parts of problems, separated by |
	}{
		// Partial wildcards are no SNI.
		{"edge@1: HTTPS+SIMPLE www.test|evil@2: TLS+PASSTHROUGH *.evil.test|evil@2 > evil: *-x.evil.test a.evil.test", "a.evil.test=evil, www.test=edge",
			"VirtualService evil/evil: spec.tls[0].match[0].sniHosts: *-x.evil.test at port 443"},
		{"edge@1: HTTPS+SIMPLE www.test; TLS+PASSTHROUGH *|evil@2 > edge: *-x.evil.test", "www.test=edge", "evil/edge: spec.tls[0].match[0].sniHosts: *-x.evil"},
		{"edge@1: HTTPS+SIMPLE www.test; TLS+PASSTHROUGH *|evil@2 > edge: *-x.evil.test *", "*=evil, www.test=edge", ""},
		{"edge@1: HTTPS+SIMPLE www.test|evil@2: TLS+PASSTHROUGH *-x.evil.test a.evil.test|evil@2 > evil: ", "a.evil.test=evil, www.test=edge",
			"Gateway evil/g: spec.servers[0].hosts: *-x.evil.test"},
		{"edge@1: HTTPS+SIMPLE www.test|evil@2: TLS+PASSTHROUGH *-x.evil.test|evil@2 > evil: ", "www.test=edge", "Gateway evil/g: spec.servers[0].hosts: *-x.evil.test"},

		// An older server without TLS keeps the connections without SNI.
		{"edge@1: HTTPS+SIMPLE www.test; HTTP *|evil@2: TLS+PASSTHROUGH *|evil@2 > evil: *", "*=http, www.test=edge",
			"VirtualService evil/evil: spec.tls: connections without SNI|belong to Gateway edge/g"},
		{"edge@1: HTTPS+SIMPLE www.test; HTTP *|evil@2: TLS+PASSTHROUGH *|evil@2 > evil: ", "*=http, www.test=edge",
			"VirtualService evil/evil: spec.tcp: connections without SNI|belong to Gateway edge/g"},
		{"edge@1: HTTPS+SIMPLE www.test; TCP *|edge@3 > edge: |evil@2: TLS+PASSTHROUGH *|evil@2 > evil: *", "*=edge, www.test=edge", "belong to Gateway edge/g"},
		{"edge@2: HTTP *|evil@1: TLS+PASSTHROUGH *|evil@3 > evil: *", "*=http", "belong to Gateway edge/g"},
		{passAll + "|edge@1 > edge: *|evil@2: HTTP *", "*=edge", "Gateway evil/g: spec.servers[0]: connections without SNI|belong to VirtualService edge/edge"},
		{passAll + "|edge@1 > edge: a.test|evil@2: HTTP *", "*=http, a.test=edge", ""},
		{passAll + "|edge@1 > edge: *|evil@2: HTTPS+SIMPLE evil/* evil.test", "*=edge, evil.test=evil",
			"Gateway evil/g: spec.servers[0]: connections without SNI|belong to VirtualService edge/edge"},

		// Names that a server states beside * stay its own, by a chain that is there if another server would get them.
		{"edge@1: HTTPS+MUTUAL * www.test", "*=edge", ""},
		{"edge@1: HTTPS+MUTUAL * www.test|evil@2: HTTPS+SIMPLE a.test", "*=edge, a.test=evil", ""},
		{"edge@1: HTTPS+MUTUAL * www.test|evil@2: HTTPS+SIMPLE *.test", "*.test=evil, *=edge, www.test=edge", ""},
		{"edge@2: HTTPS+MUTUAL * www.test|evil@1: HTTPS+SIMPLE *.test", "*.test=evil, *=edge, www.test=edge", ""},
		{"edge@1: HTTPS+MUTUAL * www.test x.com; HTTPS+SIMPLE *.test", "*.test=edge, *=edge, www.test=edge", ""},
		{"edge@1: TLS+SIMPLE * www.test|edge@1 > edge: |evil@2: HTTPS+SIMPLE *.test", "*.test=evil, *=edge, www.test=edge", ""},
		{"edge@1: HTTPS+MUTUAL * www.test *-p.test|evil@2: TLS+PASSTHROUGH *.test|evil@9 > evil: www.test *.test", "*.test=evil, *=edge, www.test=edge",
			"VirtualService evil/evil: spec.tls: connections with SNI www.test|belong to Gateway edge/g"},
		{"edge@1: HTTPS+SIMPLE * www.test|evil@2: TLS+PASSTHROUGH *.test|evil@2 > evil: ", "*.test=evil, *=edge, www.test=edge", ""},
		{"edge@1: HTTPS+SIMPLE * *.a.test b.test|shop@2: HTTPS+SIMPLE * x.a.test; HTTPS+SIMPLE s.test|evil@3: HTTPS+SIMPLE *.test",
			"*.a.test b.test=edge, *.test=evil, *=edge, s.test=shop", "Gateway shop/g: spec.servers[0].hosts[0]"},
		{"edge@1: TLS+PASSTHROUGH *.test www.test|edge@1 > edge: *.test|evil@2: TLS+PASSTHROUGH evil/www.test|evil@2 > evil: www.test",
			"*.test=edge, www.test=edge", "VirtualService evil/evil: spec.tls: connections with SNI www.test|belong to VirtualService edge/edge"},
		{"edge@1: TLS+PASSTHROUGH evil/* shop/www.test|evil@1 > edge: *|evil@2: HTTPS+SIMPLE *.test", "*.test=evil, *=evil", ""},

		// A VirtualService takes no name that an older Gateway of another namespace states, nor the reverse.
		{passAll + "|" + bankPays + "|evil@9 > edge: pay.test", "pay.test=bank", "VirtualService evil/edge: spec.tls: connections with SNI pay.test|belong to Gateway bank/g"},
		{passAll + "|" + bankPays + "|evil@2 > edge: pay.test", "pay.test=bank", "belong to Gateway bank/g"},
		{passAll + "|bank@1 > edge: pay.test|evil@2: HTTPS+SIMPLE pay.test", "pay.test=bank",
			"Gateway evil/g: spec.servers[0]: connections with SNI pay.test|belong to VirtualService bank/edge"},
		{"evil@1: TLS+PASSTHROUGH *|edge@2: TLS+PASSTHROUGH *.test|bank@3 > edge: pay.test|evil@4 > evil: pay.test", "pay.test=bank",
			"VirtualService evil/evil: spec.tls: connections with SNI pay.test|belong to VirtualService bank/edge"},
		{"edge@1: TLS+PASSTHROUGH bank/pay.test|evil@2: TLS+PASSTHROUGH evil/pay.test|evil@2 > evil: pay.test|bank@9 > edge: pay.test", "pay.test=bank",
			"VirtualService evil/evil: spec.tls: connections with SNI pay.test|belong to VirtualService bank/edge"},
		{passAll + "|shop@3 > edge: s.test|evil@4 > edge: s.test", "s.test=shop", "VirtualService evil/edge: spec.tls: connections with SNI s.test"},
	} {
		var records []model.Record
		for text := range strings.SplitSeq(c.objects, "|") {
			records = append(records, entranceOf(t, text))
		}
		p := New(Settings{Pool: &pool.Pool{}, Snapshot: snapshot(records...)})
		gw := p.Join(routerOf("edge", "gw"))
		if got := sniOf(t, gw); got != c.want {
			t.Errorf("%s:\n%s, want\n%s\n%s", c.objects, got, c.want, problemTexts(p))
		}
		for part := range strings.SplitSeq(c.problems, "|") {
			if texts := problemTexts(p); !strings.Contains(texts, part) {
				t.Errorf("%s: problems\n%s\nwant %q", c.objects, texts, part)
			}
		}
		if c.problems == "" && strings.Contains(problemTexts(p), "belong to") {
			t.Errorf("%s: problems %s", c.objects, problemTexts(p))
		}
		all.add(fmt.Sprint(i), gw.Set())
	}
	if complaint := all.complaint(envoy); complaint != "" {
		t.Error(complaint)
	}
}

// On a Pod with both families, the addresses :: and 0.0.0.0 mean what an empty bind means: one listener.
// Promise: security-gateways.md#make-a-gateway-fail
func TestWildcardsOfBothFamilies(t *testing.T) {
	envoy := envoytest.Binary(t)
	server := func(name, bind string) model.Record {
		return rec(t, model.KindGateway, name, "{selector: {app: gw}, servers: [{port: {number: 8081, name: h, protocol: HTTP}, bind: '"+bind+"', hosts: ['*']}]}")
	}
	for addresses, want := range map[string]string{"10.1.9.9 fd00::9": "0.0.0.0_8081", "fd00::9 10.1.9.9": "0.0.0.0_8081",
		"fd00::9": "::_8081", "10.1.9.9": "0.0.0.0_8081 ::_8081"} {
		n := routerOf("edge", "gw")
		n.Addresses = strings.Fields(addresses)
		p := New(Settings{Pool: &pool.Pool{}, Snapshot: snapshot(server("evil/a@1", "::"), server("edge/b@2", ""), server("edge/c@3", "0.0.0.0"), server("edge/d@4", "::"))})
		gw := p.Join(n)
		if got := names(gw.Set(), xds.Listener); got != want {
			t.Errorf("%s: listeners %s, want %s; %s", addresses, got, want, problemTexts(p))
		}
		if complaint := envoytest.Validate(envoy, envoytest.File(t, envoytest.JSON(t, fold(t, gw.Set())))); complaint != "" {
			t.Errorf("%s: %s", addresses, complaint)
		}
	}
}
