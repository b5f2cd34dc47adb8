package gateways

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// gateway makes a Gateway: "namespace/name@created" and its servers (see server).
func gateway(name string, servers ...string) *model.Gateway {
	name, created, _ := strings.Cut(name, "@")
	namespace, name, _ := strings.Cut(name, "/")
	g := &model.Gateway{Spec: &networkingv1.Gateway{}}
	g.Key = model.Key{Kind: model.KindGateway, Namespace: namespace, Name: name}
	_, _ = fmt.Sscan(created, &g.Created)
	for i, text := range servers {
		g.Spec.Servers = append(g.Spec.Servers, server(i, text))
	}
	return g
}

// server makes a server: "PROTOCOL[+MODE] PORT[@BIND] HOST...". The mode REDIRECT is a tls with httpsRedirect alone.
func server(index int, text string) *networkingv1.Server {
	parts := strings.Fields(text)
	protocol, mode, _ := strings.Cut(parts[0], "+")
	port, bind, _ := strings.Cut(parts[1], "@")
	s := &networkingv1.Server{Port: &networkingv1.Port{Protocol: protocol, Name: fmt.Sprint("p", index)}, Bind: bind, Hosts: parts[2:]}
	_, _ = fmt.Sscan(port, &s.Port.Number)
	switch mode {
	case "":
	case "REDIRECT":
		s.Tls = &networkingv1.ServerTLSSettings{HttpsRedirect: true}
	default:
		s.Tls = &networkingv1.ServerTLSSettings{Mode: networkingv1.ServerTLSSettings_TLSmode(networkingv1.ServerTLSSettings_TLSmode_value[mode])}
	}
	return s
}

// service makes a Service: "PORT:TARGET[/udp]..."; a last word "untranslated" is the label.
func service(ports string) *model.Service {
	svc := &model.Service{Spec: &model.ServiceSpec{}}
	for _, text := range strings.Fields(ports) {
		if text == "untranslated" {
			svc.Spec.UntranslatedPorts = true
			continue
		}
		text, udp, _ := strings.Cut(text, "/")
		p := &model.ServicePort{Protocol: model.Protocol_PROTOCOL_TCP}
		if udp != "" {
			p.Protocol = model.Protocol_PROTOCOL_UDP
		}
		_, _ = fmt.Sscanf(text, "%d:%d", &p.Number, &p.TargetNumber)
		svc.Spec.Ports = append(svc.Spec.Ports, p)
	}
	return svc
}

