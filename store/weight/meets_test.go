package weight

import (
	"fmt"
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// meetsEach counts the hosts of a Gateway that intersect with a host by comparing each.
func meetsEach(servers []string, namespace, host string) (n int) {
	for _, text := range servers {
		t := targetOf(model.ServerHost(text, "shop"))
		if t.namespace != "" && t.namespace != namespace {
			continue
		}
		rest, wildcard := strings.CutPrefix(host, "*")
		switch {
		case !wildcard && (host == t.host && !t.wildcard || t.wildcard && strings.HasSuffix(host, t.host)),
			wildcard && (strings.HasSuffix(t.host, rest) || t.wildcard && strings.HasSuffix(rest, t.host)):
			n++
		}
	}
	return n
}

// The hosts that intersect are counted without a comparison with each.
func TestMeets(t *testing.T) {
	servers := []string{"a.test", "a.test", "*.test", "*", "x/b.test", "./c.test", "*-d.test", "b.a.test", "*.a.test", "other.example", "*/e.test"}
	hosts := []string{"a.test", "*.a.test", "*", "*.test", "c.test", "x-d.test", "*-x-d.test", "z.b.a.test", "e.test", "test", "*.example", "none"}
	l := Measure(gatewayOf(t, servers))
	for _, namespace := range []string{"shop", "x", "third"} {
		for _, h := range hosts {
			if got, want := l.gateway.meets(namespace, h), meetsEach(servers, namespace, h); got != want {
				t.Errorf("%q of namespace %s meets %d hosts, want %d", h, namespace, got, want)
			}
		}
	}
}

// A Gateway and a VirtualService of 20,000 hosts each, and one that names a Gateway 20,000 times.
func BenchmarkAttackGatewayHosts(b *testing.B) {
	x := NewIndex()
	x.Replace(nil, []model.Record{gatewayOf(b, many(20_000, "g%d.test"))})
	vs := &networkingv1.VirtualService{Hosts: many(20_000, "*.v%d.test")}
	for i := range 20_000 {
		vs.Gateways = append(vs.Gateways, []string{"shop/gw", fmt.Sprint("shop/g", i)}[i%2])
	}
	rule := record(b, model.KindVirtualService, "v", vs)
	for b.Loop() {
		Of(rule, x)
	}
}
