package view

import (
	"fmt"
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
)

// A workload serves the port of a ServiceEntry of its namespace if the entry has an endpoint at the workload's address
// with that port.
// Promise: security-workloads.md#what-it-says-of-itself
func TestServed(t *testing.T) {
	entry := rec(t, model.KindServiceEntry, "shop/old@2", "{hosts: [old.example.com], ports: [{number: 80, name: http}, {number: 53, name: dns, protocol: PROTOCOL_UDP}, {number: 9000, name: tcp}]}")
	selecting := rec(t, model.KindService, "shop/web@3", "{hosts: [web.shop.svc.cluster.local], selector: {app: web}}")
	at := func(name, address, ports string) model.Record {
		return rec(t, model.KindEndpoints, name, "{hosts: [old.example.com], ports: [{name: http, number: 8080}, {name: dns, number: 53}, {name: tcp, number: 9000}], endpoints: [{address: 192.0.2.9}, {address: '"+address+"', ports: {"+ports+"}}]}")
	}
	const stated, part = "shop/" + model.ServiceEntryPrefix + "old", "shop/" + model.ServiceEntryPrefix + "old:1"
	for name, c := range map[string]struct {
		records  []model.Record
		served   string
		services string
	}{
		"nothing":              {[]model.Record{entry, selecting}, "", "web"},
		"its address":          {[]model.Record{entry, selecting, at(stated, "10.0.0.1", "")}, "80 at 8080, 9000 at 9000", "old web"},
		"a part of a list":     {[]model.Record{entry, at(part, "10.0.0.1", "")}, "80 at 8080, 9000 at 9000", "old"},
		"a port of its own":    {[]model.Record{entry, at(stated, "10.0.0.1", "tcp: 9001")}, "80 at 8080, 9000 at 9001", "old"},
		"its second address":   {[]model.Record{entry, at(stated, "fd00::1", "")}, "80 at 8080, 9000 at 9000", "old"},
		"another's address":    {[]model.Record{entry, at(stated, "10.0.0.2", "")}, "", ""},
		"another namespace":    {[]model.Record{entry, at("other/"+model.ServiceEntryPrefix+"old", "10.0.0.1", "")}, "", ""},
		"endpoints of a slice": {[]model.Record{entry, at("shop/old", "10.0.0.1", "")}, "", ""},
		"no such entry":        {[]model.Record{at(stated, "10.0.0.1", "")}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			node := web()
			node.Addresses = []string{"10.0.0.1", "fd00::1"}
			s := snapshot(c.records...)
			x := NewIndex(s)
			w := x.View(s, node).Workload
			var served, services []string
			for _, p := range w.Served.All() {
				served = append(served, fmt.Sprintf("%d at %d", p.Port, p.Target))
			}
			for _, key := range w.Services.All() {
				services = append(services, key.Name)
			}
			if got := strings.Join(served, ", "); got != c.served {
				t.Errorf("it serves %q, want %q", got, c.served)
			}
			if got := strings.Join(services, " "); got != c.services {
				t.Errorf("services %q, want %q", got, c.services)
			}
			if later := s.Apply(2, []model.Record{at(stated, "10.0.0.2", "")}, nil).New; x.View(later, node) != Of(later, node) {
				t.Error("the view at a later snapshot is that of the one before")
			}
			if node.Kind = Router; Of(s, node).Workload.Served.Len() > 0 {
				t.Error("a gateway serves it")
			}
		})
	}
}
