package ingest

import (
	"fmt"
	"strings"
	"testing"

	"navarch.io/navarch/store/object"
)

// entrance is a Gateway of servers with hosts each, h0.NAME.test and so on.
func entrance(name string, servers, hosts int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: %s, namespace: shop}\nspec:\n  selector: {app: gw}\n  servers:\n", name)
	for i := range servers {
		fmt.Fprintf(&b, "  - port: {number: %d, name: p%d, protocol: HTTP}\n    hosts: [", 8000+i, i)
		for j := range hosts {
			fmt.Fprintf(&b, "h%d.%s.test, ", j, name)
		}
		b.WriteString("]\n")
	}
	return b.String()
}

// boundTo is a VirtualService of some routes for a host at a Gateway.
func boundTo(name, gateway, host string, routes int) string {
	return strings.Replace(virtualServiceOf(name, []string{host}, routes), "spec:", "spec:\n  gateways: ["+gateway+"]", 1)
}

// Servers and hosts of Gateways, and the virtual hosts that VirtualServices become by them, count in the budget of the
// namespace; whoever comes last is refused by name. A tenant of 100 hosts has room.
// Promise: security-gateways.md#make-a-gateway-fail
func TestBudgetOfServers(t *testing.T) {
	gateway := func(name string, servers, hosts int) object.Event { return put(t, entrance(name, servers, hosts)) }
	bound := func(name, host string, routes int) object.Event { return put(t, boundTo(name, "gw", host, routes)) }
	var honest []object.Event
	for i := range 100 {
		honest = append(honest, bound(fmt.Sprint("v", i), fmt.Sprintf("h%d.gw.test", i), 3))
	}
	for what, test := range map[string]struct {
		events  []object.Event
		refused []string
	}{
		"100 hosts":                    {append(honest, gateway("gw", 2, 100)), nil},
		"1,000 servers":                {[]object.Event{gateway("gw", 1000, 1), gateway("other", 1, 100)}, []string{"gw"}},
		"8,000 hosts":                  {[]object.Event{gateway("gw", 8, 1000), gateway("more", 8, 1000), gateway("most", 8, 1000)}, []string{"more", "most"}},
		"all hosts, after the Gateway": {[]object.Event{gateway("gw", 1, 1000), bound("wide", "*", 10)}, []string{"wide"}},
		"all hosts, before it":         {[]object.Event{bound("wide", "*", 10), gateway("gw", 1, 1000)}, []string{"gw"}},
		"another namespace's Gateway":  {[]object.Event{put(t, in("edge", entrance("gw", 1, 1000))), put(t, boundTo("wide", "edge/gw", "*", 10))}, []string{"wide"}},
		"another namespace's rules":    {[]object.Event{put(t, in("other", boundTo("wide", "shop/gw", "*", 10))), gateway("gw", 1, 1000)}, nil},
		"its Gateway goes": {[]object.Event{gateway("gw", 1, 1000), bound("wide", "*", 10), gone(gateway("gw", 1, 1000)),
			put(t, vs("web", "1s"))}, nil},
	} {
		d := budgetDesk(t, ofGiB)
		d.step(Objects{synced})
		for _, e := range test.events {
			d.step(Objects{e})
		}
		t.Log(what)
		d.refused(test.refused...)
	}
}
