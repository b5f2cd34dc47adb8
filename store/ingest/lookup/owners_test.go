package lookup

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// Hosts, addresses and networks are stored while they have an owner or are looked up.
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

// ServiceEntries below a wildcard are found without visiting other hosts, at any depth of the wildcard.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
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

// A network is compared with few addresses, however many there are, and an address that comes with few networks.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestNetworksAreFound(t *testing.T) {
	a := &Addresses{users: map[netip.Addr]int32{}}
	if a.within(netip.MustParsePrefix("0.0.0.0/0")).IsValid() {
		t.Error("an index without addresses finds one")
	}
	var all []netip.Addr
	for i := range 3000 {
		address := netip.AddrFrom4([4]byte{10, byte(i % 3), byte(i / 256), byte(i)})
		if i%4 == 0 {
			address = netip.MustParseAddr(fmt.Sprintf("fd00:%x::%x", i%7, i))
		}
		all = append(all, address)
		a.Count([]string{address.String()}, 1)
	}
	for i := range 20_000 {
		network := netip.PrefixFrom(all[i%len(all)], i%33)
		if i%2 == 0 {
			network = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i % 5), byte(i / 100), byte(i)}), i%33)
		}
		found := a.within(network)
		want := slices.ContainsFunc(all, network.Contains)
		if found.IsValid() != want || want && !network.Contains(found) {
			t.Fatalf("in %v is %v", network, found)
		}
	}
	a.Count([]string{all[0].String()}, 1)
	a.Count([]string{"192.0.2.1"}, 1)
	if found := a.within(netip.MustParsePrefix("192.0.2.0/30")); found != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("the address that has come since: %v", found)
	}
	o := newOwners()
	for i := range 5000 {
		o.count(normal.NetworkID(netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i / 256), byte(i)}), 32-i%9)), 1)
	}
	var marked []object.ID
	o.names([]string{"172.16.0.9"}, func(name object.ID) { marked = append(marked, name) })
	for network := range o.networks {
		id := normal.NetworkID(network)
		if of := netip.MustParseAddr("172.16.0.9"); network.Contains(of) != slices.Contains(marked, id) {
			t.Errorf("%v is marked: %v", network, slices.Contains(marked, id))
		}
	}
}

// Addresses that come and go move few others, however many there are, and are found as in a sorted list.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestAddressesStayInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var o ordered
	has := map[netip.Addr]bool{}
	random := func() netip.Addr {
		return netip.AddrFrom4([4]byte{10, byte(r.IntN(4)), byte(r.IntN(256)), byte(r.IntN(64))})
	}
	change := func(grow int) {
		a := random()
		if has[a] && r.IntN(grow) == 0 {
			delete(has, a)
			o.remove(a)
		} else if !has[a] {
			has[a] = true
			o.add(a)
		}
	}
	for range 40_000 {
		change(8)
	}
	o.moves = 0
	const changes = 2000
	for range changes {
		change(1)
	}
	if o.moves > changes*perChunk {
		t.Errorf("%d changes of %d addresses moved %d", changes, len(has), o.moves)
	}
	sorted := slices.SortedFunc(maps.Keys(has), netip.Addr.Compare)
	if !slices.Equal(slices.Concat(o.chunks...), sorted) {
		t.Error("the addresses are not in order")
	}
	for range 5000 {
		a := random()
		at, _ := slices.BinarySearchFunc(sorted, a, netip.Addr.Compare)
		want := netip.Addr{}
		if at < len(sorted) {
			want = sorted[at]
		}
		if got := o.from(a); got != want {
			t.Fatalf("from %v: %v, want %v", a, got, want)
		}
	}
	for _, a := range sorted {
		o.remove(a)
	}
	if o.remove(sorted[0]); len(o.chunks) != 0 || o.from(sorted[0]).IsValid() {
		t.Error("addresses are left")
	}
}
