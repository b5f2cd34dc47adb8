package ingest

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

// ofEvil is a ServiceEntry or VirtualService of namespace evil, ofBack one of namespace back.
func ofEvil(kind, name, spec string) string { return configured("evil", kind, name, spec) }
func ofBack(kind, name, spec string) string { return configured("back", kind, name, spec) }

func configured(namespace, kind, name, spec string) string {
	return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: %s\nmetadata: {name: %s, namespace: %s}\nspec: %s", kind, name,
		namespace, spec)
}

func clusterService(namespace, name, address string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: %s}\nspec: {clusterIP: %s, ports: [{name: http, port: 80}]}", name, namespace, address)
}

// isolatedMesh returns objects whose isolation rules depend on each other, some in several forms.
func isolatedMesh() (all []string) {
	const ports = "ports: [{number: 80, name: http, protocol: HTTP}]}"
	space := "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {navarch.io/tenant: %q}}"
	for _, namespace := range []string{"evil", "back"} {
		for _, label := range []string{"", "a", "b"} {
			all = append(all, fmt.Sprintf(space, namespace, label))
		}
	}
	for _, address := range []string{"10.96.0.1", "10.96.0.2", "192.0.2.9"} {
		all = append(all, clusterService("back", "reviews", address), clusterService("evil", "own", address),
			ofBack("ServiceEntry", "stated", "{hosts: [h."+address+".example], addresses: ["+address+"], "+ports),
			ofEvil("ServiceEntry", "stated", "{hosts: [x.example], addresses: ["+address+"], "+ports),
			ofEvil("WorkloadEntry", "machine", "{address: "+address+"}"),
			fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: q, namespace: evil}\n"+
				"spec: {serviceAccountName: a}\nstatus: {phase: Running, podIP: %s}", address),
			fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: back}\nspec: {serviceAccountName: a}\nstatus: {phase: Running, podIP: %s}", address))
	}
	return append(all, ofEvil("ServiceEntry", "network", "{hosts: [y.example], addresses: [10.96.0.0/24], "+ports),
		ofEvil("ServiceEntry", "network", "{hosts: [y.example], addresses: [192.0.2.0/24], "+ports),
		ofEvil("ServiceEntry", "short", "{hosts: [reviews.back], "+ports), ofBack("ServiceEntry", "api",
			"{hosts: [api.example.com], "+ports),
		ofBack("ServiceEntry", "api", "{hosts: ['*.example.com'], "+ports), ofEvil("ServiceEntry", "api",
			"{hosts: [api.example.com], "+ports),
		ofEvil("ServiceEntry", "hidden", "{exportTo: [.], hosts: ['*.example.com', b.example.com], "+ports),
		ofEvil("VirtualService", "api", "{hosts: [api.example.com], http: [{route: [{destination: {host: own}}]}]}"),
		ofEvil("VirtualService", "api", "{hosts: ['*.example.com'], http: [{route: [{destination: {host: own}}]}]}"),
		ofEvil("VirtualService", "api", "{hosts: [own], tcp: [{match: [{destinationSubnets: [192.0.2.0/24]}], "+
			"route: [{destination: {host: own}}]}]}"),
		ofEvil("VirtualService", "reviews", "{hosts: [reviews.back.svc.cluster.local], http: [{route: [{destination: {host: own}}]}]}"))
}

// Objects that come, change and go one after the other are judged as all at once, with isolation and without.
// Promise: security-tenants.md#take-traffic-or-weaken-policies
func TestJudgedAgain(t *testing.T) {
	pool := isolatedMesh()
	for seed := range uint64(80) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		options := normal.Options{Isolation: normal.Isolation{On: seed%3 > 0,
			Ranges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/30")}}}
		d := newDesk(t)
		d.s = NewState(Options{Normal: options, Budget: weighed})
		d.lead()
		d.step(Objects{synced})
		there := map[object.ID]object.Event{}
		for range 60 {
			e := put(t, pool[rnd.IntN(len(pool))])
			if there[e.ID] = e; rnd.IntN(3) == 0 {
				delete(there, e.ID)
				e = object.Event{Op: object.Delete, ID: e.ID, Why: object.Deleted}
			}
			d.step(Objects{e})
		}
		d.step(Due{}) // endpoints that wait for their pace
		records, problems := Records(slices.Collect(maps.Values(there)), options)
		want := map[model.Key]model.Hash{}
		for _, r := range records {
			want[r.Meta().Key] = r.Meta().Hash
		}
		if !maps.Equal(d.stored, want) {
			t.Errorf("seed %d: stored are %v, want %v", seed, slices.Collect(maps.Keys(d.stored)), slices.Collect(maps.Keys(want)))
		}
		d.s.inventory.crossCheck.check(&d.s.inventory.guard)
		if got := d.s.Problems(); len(got) != len(problems) {
			t.Errorf("seed %d: problems %v\nwant %v", seed, got, problems)
		}
		if t.Failed() {
			return
		}
	}
}

// After a change of a Service, a Pod or a ServiceEntry, only objects that looked up its hosts or addresses are checked
// again.
func TestJudgedAgainAreFew(t *testing.T) {
	d := newDesk(t)
	d.s = NewState(Options{Normal: normal.Options{Isolation: normal.Isolation{On: true}}})
	d.lead()
	events := Objects{synced}
	for i := range 100 {
		events = append(events, put(t, ofEvil("ServiceEntry", fmt.Sprint("e", i),
			fmt.Sprintf("{hosts: [h%d.example.com], addresses: [192.0.2.%d], ports: [{number: 80, name: http, protocol: HTTP}]}", i, i))),
			put(t, ofEvil("VirtualService", fmt.Sprint("v", i),
				fmt.Sprintf("{hosts: [h%d.example.com], http: [{route: [{destination: {host: own}}]}]}", i))))
	}
	d.step(events)
	for _, c := range []struct {
		text string
		want uint64
	}{
		{clusterService("back", "a", "10.96.0.1"), 1}, // itself
		{clusterService("back", "b", "192.0.2.7"),
			3}, // the ServiceEntry with its address, and the VirtualService that looked up that one's host
		{clusterService("back", "b", "192.0.2.99"),
			5}, // those of both addresses
		{ofBack("ServiceEntry", "x", "{hosts: [h8.example.com], ports: [{number: 80, name: http, protocol: HTTP}]}"),
			2}, // the VirtualService with its host
	} {
		before := d.s.inventory.normalised
		d.step(Objects{put(t, c.text)})
		if n := d.s.inventory.normalised - before; n != c.want {
			t.Errorf("%d were normalised, want %d:\n%s", n, c.want, c.text)
		}
	}
	e := put(t, clusterService("back", "b", "192.0.2.99"))
	d.step(Objects{e})
	before := d.s.inventory.normalised
	if d.step(Objects{e}); d.s.inventory.normalised-before != 1 {
		t.Errorf("what stays as it was has %d normalised", d.s.inventory.normalised-before)
	}
}
