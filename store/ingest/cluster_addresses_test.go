package ingest

import (
	"net/netip"
	"slices"
	"testing"

	"navarch.io/navarch/store/normal"
)

// The addresses of the clusters are those of Services and of running Pods, without removed ones. Addresses that
// configuration states are not among them.
// Promise: security-tenants.md#key-sets
func TestAddressesOfClusters(t *testing.T) {
	d := newDesk(t)
	d.s = NewState(Options{Normal: normal.Options{}})
	d.lead()
	want := func(all ...string) {
		t.Helper()
		for _, text := range []string{"10.96.0.7", "fd00::7", "10.1.1.1", "192.0.2.1", "192.0.2.2"} {
			if has := d.s.inventory.objects.Addresses().Has(netip.MustParseAddr(text)); has != slices.Contains(all, text) {
				t.Errorf("%s is known: %v", text, has)
			}
		}
	}
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: idp, namespace: shop}\nspec: {clusterIP: 10.96.0.7, clusterIPs: [10.96.0.7, 'fd00::7'], ports: [{port: 80}]}"
	const running = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: shop}\nspec: {serviceAccountName: a}\nstatus: {phase: Running, podIP: 10.1.1.1, podIPs: [{ip: 10.1.1.1}]}"
	const ended = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: shop}\nspec: {serviceAccountName: a}\nstatus: {phase: Succeeded, podIP: 10.1.1.1, podIPs: [{ip: 10.1.1.1}]}"
	const stated = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: e, namespace: shop}\n" +
		"spec: {hosts: [e.example], addresses: [192.0.2.1], resolution: STATIC, endpoints: [{address: 192.0.2.2}], ports: [{number: 80, name: http, protocol: HTTP}]}"
	d.step(Objects{put(t, service), put(t, running), put(t, stated), synced})
	want("10.96.0.7", "fd00::7", "10.1.1.1")
	d.step(Objects{put(t, service), put(t, running)})
	want("10.96.0.7", "fd00::7", "10.1.1.1")
	d.step(Objects{put(t, ended), gone(put(t, service))})
	want()
	d.step(Objects{put(t, running)})
	d.step(Objects{gone(put(t, running))})
	want()
}