// show renders the result of Merge: a line for each listener, "NAME [+quic]: plain SERVER...; tls SERVER...", with
// "GATEWAY.INDEX(HOSTS)" for each server, then a line for each conflict, "-GATEWAY FIELD CODE [IST] < WINNER.INDEX".
func show(listeners []Listener, conflicts []Conflict) string {
	var b strings.Builder
	for _, l := range listeners {
		fmt.Fprintf(&b, "%s%s:", l.Name("*"), map[bool]string{true: "+quic"}[l.QUIC])
		for _, group := range []struct {
			kind    string
			servers []Server
		}{{"plain", l.Plain}, {"tls", l.TLS}} {
			for _, s := range group.servers {
				fmt.Fprintf(&b, " %s %s.%d(%s)", group.kind, s.Name(), s.Index, showHosts(s.Hosts))
			}
		}
		b.WriteString("\n")
	}
	for _, c := range conflicts {
		fmt.Fprintf(&b, "-%s/%s %s %s", c.Key.Namespace, c.Key.Name, c.Field, c.Code)
		if c.Severity == problem.Warning {
			b.WriteString(" warning")
		}
		b.WriteString(c.Analyzer.Suffix())
		if c.Winner != nil {
			fmt.Fprintf(&b, " < %s.%d", c.Winner.Name(), c.Winner.Index)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func showHosts(hosts []Host) string {
	var texts []string
	for _, h := range hosts {
		texts = append(texts, h.String())
	}
	return strings.Join(texts, ",")
}

// first and second are the Gateways of most rows: of two namespaces, second the younger.
func first(servers ...string) *model.Gateway  { return gateway("a/first@1", servers...) }
func second(servers ...string) *model.Gateway { return gateway("b/second@2", servers...) }

// The rows of the table of gateways.md (1.3), istiod's quirks beside it, and what Envoy would refuse of istiod.
var merges = []struct {
	name     string
	gateways []*model.Gateway
	want     string
}{
	{"HTTP and HTTP share a route configuration", []*model.Gateway{first("HTTP 80 a.com"), second("GRPC 80 b.com")},
		"*_80: plain a/first.0(a.com) plain b/second.0(b.com)\n"},
	{"HTTP, then TCP", []*model.Gateway{first("HTTP 80 a.com"), second("TCP 80 *")},
		"*_80: plain a/first.0(a.com)\n-b/second spec.servers[0].port.protocol Duplicate [IST0145] < a/first.0\n"},
	{"TCP, then HTTP", []*model.Gateway{first("TCP 80 *"), second("HTTP 80 a.com")},
		"*_80: plain a/first.0(*)\n-b/second spec.servers[0].port.protocol Duplicate [IST0145] < a/first.0\n"},
	{"TCP, then TCP", []*model.Gateway{first("TCP 80 *"), second("TCP 80 *")},
		"*_80: plain a/first.0(*)\n-b/second spec.servers[0].port.protocol Duplicate [IST0145] < a/first.0\n"},
	{"MONGO is TCP", []*model.Gateway{first("MONGO 80 *"), second("REDIS 80 *")},
		"*_80: plain a/first.0(*)\n-b/second spec.servers[0].port.protocol Duplicate [IST0145] < a/first.0\n"},
	{"HTTPS of two hosts", []*model.Gateway{first("HTTPS+SIMPLE 443 a.com"), second("HTTPS+MUTUAL 443 b.com")},
		"*_443: tls a/first.0(a.com) tls b/second.0(b.com)\n"},
	{"HTTPS of one host", []*model.Gateway{first("HTTPS+SIMPLE 443 a.com"), second("HTTPS+SIMPLE 443 b.com a.com", "HTTPS+SIMPLE 443 c.com")},
		"*_443: tls a/first.0(a.com) tls b/second.1(c.com)\n-b/second spec.servers[0].hosts[1] Duplicate [IST0145] < a/first.0\n"},
	{"a skipped server occupies nothing", []*model.Gateway{first("HTTPS+SIMPLE 443 a.com"), second("HTTPS+SIMPLE 443 b.com a.com"), gateway("c/third@3", "HTTPS+SIMPLE 443 b.com")},
		"*_443: tls a/first.0(a.com) tls c/third.0(b.com)\n-b/second spec.servers[0].hosts[1] Duplicate [IST0145] < a/first.0\n"},
	{"HTTPS of a wildcard, passed TLS below it", []*model.Gateway{first("HTTPS+SIMPLE 443 *.a.com"), second("TLS+PASSTHROUGH 443 x.a.com")},
		"*_443: tls a/first.0(*.a.com) tls b/second.0(x.a.com)\n"},
	{"HTTPS, then HTTP", []*model.Gateway{first("HTTPS+SIMPLE 443 a.com"), second("HTTP 443 b.com")},
		"*_443: plain b/second.0(b.com) tls a/first.0(a.com)\n"},
	{"HTTPS, then TCP", []*model.Gateway{first("HTTPS+SIMPLE 443 a.com"), gateway("a/second@2", "TCP 443 *")},
		"*_443: plain a/second.0(*) tls a/first.0(a.com)\n"},
	{"HTTPS, then TCP of another namespace", []*model.Gateway{first("HTTPS+SIMPLE 443 a.com"), second("TCP 443 *")},
		"*_443: tls a/first.0(a.com)\n-b/second spec.servers[0].port.protocol Duplicate [IST0145] < a/first.0\n"},
	{"HTTPS, then TCP of its namespace, then HTTPS of another", []*model.Gateway{first("HTTPS+SIMPLE 443 a.com", "TCP 443 *"), second("HTTPS+SIMPLE 443 b.com")},
		"*_443: plain a/first.1(*) tls a/first.0(a.com) tls b/second.0(b.com)\n"},
	{"TLS at one address, TCP at all, then HTTPS of another namespace", []*model.Gateway{first("HTTPS+SIMPLE 443@10.0.0.1 a.com", "TCP 443 *"), second("HTTPS+SIMPLE 443 b.com")},
		"*_443: plain a/first.1(*)\n10.0.0.1_443: tls a/first.0(a.com)\n-b/second spec.servers[0].port.protocol Duplicate [IST0145] < a/first.1\n"},
	{"HTTPS, then HTTP twice", []*model.Gateway{first("HTTPS+SIMPLE 443 a.com"), second("HTTP 443 b.com", "HTTP 443 c.com")},
		"*_443: plain b/second.0(b.com) tls a/first.0(a.com)\n-b/second spec.servers[1].port.protocol Duplicate [IST0145] < b/second.0\n"},
	{"HTTPS twice, then HTTP", []*model.Gateway{first("HTTPS+SIMPLE 443 a.com", "HTTPS+SIMPLE 443 b.com"), second("HTTP 443 b.com")},
		"*_443: tls a/first.0(a.com) tls a/first.1(b.com)\n-b/second spec.servers[0].port.protocol Duplicate [IST0145] < a/first.1\n"},
	{"HTTPS twice, then HTTP that redirects", []*model.Gateway{first("HTTPS+SIMPLE 443 a.com", "HTTPS+SIMPLE 443 b.com"), second("HTTP+REDIRECT 443 c.com")},
		"*_443: plain b/second.0(c.com) tls a/first.0(a.com) tls a/first.1(b.com)\n"},
	{"HTTPS, TCP, then HTTP that redirects", []*model.Gateway{first("HTTPS+SIMPLE 443 a.com", "TCP 443 b.com"), second("HTTP+REDIRECT 443 c.com")},
		"*_443: plain a/first.1(b.com) tls a/first.0(a.com)\n-b/second spec.servers[0].port.protocol Duplicate [IST0145] < a/first.1\n"},
	{"HTTP, then HTTPS", []*model.Gateway{first("HTTP 443 a.com"), second("HTTPS+SIMPLE 443 b.com")},
		"*_443: plain a/first.0(a.com)\n-b/second spec.servers[0].port.protocol Duplicate [IST0145] < a/first.0\n"},
	{"HTTP with httpsRedirect, one host twice", []*model.Gateway{first("HTTP+REDIRECT 80 a.com"), second("HTTP+REDIRECT 80 a.com b.com")},
		"*_80: plain a/first.0(a.com)\n-b/second spec.servers[0].hosts[0] Duplicate [IST0145] < a/first.0\n"},
	{"HTTP with and without httpsRedirect, one host twice", []*model.Gateway{first("HTTP+REDIRECT 80 a.com"), second("HTTP 80 a.com")},
		"*_80: plain a/first.0(a.com) plain b/second.0(a.com)\n"},
	{"hosts of two namespaces, one SNI", []*model.Gateway{first("HTTPS+SIMPLE 443 ns1/a.com"), second("HTTPS+SIMPLE 443 ns2/a.com ns2/b.com")},
		"*_443: tls a/first.0(ns1/a.com) tls b/second.0(ns2/b.com)\n-b/second spec.servers[0].hosts[0] Duplicate [IST0145] < a/first.0\n"},
	{"hosts of two namespaces, one SNI, nothing else", []*model.Gateway{first("HTTPS+SIMPLE 443 a.com"), second("HTTPS+SIMPLE 443 ./a.com")},
		"*_443: tls a/first.0(a.com)\n-b/second spec.servers[0].hosts[0] Duplicate [IST0145] < a/first.0\n"},
	{"one SNI in two cases", []*model.Gateway{first("HTTPS+SIMPLE 443 a.com"), second("HTTPS+SIMPLE 443 A.com")},
		"*_443: tls a/first.0(a.com)\n-b/second spec.servers[0].hosts[0] Duplicate [IST0145] < a/first.0\n"},
	{"passed TLS of two namespaces: chains have the SNI of VirtualServices", []*model.Gateway{first("TLS+PASSTHROUGH 443 ns1/a.com"), second("TLS+PASSTHROUGH 443 ns2/a.com")},
		"*_443: tls a/first.0(ns1/a.com) tls b/second.0(ns2/a.com)\n"},
	{"passed TLS, then TLS that ends, one SNI", []*model.Gateway{first("TLS+PASSTHROUGH 443 ns1/a.com"), second("HTTPS+SIMPLE 443 ns2/a.com")},
		"*_443: tls a/first.0(ns1/a.com)\n-b/second spec.servers[0].hosts[0] Duplicate [IST0145] < a/first.0\n"},
	{"HTTPS of all hosts, passed TLS of all hosts", []*model.Gateway{first("HTTPS+SIMPLE 443 *"), second("TLS+PASSTHROUGH 443 ns2/*")},
		"*_443: tls a/first.0(*) tls b/second.0(ns2/*)\n"},
	{"passed TLS of all hosts, then HTTP", []*model.Gateway{first("TLS+PASSTHROUGH 443 *"), second("HTTP 443 *")},
		"*_443: plain b/second.0(*) tls a/first.0(*)\n"},
	{"AUTO_PASSTHROUGH excludes no host", []*model.Gateway{first("TLS+AUTO_PASSTHROUGH 15443 *.local"), second("TLS+ISTIO_MUTUAL 15443 b/*.local")},
		"*_15443: tls a/first.0(*.local) tls b/second.0(b/*.local)\n"},
	{"HTTPS of all hosts, then HTTP", []*model.Gateway{first("HTTPS+SIMPLE 443 *"), second("HTTP 443 b.com")},
		"*_443: tls a/first.0(*)\n-b/second spec.servers[0].port.protocol Duplicate [IST0145] < a/first.0\n"},
	{"HTTPS, HTTP, then HTTPS of all hosts", []*model.Gateway{first("HTTPS+SIMPLE 443 a.com", "HTTP 443 b.com"), second("HTTPS+SIMPLE 443 */* c.com", "HTTPS+SIMPLE 443 c.com ns/*")},
		"*_443: plain a/first.1(b.com) tls a/first.0(a.com) tls b/second.1(c.com)\n" +
			"-b/second spec.servers[0].hosts[0] Duplicate [IST0145] < a/first.1\n-b/second spec.servers[1].hosts[1] Duplicate [IST0145] < a/first.1\n"},
	{"HTTPS of all hosts and one by name, then the name", []*model.Gateway{first("HTTPS+SIMPLE 443 x/* x/a.com"), second("HTTPS+SIMPLE 443 a.com")},
		"*_443: tls a/first.0(x/*,x/a.com)\n-b/second spec.servers[0].hosts[0] Duplicate [IST0145] < a/first.0\n"},
	{"wildcards that are no SNI", []*model.Gateway{first("HTTPS+SIMPLE 443 *-a.com b.com", "HTTPS+SIMPLE 444 *-a.com", "HTTP 80 *-a.com")},
		"*_80: plain a/first.2(*-a.com)\n*_443: tls a/first.0(b.com)\n-a/first spec.servers[0].hosts[0] NotSupported\n-a/first spec.servers[1].hosts[0] NotSupported\n"},
	{"canonical hosts", []*model.Gateway{first("HTTP 80 ./a.com */b.com ~/c.com d/* b.com E.com", "HTTP 81 a.com */* d/e.com", "HTTP 82 * a.com")},
		"*_80: plain a/first.0(a/a.com,b.com,~/c.com,d/*,e.com)\n*_81: plain a/first.1(*)\n*_82: plain a/first.2(*,a.com)\n"},
	{"binds", []*model.Gateway{first("HTTP 80 *", "HTTP 80@10.0.0.1 *", "TCP 80@10.0.0.2 *", "HTTPS+SIMPLE 80@10.0.0.1 a.com", "HTTP 0@unix:///a//b *")},
		"unix:///a/b_0: plain a/first.4(*)\n*_80: plain a/first.0(*)\n10.0.0.1_80: plain a/first.1(*) tls a/first.3(a.com)\n10.0.0.2_80: plain a/first.2(*)\n"},
	{"equal binds of other texts", []*model.Gateway{first("TCP 80@0:0:0:0:0:0:0:1 *", "TCP 80@::1 *", "TCP 81@::ffff:10.0.0.1 *", "TCP 81@10.0.0.1 *", "TCP 82@0.0.0.0 *", "TCP 82 *", "TCP 0@unix:///a/b *", "TCP 0@unix:///a/./b *")},
		"unix:///a/b_0: plain a/first.6(*)\n::1_80: plain a/first.0(*)\n10.0.0.1_81: plain a/first.2(*)\n*_82: plain a/first.4(*)\n" +
			"-a/first spec.servers[1].port.protocol Duplicate [IST0145] < a/first.0\n-a/first spec.servers[3].port.protocol Duplicate [IST0145] < a/first.2\n" +
			"-a/first spec.servers[5].port.protocol Duplicate [IST0145] < a/first.4\n-a/first spec.servers[7].port.protocol Duplicate [IST0145] < a/first.6\n"},
	{"one host, several binds", []*model.Gateway{first("HTTPS+SIMPLE 443@10.0.0.1 a.com", "HTTPS+SIMPLE 443@10.0.0.2 a.com", "HTTPS+SIMPLE 443@10.0.0.1 a.com")},
		"10.0.0.1_443: tls a/first.0(a.com)\n10.0.0.2_443: tls a/first.1(a.com)\n-a/first spec.servers[2].hosts[0] Duplicate [IST0145] < a/first.0\n"},
	{"another namespace's more specific bind", []*model.Gateway{first("HTTPS+SIMPLE 443 a.com", "HTTP 80@0.0.0.0 *"),
		second("HTTPS+SIMPLE 443@10.0.0.1 b.com", "HTTP 80@10.0.0.1 *", "HTTP 443@127.0.0.1 *", "HTTP 443@f::1 *")},
		"*_80: plain a/first.1(*)\n*_443: tls a/first.0(a.com)\n" +
			"-b/second spec.servers[0].bind Duplicate [IST0145] < a/first.0\n-b/second spec.servers[1].bind Duplicate [IST0145] < a/first.1\n" +
			"-b/second spec.servers[2].bind Duplicate [IST0145] < a/first.0\n-b/second spec.servers[3].bind Duplicate [IST0145] < a/first.0\n"},
	{"loopback of a port at all addresses", []*model.Gateway{first("HTTP 80 *", "HTTP 81 *", "HTTP 80@127.0.0.1 *"),
		second("HTTP 80@127.0.0.2 *", "HTTP 81@::1 *", "HTTP 82@127.0.0.1 *", "HTTP 0@unix:///a *")},
		"unix:///a_0: plain b/second.3(*)\n*_80: plain a/first.0(*)\n127.0.0.1_80: plain a/first.2(*)\n*_81: plain a/first.1(*)\n127.0.0.1_82: plain b/second.2(*)\n" +
			"-b/second spec.servers[0].bind Duplicate [IST0145] < a/first.0\n-b/second spec.servers[1].bind Duplicate [IST0145] < a/first.1\n"},
	{"another namespace's older, more specific bind", []*model.Gateway{first("HTTP 80@10.0.0.1 *"), second("HTTP 80 *")},
		"*_80: plain b/second.0(*)\n10.0.0.1_80: plain a/first.0(*)\n-b/second spec.servers[0].bind Duplicate warning [IST0145] < a/first.0\n"},
	{"all addresses after those of loopback and of the same Gateway", []*model.Gateway{first("HTTP 80@127.0.0.1 *"), second("HTTP 80@10.0.0.1 *", "HTTP 80 *")},
		"*_80: plain b/second.1(*)\n10.0.0.1_80: plain b/second.0(*)\n127.0.0.1_80: plain a/first.0(*)\n"},
	{"an address that was there before all addresses", []*model.Gateway{first("HTTP 80@10.0.0.1 a.com"), second("HTTP 80 *"),
		gateway("c/third@3", "HTTP 80@10.0.0.1 b.com", "HTTP 80@10.0.0.2 b.com")},
		"*_80: plain b/second.0(*)\n10.0.0.1_80: plain a/first.0(a.com) plain c/third.0(b.com)\n" +
			"-b/second spec.servers[0].bind Duplicate warning [IST0145] < a/first.0\n-c/third spec.servers[1].bind Duplicate [IST0145] < b/second.0\n"},
	{"an address that is younger than all addresses", []*model.Gateway{first("HTTP 80 a.com"), gateway("a/second@2", "HTTP 80@10.0.0.1 b.com"),
		gateway("c/third@3", "HTTP 80@10.0.0.1 c.com")},
		"*_80: plain a/first.0(a.com)\n10.0.0.1_80: plain a/second.0(b.com)\n-c/third spec.servers[0].bind Duplicate [IST0145] < a/first.0\n"},
	{"binds that Envoy cannot have", []*model.Gateway{first("HTTP 80@a.com *", "HTTP 0@unix://a *", "HTTP 0@unix:///etc/istio/proxy/../proxy/sockets/SDS *",
		"HTTP 0@unix:///"+strings.Repeat("x", 107)+" *", "HTTP 0@unix://@a *", "HTTP 80@::%1 *", "HTTP 80@fe80::1%eth0 *", "HTTP 0@unix:///tmp/a\x00b *")},
		"unix://@a_0: plain a/first.4(*)\n-a/first spec.servers[0].bind Invalid\n-a/first spec.servers[1].bind Invalid\n" +
			"-a/first spec.servers[2].bind Invalid\n-a/first spec.servers[3].bind Invalid\n-a/first spec.servers[5].bind Invalid\n" +
			"-a/first spec.servers[6].bind Invalid\n-a/first spec.servers[7].bind Invalid\n"},
	{"ports of the Pod itself", []*model.Gateway{first("HTTP 15000 *", "HTTP 15001 *", "HTTP 15004@127.0.0.1 *", "HTTP 15006 *", "HTTP 15008 *", "HTTP 15020 *",
		"HTTP 15021 *", "HTTP 15053 *", "HTTP 15090 *", "HTTP 9999 *", "HTTP 15443 *")},
		"*_15008: plain a/first.4(*)\n*_15443: plain a/first.10(*)\n" + lostPorts("a/first", 0, 1, 2, 3, 5, 6, 7, 8, 9)},
	{"one age: by name, then by namespace", []*model.Gateway{gateway("z/a@1", "TCP 80 *"), gateway("a/b@1", "TCP 80 *"), gateway("b/a@1", "TCP 80 *")},
		"*_80: plain b/a.0(*)\n-z/a spec.servers[0].port.protocol Duplicate [IST0145] < b/a.0\n-a/b spec.servers[0].port.protocol Duplicate [IST0145] < b/a.0\n"},
	{"one route configuration's name", []*model.Gateway{gateway("4/b.c.1.2.3@1", "HTTPS+SIMPLE 443 a.com"), gateway("c/b@2", "HTTPS+SIMPLE 443@1.2.3.4 a.com")},
		"*_443: tls 4/b.c.1.2.3.0(a.com)\n-c/b spec.servers[0].port.name Duplicate [IST0145] < 4/b.c.1.2.3.0\n"},
	{"a server without a port or a host", []*model.Gateway{first("HTTP 0 *", "HTTP 80")}, "-a/first spec.servers[0] Invalid\n-a/first spec.servers[1] Invalid\n"},
}

// lostPorts are the conflicts of servers whose ports are not theirs to bind.
func lostPorts(name string, servers ...int) (text string) {
	for _, i := range servers {
		text += fmt.Sprintf("-%s spec.servers[%d].port.number NotAllowed\n", name, i)
	}
	return text
}

// Promise: security-gateways.md#take-hosts-ports-and-traffic
func TestMerge(t *testing.T) {
	for _, c := range merges {
		for range 2 {
			slices.Reverse(c.gateways) // the order in which they are given means nothing
			if got := show(Merge(Router{Gateways: c.gateways, Reserved: []uint32{9999}})); got != c.want {
				t.Errorf("%s:\n%swant\n%s", c.name, got, c.want)
			}
		}
	}
}

// A problem is the loser's, names the winner, and states what holds meanwhile.
// Promise: security-gateways.md#take-hosts-ports-and-traffic
func TestProblem(t *testing.T) {
	_, conflicts := Merge(Router{Gateways: []*model.Gateway{first("HTTP 80 a.com", "HTTPS+SIMPLE 443 a.com"),
		second("TCP 80 *", "HTTPS+SIMPLE 443 ./a.com ./b.com")}})
	want := []string{
		"Gateway b/second: spec.servers[0].port.protocol: port 80: Gateway a/first (spec.servers[0]) takes precedence and serves HTTP without TLS, " +
			"which excludes TCP without TLS on the same port; this server is not served, and that Gateway is unchanged",
		"Gateway b/second: spec.servers[1].hosts[0]: host b/a.com on port 443: Gateway a/first (spec.servers[1]) takes precedence and has the name already; " +
			"the other hosts of this server are served",
	}
	var got []string
	for _, c := range conflicts {
		got = append(got, c.Error())
		if c.Severity != problem.Error || c.Winner == nil || c.Loser.Name() != "b/second" {
			t.Errorf("%+v", c)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// Ports of servers are translated by the Services of the Pod, the oldest that has the port.
func TestPorts(t *testing.T) {
	for _, c := range []struct {
		name, services string // of one Service each, separated by commas
		unprivileged   bool
		want           string
	}{
		{"no Service", "", false, "*_80: plain a/first.0(*)\n*_443+quic: tls a/first.1(a.com)\n"},
		{"the target port", "80:8080 443:8443", false, "*_8080: plain a/first.0(*)\n*_8443: tls a/first.1(a.com)\n"},
		{"the older one of two", "80:8080,80:9090 443:9443", false, "*_8080: plain a/first.0(*)\n*_9443: tls a/first.1(a.com)\n"},
		{"one that opted out", "80:9191 443:9443 untranslated,80:8080 443:443", false, "*_443: tls a/first.1(a.com)\n*_8080: plain a/first.0(*)\n"},
		{"all opted out", "80:8080 1443:443 untranslated", false, "*_80: plain a/first.0(*)\n*_443: tls a/first.1(a.com)\n" +
			"-a/first spec.servers[0].port.number NotFound warning [IST0162]\n"},
		{"not in the Service", "443:8443", false, "*_80: plain a/first.0(*)\n*_8443: tls a/first.1(a.com)\n" +
			"-a/first spec.servers[0].port.number NotFound warning [IST0162]\n"},
		{"the target of another port", "443:80 1:1 untranslated", false, "*_80: plain a/first.0(*)\n*_443: tls a/first.1(a.com)\n" +
			"-a/first spec.servers[1].port.number NotFound warning [IST0162]\n"},
		{"a target that is not known", "80:0 443:8443", false, "*_80: plain a/first.0(*)\n*_8443: tls a/first.1(a.com)\n"},
		{"HTTP/3", "80:8080 443:9999/udp 443:8443", false, "*_8080: plain a/first.0(*)\n*_8443+quic: tls a/first.1(a.com)\n"},
		{"unprivileged", "443:8443", true, "*_8443: tls a/first.1(a.com)\n-a/first spec.servers[0].port.number NotAllowed\n"},
		{"a target that is the agent's", "80:15021 443:8443", false, "*_8443: tls a/first.1(a.com)\n-a/first spec.servers[0].port.number NotAllowed\n"},
		{"two ports, one target", "80:8443 443:8443", false, "*_8443: plain a/first.0(*)\n-a/first spec.servers[1].port.protocol Duplicate [IST0145] < a/first.0\n"},
	} {
		r := Router{Gateways: []*model.Gateway{first("HTTP 80 *", "HTTPS+SIMPLE 443 a.com")}, Unprivileged: c.unprivileged, QUIC: true,
			Target: func(_ *model.Service, p *model.ServicePort) uint32 { return p.GetTargetNumber() }}
		for ports := range strings.SplitSeq(c.services, ",") {
			if ports != "" {
				r.Services = append(r.Services, service(ports))
			}
		}
		if c.name == "no Service" {
			c.want = strings.Replace(c.want, "+quic", "", 1)
		}
		if got := show(Merge(r)); got != c.want {
			t.Errorf("%s:\n%swant\n%s", c.name, got, c.want)
		}
	}
	lost := Router{Gateways: []*model.Gateway{first("HTTP 80 *"), second("TCP 80 *")}, Services: []*model.Service{service("81:81")}}
	if got, want := show(Merge(lost)), "*_80: plain a/first.0(*)\n-a/first spec.servers[0].port.number NotFound warning [IST0162]\n"+
		"-b/second spec.servers[0].port.protocol Duplicate [IST0145] < a/first.0\n"; got != want {
		t.Errorf("a lost server that no Service has:\n%swant\n%s", got, want)
	}
	translated := Router{Gateways: lost.Gateways, Services: []*model.Service{service("80:8080")},
		Target: func(_ *model.Service, p *model.ServicePort) uint32 { return p.GetTargetNumber() }}
	if _, conflicts := Merge(translated); len(conflicts) != 1 || !strings.Contains(conflicts[0].Error(), ": port 80 (8080 of the Pod): ") {
		t.Errorf("a conflict names the port that the Gateway states: %v", conflicts)
	}
	quic := []*model.Gateway{first("HTTPS+SIMPLE 443 a.com", "TLS+SIMPLE 443 b.com", "HTTPS+PASSTHROUGH 443 c.com")}
	services := []*model.Service{service("443:443 443:443/udp")}
	listeners, _ := Merge(Router{Gateways: quic, Services: services, QUIC: true})
	if tls := listeners[0].TLS; !tls[0].QUIC || tls[1].QUIC || tls[2].QUIC {
		t.Error("HTTP/3 is for HTTPS that ends alone")
	}
	mutual := []*model.Gateway{first("HTTPS+MUTUAL 443 a.com", "HTTPS+ISTIO_MUTUAL 443 b.com", "HTTPS+SIMPLE 443 c.com")}
	listeners, conflicts := Merge(Router{Gateways: mutual, Services: services, QUIC: true})
	if tls := listeners[0].TLS; tls[0].QUIC || tls[1].QUIC || !tls[2].QUIC || len(conflicts) != 2 ||
		!strings.Contains(conflicts[1].Error(), "spec.servers[1].tls.mode: mode ISTIO_MUTUAL: HTTP/3") {
		t.Errorf("HTTP/3 is for mode SIMPLE alone: %v, %v", tls, conflicts)
	}
	if listeners, _ = Merge(Router{Gateways: quic, Services: services}); listeners[0].QUIC || listeners[0].TLS[0].QUIC {
		t.Error("HTTP/3 without the flag")
	}
}

// The part of a Gateway beyond its bounds is one problem, and the rest is served.
// Promise: security-gateways.md#make-a-gateway-fail
func TestBounds(t *testing.T) {
	var many []string
	for i := range mostServers + 2 {
		many = append(many, fmt.Sprintf("HTTP %d h%d.com", i+1, i))
	}
	hosts := func(from, n int) (text string) {
		for i := range n {
			text += fmt.Sprintf(" h%d.com", from+i)
		}
		return text
	}
	for name, c := range map[string]struct {
		gateway  *model.Gateway
		servers  int
		hosts    int
		conflict string
	}{
		"servers":                 {gateway("a/a@1", many...), mostServers, mostServers, "-a/a spec.servers[1024] NotAllowed\n"},
		"hosts in a server":       {gateway("a/a@1", "HTTP 80"+hosts(0, mostHosts-1), "HTTP 81"+hosts(mostHosts, 5), "HTTP 82 x.com"), 2, mostHosts, "-a/a spec.servers[1].hosts[1] NotAllowed\n"},
		"hosts before a server":   {gateway("a/a@1", "HTTP 80"+hosts(0, mostHosts), "HTTP 81 x.com", "HTTP 82 y.com"), 1, mostHosts, "-a/a spec.servers[1] NotAllowed\n"},
		"one host repeatedly":     {gateway("a/a@1", "HTTP 80 a.com"+strings.Repeat(" a.com", mostHosts), "HTTP 81 x.com"), 1, 1, "-a/a spec.servers[0].hosts[8192] NotAllowed\n"},
		"as many as there may be": {gateway("a/a@1", "HTTP 80"+hosts(0, mostHosts-1), "HTTP 81 x.com"), 2, mostHosts, ""},
	} {
		listeners, conflicts := Merge(Router{Gateways: []*model.Gateway{c.gateway}})
		n := 0
		for _, l := range listeners {
			n += len(l.Plain[0].Hosts)
		}
		if got := show(nil, conflicts); len(listeners) != c.servers || n != c.hosts || got != c.conflict {
			t.Errorf("%s: %d servers, %d hosts, %s", name, len(listeners), n, got)
		}
	}
}

// A Gateway with many lost servers has few problems, and the last one counts the others. Warnings displace no error.
// Promise: security-gateways.md#make-a-gateway-fail
func TestManyLost(t *testing.T) {
	var many []string
	for range problem.MostOfObject + 3 {
		many = append(many, "TCP 80 *", "HTTP 90 *")
	}
	r := Router{Gateways: []*model.Gateway{first("HTTP 80 *"), second(many...)}, Services: []*model.Service{service("80:80")}}
	_, conflicts := Merge(r)
	errors := 0
	for _, c := range conflicts {
		if c.Severity == problem.Error {
			errors++
		}
	}
	last := conflicts[len(conflicts)-1]
	named := last.Loser.Index%2 == 0 // the others have only warnings
	if errors != problem.MostOfObject+1 || !strings.HasPrefix(last.Message, "3 more servers") || last.Field != "spec.servers" || !named {
		t.Errorf("%d errors, the last %v of server %d", errors, last, last.Loser.Index)
	}
}

func TestPrecedes(t *testing.T) {
	order := []*model.Gateway{gateway("b/b@1"), gateway("z/a@2"), gateway("a/b@2"), gateway("b/b@2")}
	for i, a := range order {
		for j, b := range order {
			if got := Precedes(a, b); cmp.Compare(got, 0) != cmp.Compare(i, j) {
				t.Errorf("%v, %v: %d", a.Key, b.Key, got)
			}
		}
	}
}
