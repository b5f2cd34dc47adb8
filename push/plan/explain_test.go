package plan

import (
	"fmt"
	"strings"
	"testing"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Each listener of a proxy is explained with the records that caused its traffic, which a refusal of the listener is
// attributed to.
func TestBringersAreExplained(t *testing.T) {
	const db = "db.shop.svc.cluster.local"
	tcp := rec(t, model.KindVirtualService, "shop/db@8", "{hosts: ["+db+"], tcp: [{route: [{destination: {host: "+db+"}}]}]}")
	wild := rec(t, model.KindVirtualService, "shop/wild@9", "{hosts: ['*.shop.svc.cluster.local'], tcp: [{match: [{port: 9000}], route: [{destination: {host: "+db+"}}]}]}")
	dbs, lone, http := svc(t, "shop/db", "10.96.0.3", "tcp:9000:TCP"), svc(t, "shop/lone", "10.96.0.4", "tcp:9000:TCP"),
		svc(t, "shop/web", "10.96.0.1", "http:80:HTTP")
	ingress := sidecarOf(t, "shop/in", `{workloadSelector: {labels: {app: in}}, ingress: [{port: {number: 7000, protocol: TCP, name: in}}],
egress: [{hosts: ['./lone.shop.svc.cluster.local'], port: {number: 1, protocol: WHAT, name: bad}}, {hosts: ['./web.shop.svc.cluster.local'],
  port: {number: 80, protocol: HTTP, name: http}, bind: 127.0.10.1}, {hosts: ['./lone.shop.svc.cluster.local']}]}`)
	p := New(Settings{Snapshot: snapshot(dbs, lone, http, tcp, wild, ingress)})
	plain, own := p.Join(node("shop", "lone-1", "app=lone")), p.Join(node("shop", "in-1", "app=in"))
	for _, c := range []struct {
		of       *Handle
		listener string
		want     string
	}{
		{plain, "10.96.0.3_9000", "Service shop/db, VirtualService shop/db, VirtualService shop/wild"},
		{plain, "10.96.0.4_9000", "Service shop/lone, VirtualService shop/wild"},
		{plain, "0.0.0.0_80", ""}, // each record with HTTP at this port causes the same listener
		{plain, xds.VirtualInbound, "Service shop/lone"},
		{plain, xds.VirtualOutbound, ""},
		{own, "10.96.0.4_9000", "Service shop/lone, VirtualService shop/wild, Sidecar shop/in egress 3"},
		{own, "127.0.10.1_80", "Sidecar shop/in egress 2"},
		{own, xds.VirtualInbound, "Sidecar shop/in"},
	} {
		var objects []string
		for _, spec := range p.Explain(c.of, xds.Listener, c.listener)[1:] {
			b := spec.(TrafficSource)
			if b.Service != nil {
				objects = append(objects, b.Service.Key.String())
			}
			for _, vs := range b.Routes.All() {
				objects = append(objects, vs.Key.String())
			}
			if b.Sidecar != nil {
				objects = append(objects, b.Sidecar.Key.String())
			}
			if b.Egress > 0 {
				objects[len(objects)-1] += fmt.Sprintf(" egress %d", b.Egress)
			}
		}
		if got := strings.Join(objects, ", "); got != c.want {
			t.Errorf("%s of %s: %q, want %q", c.listener, c.of.Node.Name, got, c.want)
		}
	}
}
