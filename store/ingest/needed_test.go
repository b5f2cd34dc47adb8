package ingest

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// leaders are the origins of objects that the leader makes itself.
var leaders = []origin.Origin{{}, origin.New("", origin.Addresses), origin.New("", origin.DNS)}

// Names that the leader resolves, and addresses that it assigns, become part of the records that refer to them, and of
// no others. Nothing is written before all known ones were emitted; the needed names are reported before that.
// Withdrawn ones are removed.
func TestWhatTheLeaderSays(t *testing.T) {
	d := newDesk(t)
	d.s = NewState(Options{Normal: normal.Options{Automatic: []netip.Prefix{netip.MustParsePrefix("240.240.0.0/16"), netip.MustParsePrefix("2001:2::/48")}, ResolveGateways: true}, Sources: leaders})
	d.lead()
	names := func(whole bool, want string) {
		t.Helper()
		if got := fmt.Sprint(namesOf(d.s)); got != want || d.s.sources.configured() != whole {
			t.Errorf("names are %s, whole %v", got, d.s.sources.configured())
		}
	}
	said := func(o *object.Object, err error) object.Event {
		if err != nil {
			t.Fatal(err)
		}
		return object.Event{Op: object.Put, ID: o.ID, Object: o}
	}
	const entry = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: e, namespace: shop}\n" +
		"spec: {hosts: [db.example.com], resolution: DNS, ports: [{number: 5432, name: tcp, protocol: TCP}]}"
	const gateway = "apiVersion: v1\nkind: Service\nmetadata: {name: gw, namespace: istio-system, labels: {topology.istio.io/network: b}}\n" +
		"spec: {type: LoadBalancer, clusterIP: 10.96.0.9, ports: [{name: tls, port: 15443}]}\nstatus: {loadBalancer: {ingress: [{hostname: lb.example.com}]}}"
	mesh := put(t, gatewaysMap("{}", "networks: {c: {gateways: [{address: mesh.example.com, port: 443}]}}"))
	names(false, "[]")
	d.want(Objects{mesh, put(t, gateway), put(t, svc), put(t, entry), synced})
	names(true, "[lb.example.com mesh.example.com]")
	d.want(Objects{said(normal.NewResolved("lb.example.com", []string{"192.0.2.1"})), {Op: object.Synced, ID: object.ID{Origin: leaders[2]}}})
	d.want(Objects{said(normal.NewAutomatic("shop", "e", map[string][]string{"db.example.com": {"240.240.0.1"}})), {Op: object.Synced, ID: object.ID{Origin: leaders[1]}}},
		"load", "write +Mesh mesh +Service gw +Service web +ServiceEntry e +Endpoints serviceentry:e +NetworkGateways gw")
	d.want(Objects{said(normal.NewResolved("mesh.example.com", []string{"192.0.2.2"}))}, "write +NetworkGateways meshNetworks")
	d.want(Objects{said(normal.NewResolved("mesh.example.com", []string{"192.0.2.2"}))})
	d.want(Objects{said(normal.NewResolved("mesh.example.com", []string{"192.0.2.3"}))}, "write +NetworkGateways meshNetworks")
	d.want(Objects{said(normal.NewResolved("lb.example.com", []string{"192.0.2.1", "192.0.2.4"}))}, "write +NetworkGateways gw")
	d.want(Objects{said(normal.NewResolved("other.example.com", []string{"192.0.2.9"}))})
	d.want(Objects{said(normal.NewAutomatic("shop", "e", map[string][]string{"db.example.com": {"240.240.0.2"}}))}, "write +ServiceEntry e")
	d.want(Objects{said(normal.NewAutomatic("shop", "other", map[string][]string{"db.example.com": {"240.240.0.3"}}))})
	d.want(Objects{{Op: object.Delete, ID: normal.AutomaticID("shop", "e")}}, "write +ServiceEntry e")
	d.want(Objects{{Op: object.Delete, ID: normal.ResolvedID("mesh.example.com")}}, "write -NetworkGateways meshNetworks")
	d.want(Objects{gone(put(t, gateway))}, "write -Service gw -NetworkGateways gw")
	names(true, "[mesh.example.com]")
	d.want(Objects{put(t, gatewaysMap("{}", "networks: {}"))})
	names(true, "[]")
	// At the end of a term the leader's own objects are forgotten, and stored records do not change.
	d.want(Lost{})
	d.want(Objects{{Op: object.Forget, ID: object.ID{Origin: leaders[1]}}, {Op: object.Forget, ID: object.ID{Origin: leaders[2]}}})
	w := d.s.inventory.objects
	if a, r := w.Automatic(normal.AutomaticID("shop", "other")), w.Resolved(normal.ResolvedID("lb.example.com")); len(a)+len(r) != 0 || !d.s.sources.configured() {
		t.Errorf("known are %v, %v", a, r)
	}
}

func namesOf(s *State) (names []string) {
	ids, _ := s.inventory.objects.Needed(origin.DNS)
	for id := range ids {
		names = append(names, id.Name)
	}
	slices.Sort(names)
	return names
}
