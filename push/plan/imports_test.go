package plan

import (
	"testing"

	"navarch.io/navarch/store/model"
)

// A Sidecar imports the hosts that it lists, and the destinations of the VirtualServices that it imports.
func TestSidecarEgress(t *testing.T) {
	s := snapshot(svc(t, "shop/web", "10.96.0.1", "http:80:HTTP"), svc(t, "data/a", "10.96.0.2", "http:80:HTTP"), svc(t, "data/b", "10.96.0.3", "http:80:HTTP"),
		svc(t, "else/c", "10.96.0.4", "http:80:HTTP"), vsOf(t, "shop/v", web, "b.data.svc.cluster.local", ""))
	for hosts, want := range map[string]string{
		"*/*":                             "80||a.data.svc.cluster.local 80||b.data.svc.cluster.local 80||c.else.svc.cluster.local 80||" + web,
		"./*":                             "80||b.data.svc.cluster.local 80||" + web,
		"data/*":                          "80||a.data.svc.cluster.local 80||b.data.svc.cluster.local",
		"data/a.data.svc.cluster.local":   "80||a.data.svc.cluster.local",
		"*/*.else.svc.cluster.local":      "80||c.else.svc.cluster.local",
		"~/*":                             "",
		"~/*','*/*":                       "",
		"./*','~/*":                       "",
		"shop/web.shop.svc.cluster.local": "80||b.data.svc.cluster.local 80||" + web,
		"data/web.shop.svc.cluster.local": "",
		// The VirtualService of web has the destination b.
		"*/*','~data/*":        "80||b.data.svc.cluster.local 80||c.else.svc.cluster.local 80||" + web,
		"*/*','~data/*','~./*": "80||c.else.svc.cluster.local",
		"*/*','~./*":           "80||a.data.svc.cluster.local 80||b.data.svc.cluster.local 80||c.else.svc.cluster.local",
		"*/*','~shop/web.shop.svc.cluster.local','~*/a.data.svc.cluster.local":  "80||b.data.svc.cluster.local 80||c.else.svc.cluster.local",
		"*/*','~else/*.data.svc.cluster.local','~data/*.else.svc.cluster.local": "80||a.data.svc.cluster.local 80||b.data.svc.cluster.local 80||c.else.svc.cluster.local 80||" + web,
		"data/*','~/*.data.svc.cluster.local":                                   "",
		"~else/*":                                                               "",
	} {
		with := s.Apply(2, []model.Record{sidecarOf(t, "shop/default", "egress: [{hosts: ['"+hosts+"']}]")}, nil).New
		if got := clusterNames(planFor(with, node("shop", "a"))); got != want {
			t.Errorf("egress %s: clusters %s, want %s", hosts, got, want)
		}
	}
}
