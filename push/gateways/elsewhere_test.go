package gateways

import (
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
)

// The hosts of a listener's servers that others must not serve, and those that are merely elsewhere: of each server
// with TLS, then of those without, as "GUARDED / OTHERS".
func TestElsewhere(t *testing.T) {
	other := first("HTTPS+MUTUAL 443 *.test", "HTTPS+MUTUAL 443 m.test")
	other.Spec.Servers[0].Tls.CredentialName = "other"
	for _, c := range []struct {
		name    string
		servers []string
		want    string
	}{
		{"a MUTUAL host below all hosts", []string{"HTTPS+SIMPLE 443 *", "HTTPS+MUTUAL 443 m.test"}, "m.test / \n / "},
		{"below a wildcard", []string{"HTTPS+SIMPLE 443 *.test s.com", "HTTPS+MUTUAL 443 *.m.test"}, "*.m.test / \n / *.test s.com"},
		{"beside it", []string{"HTTPS+SIMPLE 443 s.test", "HTTPS+MUTUAL 443 m.test"}, " / m.test\n / s.test"},
		{"the same TLS", []string{"HTTPS+MUTUAL 443 *.test", "HTTPS+MUTUAL 443 m.test"}, " / m.test\n / *.test"},
		{"other authorities", nil, "m.test / \n / *.test"},
		{"optional certificates", []string{"HTTPS+SIMPLE 443 *", "HTTPS+OPTIONAL_MUTUAL 443 o.test"}, " / o.test\n / "},
		{"of the mesh", []string{"HTTPS+SIMPLE 443 *", "HTTPS+ISTIO_MUTUAL 443 i.test"}, "i.test / \n / "},
		{"passed on", []string{"HTTPS+SIMPLE 443 *", "TLS+PASSTHROUGH 443 p.test"}, " / p.test\n / "},
		{"between networks", []string{"HTTPS+SIMPLE 443 s.test", "TLS+AUTO_PASSTHROUGH 443 *.local"}, " / \n / s.test"},
		{"all hosts with a certificate", []string{"HTTPS+MUTUAL 443 *", "HTTPS+SIMPLE 443 s.test"}, " / s.test\n / "},
		{"a host with a certificate beside all hosts", []string{"HTTPS+MUTUAL 443 * m.test *-p.test", "HTTPS+SIMPLE 443 *.test"}, " / *.test\nm.test / "},
		{"without TLS", []string{"HTTPS+MUTUAL 443 m.test *.w.test", "HTTP 443 m.test x.w.test *.test o.com"}, " / \n*.w.test m.test / "},
		{"no TLS at all", []string{"HTTP 443 *", "HTTP 443 a.test"}, " / "},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := other
			if c.servers != nil {
				g = first(c.servers...)
			}
			listeners, conflicts := Merge(Router{Gateways: []*model.Gateway{g}})
			if len(listeners) != 1 || len(conflicts) > 0 {
				t.Fatal(show(listeners, conflicts))
			}
			l := listeners[0]
			owners := l.Owners()
			var got []string
			add := func(servers ...Server) {
				e := owners.Elsewhere(servers)
				got = append(got, strings.Join(e.Guarded, " ")+" / "+strings.Join(e.Others, " "))
			}
			for _, s := range l.TLS {
				add(s)
			}
			if len(l.Plain) > 0 {
				add(l.Plain...)
			}
			if text := strings.Join(got, "\n"); text != c.want {
				t.Errorf("got\n%s\nwant\n%s", text, c.want)
			}
		})
	}
}

// serving returns the owner of a domain, and those of the servers with the domain that may serve it.
func serving(o *Owners, servers []Server, domain string) (owner Server, may []Server) {
	owner, guards := o.Guard(domain)
	for _, s := range servers {
		if !guards || owner.Admits(s) && s.Allows("", domain) {
			may = append(may, s)
		}
	}
	return owner, may
}

