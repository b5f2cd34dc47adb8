package weight

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// gatewayOf is a Gateway with a server for each list of hosts.
func gatewayOf(t testing.TB, servers ...[]string) model.Record {
	g := &networkingv1.Gateway{}
	for _, hosts := range servers {
		g.Servers = append(g.Servers, &networkingv1.Server{Hosts: hosts})
	}
	return record(t, model.KindGateway, "gw", g)
}

func many(n int, form string) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf(form, i))
	}
	return all
}

// A Gateway weighs its servers and hosts. The rules of a VirtualService weigh once for each host of a server that its
// hosts intersect with, whichever comes first, and no more than once in both.
// Promise: security-gateways.md#make-a-gateway-fail
func TestOfGateways(t *testing.T) {
	for what, c := range map[string]struct {
		hosts  []string // of the VirtualService
		server []string
		meets  int
	}{
		"one name":          {[]string{"h7.test"}, many(1000, "h%d.test"), 1},
		"all names":         {[]string{"*"}, many(1000, "h%d.test"), 1000},
		"below a wildcard":  {[]string{"*.test"}, append(many(1000, "h%d.test"), "other.example"), 1000},
		"a wider wildcard":  {[]string{"*.a.test"}, []string{"*.test", "*", "b.test"}, 2},
		"in other cases":    {[]string{"*.test"}, many(1000, "h%d.TEST"), 1000},
		"its namespace":     {[]string{"*"}, many(1000, "shop/h%d.test"), 1000},
		"the Gateway's own": {[]string{"*"}, many(1000, "./h%d.test"), 1000},
		"another namespace": {[]string{"*"}, many(1000, "other/h%d.test"), 1},
		"no namespace":      {[]string{"*"}, many(1000, "~/h%d.test"), 1},
		"none":              {[]string{"a.test", "b.test"}, []string{"c.test"}, 2},
	} {
		vs := routesFor(50, c.hosts...)
		vs.Gateways = []string{"shop/gw"}
		rule, gw := record(t, model.KindVirtualService, "v", vs), gatewayOf(t, c.server, nil)
		want := 2*server + len(c.server)*serverHost + c.meets*100*route
		for order, records := range map[string][]model.Record{"first": {gw, rule}, "last": {rule, gw}} {
			x, sum := NewIndex(), 0
			for _, r := range records {
				sum += Of(r, x).Exported
				x.Replace(nil, []model.Record{r})
			}
			if sum < want || sum > want*5/4+100 {
				t.Errorf("%s, the Gateway %s: %d KiB, want about %d", what, order, sum, want)
			}
			slices.Reverse(records)
			for _, r := range records {
				x.Replace([]model.Record{r}, nil)
			}
			if n := len(x.gateways) + len(x.bound) + len(x.applied) + len(x.rules); n > 0 {
				t.Errorf("%s: %d entries are left of nothing", what, n)
			}
		}
	}
}

// An offered VirtualService is weighed again when a Gateway that it names comes, and an offered Gateway when such a
// VirtualService does.
func TestGatewaysAreRead(t *testing.T) {
	vs := routesFor(1, "*")
	vs.Gateways = []string{"shop/gw", "mesh"}
	rule, gw := record(t, model.KindVirtualService, "v", vs), gatewayOf(t, many(10, "h%d.test"))
	for what, order := range map[string][2]model.Record{"a VirtualService": {rule, gw}, "a Gateway": {gw, rule}} {
		x, reads, again := NewIndex(), map[Read]bool{}, false
		before := x.Weigh(Measure(order[0]), func(r Read) { reads[r] = true })
		x.Changed = func(r Read) { again = again || reads[r] }
		x.Replace(nil, []model.Record{order[1]})
		if after := Of(order[0], x); !again || after.Exported <= before.Exported {
			t.Errorf("%s weighs %v, then %v; weighed again: %v", what, before, after, again)
		}
	}
}

// A host that requires client certificates weighs more for each wildcard that may cover it, whoever states the
// wildcard.
// Promise: security-gateways.md#make-a-gateway-fail
func TestOfGuardedHosts(t *testing.T) {
	deep := many(300, strings.Repeat("a.", 60)+"h%d.test")
	of := func(mode networkingv1.ServerTLSSettings_TLSmode, hosts []string) int {
		return Of(record(t, model.KindGateway, "g", &networkingv1.Gateway{Servers: []*networkingv1.Server{
			{Port: &networkingv1.Port{Number: 443, Protocol: "HTTPS"}, Hosts: hosts, Tls: &networkingv1.ServerTLSSettings{Mode: mode}}}}), NewIndex()).Exported
	}
	simple, mutual := of(networkingv1.ServerTLSSettings_SIMPLE, deep), of(networkingv1.ServerTLSSettings_MUTUAL, deep)
	if more := mutual - simple; more < 300*61/perGuarded || more > 300*65/perGuarded {
		t.Errorf("300 deep hosts weigh %d KiB more", more)
	}
	usual := many(300, "h%d.test")
	if more := of(networkingv1.ServerTLSSettings_ISTIO_MUTUAL, usual) - of(networkingv1.ServerTLSSettings_SIMPLE, usual); more > 200 {
		t.Errorf("300 usual hosts weigh %d KiB more", more)
	}
}
