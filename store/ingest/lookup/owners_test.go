package lookup

import (
	"net/netip"
	"testing"
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
	if o := u.index.owners; len(o.hosts)+len(o.addresses)+len(o.networks)+len(u.index.addresses.users)+len(u.missing) != 0 {
		t.Errorf("left are %v %v", o, u.missing)
	}
}