// A younger server of another namespace that requires certificates guards no host of an older server without TLS,
// whether that one states the host or covers it. An older one does, and a younger one of the same namespace.
// Promise: security-gateways.md#take-hosts-ports-and-traffic
func TestGuardOfAnotherNamespace(t *testing.T) {
	plain := []string{"HTTPS+SIMPLE 443 s.test", "HTTP 443 m.test *.w.test o.com"}
	mutual := "HTTPS+MUTUAL 443 m.test *.w.test x.w.test *.com other.test"
	for _, c := range []struct {
		name       string
		a, b       *model.Gateway
		want, open string
	}{
		{"younger", gateway("a/plain@1", plain...), gateway("b/mutual@2", mutual), "", "*.w.test m.test x.w.test"},
		{"younger, of the same namespace", gateway("a/plain@1", plain...), gateway("a/mutual@2", mutual), "*.w.test m.test x.w.test", ""},
		{"older", gateway("a/plain@2", plain[1]), gateway("b/mutual@1", mutual), "*.w.test m.test x.w.test", ""},
	} {
		listeners, conflicts := Merge(Router{Gateways: []*model.Gateway{c.a, c.b}})
		if len(listeners) != 1 || len(conflicts) > 0 || len(listeners[0].Plain) != 1 {
			t.Fatal(show(listeners, conflicts))
		}
		owners := listeners[0].Owners()
		e := owners.Elsewhere(listeners[0].Plain)
		if got, open := strings.Join(e.Guarded, " "), strings.Join(e.Open, " "); got != c.want || open != c.open {
			t.Errorf("%s: guarded %q and open %q, want %q and %q", c.name, got, open, c.want, c.open)
		}
		for _, domain := range []string{"m.test", "x.w.test", "y.w.test", "o.com"} { // o.com: *.com is guarded
			by, may := serving(owners, listeners[0].Plain, domain)
			if by.Name() != "b/mutual" && by.Name() != "a/mutual" || (len(may) == 0) != (c.want != "") {
				t.Errorf("%s: %s is guarded by %s, open to %d servers", c.name, domain, by.Name(), len(may))
			}
		}
		for _, s := range listeners[0].TLS { // whose own hosts stay
			if e := owners.Elsewhere([]Server{s}); len(e.Guarded)+len(e.Open) > 0 {
				t.Errorf("%s: %s: guarded %v, open %v", c.name, s.Name(), e.Guarded, e.Open)
			}
		}
	}
}

// An older server without TLS lifts the guard for itself and its own hosts: not for younger servers beside it, whether
// it has their hosts too or not.
// Promise: security-gateways.md#take-hosts-ports-and-traffic
func TestYoungerServersGainNothing(t *testing.T) {
	local := gateway("edge/local@1", "HTTP 443@127.0.0.1 *") // with it the port takes several servers without TLS
	mutual := gateway("bank/mutual@3", "HTTPS+MUTUAL 443 m.test")
	for _, c := range []struct {
		name, older, younger  string
		may                   string // may serve m.test
		guarded, open, shared string
	}{
		{"other hosts", "a.test", "m.test", "", "m.test", "", ""},
		{"other hosts, a wildcard", "a.test", "*.test", "", "m.test", "", ""},
		{"the same host", "m.test", "m.test", "edge/old", "", "m.test", "m.test"},
		{"the older one covers it", "*.test", "m.test", "edge/old", "", "m.test", "m.test"},
		{"the younger one covers it", "m.test", "*", "edge/old", "", "m.test", "m.test"},
		{"the older one alone", "m.test", "x.test", "edge/old", "", "m.test", ""},
	} {
		listeners, conflicts := Merge(Router{Gateways: []*model.Gateway{local, mutual,
			gateway("edge/old@2", "HTTP 443 "+c.older), gateway("evil/young@4", "HTTP 443 "+c.younger)}})
		if len(listeners) != 2 || len(conflicts) > 0 || len(listeners[0].Plain) != 2 {
			t.Fatal(show(listeners, conflicts))
		}
		owners, names := listeners[0].Owners(), []string(nil)
		_, may := serving(owners, listeners[0].Plain, "m.test")
		for _, s := range may {
			names = append(names, s.Name())
		}
		if got := strings.Join(names, " "); got != c.may {
			t.Errorf("%s: %q may serve it, want %q", c.name, got, c.may)
		}
		e := owners.Elsewhere(listeners[0].Plain)
		got := [3]string{strings.Join(e.Guarded, " "), strings.Join(e.Open, " "), strings.Join(e.Shared, " ")}
		if want := [3]string{c.guarded, c.open, c.shared}; got != want {
			t.Errorf("%s: guarded, open and shared are %q, want %q", c.name, got, want)
		}
	}
}

// A domain is guarded by the server that gets connections with its SNI, if that one requires a certificate.
func TestGuard(t *testing.T) {
	g := first("HTTPS+SIMPLE 443 *", "HTTPS+MUTUAL 443 *.w.test", "HTTPS+SIMPLE 443 open.w.test")
	listeners, _ := Merge(Router{Gateways: []*model.Gateway{g}})
	l := listeners[0]
	owners := l.Owners()
	for domain, want := range map[string]bool{"a.test": false, "*.test": false, "*.w.test": true, "x.w.test": true, "*.x.w.test": true,
		"open.w.test": false, "w.test": false, "*": false} {
		if by, may := serving(owners, l.TLS[:1], domain); (len(may) == 0) != want || want && by.Index != 1 {
			t.Errorf("%s: %d may serve it beside %d", domain, len(may), by.Index)
		}
		if _, may := serving(owners, l.TLS[1:2], domain); len(may) == 0 {
			t.Errorf("%s is guarded from its own server", domain)
		}
	}
}
