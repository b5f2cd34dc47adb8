package gateways

import (
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
)

// The names of route configurations, and the properties of servers by protocol and mode of TLS.
func TestServer(t *testing.T) {
	services := []*model.Service{service("80:8080 443:8443 444:8444")}
	for _, c := range []struct{ server, route, is string }{
		{"HTTP 80 *", "http.8080", "HTTP"},
		{"http2 80@10.0.0.1 *", "http.8080.10.0.0.1", "HTTP"},
		{"HTTP 80@0.0.0.0 *", "http.8080", "HTTP"}, // istiod: http.8080.0.0.0.0
		{"HTTP 80@0:0::1 *", "http.8080.::1", "HTTP"},
		{"GRPC-Web 90 *", "http.90", "HTTP"},
		{"HTTP+REDIRECT 80 *", "http.8080", "HTTP"},
		{"HTTP 0@unix:///run/a *", "http.0.unix:///run/a", "HTTP"},
		{"HTTPS+SIMPLE 443 *", "https.443.p0.first.a", "TLS HTTP Ends"},
		{"HTTPS+ISTIO_MUTUAL 443@f::1 *", "https.443.p0.first.a.f::1", "TLS HTTP Ends"},
		{"HTTPS+PASSTHROUGH 443 *", "", "TLS Passes"},
		{"TLS+AUTO_PASSTHROUGH 444 *", "", "TLS Passes Auto"},
		{"TLS+OPTIONAL_MUTUAL 444 *", "", "TLS Ends"},
		{"TCP+MUTUAL 444 *", "", "TLS Ends"},
		{"TCP 444 *", "", ""},
		{"MySQL 444 *", "", ""},
		{"HTTPS 444 *", "", ""}, // without tls, which Istio refuses
	} {
		listeners, _ := Merge(Router{Gateways: []*model.Gateway{first(c.server)}, Services: services})
		l := listeners[0]
		s := slices.Concat(l.Plain, l.TLS)[0]
		var is []string
		for _, p := range []struct {
			name string
			is   bool
		}{{"TLS", s.TLS()}, {"HTTP", s.HTTP()}, {"Ends", s.Ends()}, {"Passes", s.Passes()}, {"Auto", s.Auto()}} {
			if p.is {
				is = append(is, p.name)
			}
		}
		name, _ := l.PlainRoute()
		if got := strings.Join(is, " "); name+s.RouteName() != c.route || got != c.is || (len(l.TLS) == 1) != s.TLS() {
			t.Errorf("%s: %q, %q", c.server, name+s.RouteName(), got)
		}
	}
}

func TestListenerName(t *testing.T) {
	for text, want := range map[string]string{"HTTP 80 *": "0.0.0.0_80", "HTTP 80@10.0.0.1 *": "10.0.0.1_80", "HTTP 80@f::1 *": "f::1_80",
		"HTTP 0@unix:///run/a *": "unix:///run/a_0"} {
		listeners, _ := Merge(Router{Gateways: []*model.Gateway{first(text)}})
		if got := listeners[0].Name("0.0.0.0"); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// Servers that share a route configuration have the port of the first one. The name is that of the listener.
func TestPlainRoute(t *testing.T) {
	services := []*model.Service{service("80:8080 81:8080")}
	listeners, _ := Merge(Router{Gateways: []*model.Gateway{second("HTTP 80 b.com"), first("HTTP 81 a.com")}, Services: services})
	if name, port := listeners[0].PlainRoute(); name != "http.8080" || port != 81 || len(listeners) != 1 {
		t.Errorf("%s %d", name, port)
	}
	listeners, _ = Merge(Router{Gateways: []*model.Gateway{first("HTTPS+SIMPLE 443 a.com")}})
	if name, port := listeners[0].PlainRoute(); name != "" || port != 0 {
		t.Errorf("%s %d without plain HTTP", name, port)
	}
}

// The more specific host of a pair is the domain, for the namespaces that the server admits.
// Promise: security-gateways.md#take-hosts-ports-and-traffic
func TestIntersect(t *testing.T) {
	for _, c := range []struct{ hosts, of, host, want string }{
		{"a.com", "x", "a.com", "a.com"},
		{"x.a.com", "x", "*.a.com", "x.a.com"},
		{"*.a.com", "x", "x.a.com", "x.a.com"},
		{"*.a.com", "x", "*.b.a.com", "*.b.a.com"},
		{"*.b.a.com", "x", "*.a.com", "*.b.a.com"},
		{"*", "x", "*", "*"},
		{"*", "x", "X.a.com", "x.a.com"},
		{"A.com", "x", "*", "a.com"},
		{"a.com b.com *.c.com", "x", "*", "a.com b.com *.c.com"},
		{"*.a.com", "x", "a.com", ""},
		{"a.com", "x", "b.com", ""},
		{"x/a.com y/b.com", "x", "*", "a.com"},
		{"./a.com */b.com ~/c.com", "gw", "*", "a.com b.com"},
		{"./a.com */b.com ~/c.com", "x", "*", "b.com"},
		{"x/a.com a.com", "x", "*.com", "a.com"},
		{"x/*", "x", "c.com", "c.com"},
		{"x/*", "y", "c.com", ""},
		{"*-a.com", "x", "b-a.com", "b-a.com"},
	} {
		hosts := hostsOf(strings.Fields(c.hosts), "gw")
		if got := strings.Join(Intersect(hosts, c.of, c.host), " "); got != c.want {
			t.Errorf("%s for %s of %s: %q, want %q", c.hosts, c.host, c.of, got, c.want)
		}
		for domain := range strings.FieldsSeq(c.want) {
			if s := (Server{Hosts: hosts}); !s.Allows(c.of, domain) || s.Allows("other", domain) != slices.ContainsFunc(hosts, func(h Host) bool {
				return h.Namespace == "" && (h.Name == domain || model.Covers(h.Name, domain))
			}) {
				t.Errorf("%s allows %s of %s", c.hosts, domain, c.of)
			}
		}
	}
	if s := (Server{Hosts: []Host{{"", "x.a.com"}}}); s.Allows("x", "*.a.com") {
		t.Error("a wildcard is allowed by one of the names below it")
	}
}

func TestNames(t *testing.T) {
	for hosts, want := range map[string]string{
		"b.com A.com": "a.com b.com", "x/a.com y/a.com *.b.com": "*.b.com a.com", "a.com *": "", "a.com x/*": "", "~/a.com": "a.com",
	} {
		if got := strings.Join(Names(hostsOf(strings.Fields(hosts), "gw")), " "); got != want {
			t.Errorf("%s: %q, want %q", hosts, got, want)
		}
	}
}

func TestSelects(t *testing.T) {
	labels := map[string]string{"istio": "edge", "app": "edge"}
	for selector, want := range map[string]bool{"": true, "edge": true, "other": false} {
		g := first()
		if selector != "" {
			g.Spec.Selector = map[string]string{"istio": selector}
		}
		if Selects(g, labels) != want {
			t.Errorf("istio: %q", selector)
		}
	}
}
