package lookup

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"navarch.io/navarch/store/model"
)

// Hosts, addresses and networks are kept as long as somebody has them, or looks them up.
func TestOwnersAreForgotten(t *testing.T) {
	u := newUser(t)
	entry := parse(t, "{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: e, namespace: shop}, "+
		"spec: {hosts: ['*.example.com'], addresses: [192.0.2.0/24], ports: [{number: 5432, name: tcp, protocol: TCP}]}}")
	service := parse(t, "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: back}, spec: {clusterIP: 192.0.2.7, ports: [{port: 80}]}}")
	u.put(entry)
	of := u.Get(entry.ID).Entry
	u.SetServices(nil, of)
	u.put(service)
	web := u.Get(service.ID).Entry
	if u.SetServices(nil, web); !u.Marked() {
		t.Error("the entry whose network has the Service's address is not marked")
	}
	u.renew()
	at := netip.MustParseAddr("192.0.2.7")
	if services, pod := u.At(at); len(services) != 1 || pod || len(u.Services("web.back.svc.cluster.local")) != 1 ||
		len(u.index.owners.networks) != 0 {
		t.Errorf("at the address are %v, a Pod: %v; networks %v", services, pod, u.index.owners.networks)
	}
	if u.SetServices(web, nil); !u.Marked() {
		t.Error("the entry that was told of the address is not marked")
	}
	if u.renew(); len(u.index.owners.networks) != 1 {
		t.Errorf("networks that are looked up: %v", u.index.owners.networks)
	}
	u.SetServices(of, nil)
	u.remove(entry.ID)
	u.remove(service.ID)
	if o := u.index.owners; len(o.hosts)+len(o.endings)+len(o.addresses)+len(o.networks)+len(u.index.addresses.users)+len(u.missing) != 0 {
		t.Errorf("left are %v %v", o, u.missing)
	}
}

// ServiceEntries below a wildcard are found without a look at hosts elsewhere, however deep the wildcard is.
func TestBelowVisitsFew(t *testing.T) {
	u := newUser(t)
	add := func(host string) {
		e := parse(t, "{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: "+fmt.Sprint("e", len(u.index.owners.hosts))+
			", namespace: shop}, spec: {hosts: ['"+host+"'], ports: [{number: 443, name: tls, protocol: TLS}]}}")
		u.put(e)
		u.SetServices(nil, u.Get(e.ID).Entry)
	}
	for i := range 200 {
		add(fmt.Sprintf("a.b%d.example.com", i))
	}
	for _, host := range []string{"x.example.org", "*.example.org", "x-y.example.org", "1.2.3.4.5.6.7.8.9.10.example.net"} {
		add(host)
	}
	for wildcard, want := range map[string]struct{ visits, found int }{"*.example.org": {3, 2}, "*-y.example.org": {3, 1},
		"*.b7.example.com": {1, 1}, "*.4.5.6.7.8.9.10.example.net": {1, 1}, "*.0.4.5.6.7.8.9.10.example.net": {1, 0}, "*": {204, 204}} {
		visits := len(slices.Collect(u.index.owners.ending(wildcard[1:])))
		if found := u.Below(wildcard); visits != want.visits || len(found) != want.found {
			t.Errorf("%s: %d hosts were visited, found %d, want %+v", wildcard, visits, len(found), want)
		}
	}
	for _, all := range maps.Clone(u.index.owners.hosts) {
		u.SetServices([]model.Record{all[0]}, nil)
	}
	if n := len(u.index.owners.endings); n != 0 {
		t.Errorf("%d endings are left", n)
	}
}
