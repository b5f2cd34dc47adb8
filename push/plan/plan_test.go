package plan

import (
	"testing"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

func TestShop(t *testing.T) {
	s := snapshot(
		svc(t, "shop/web", "10.96.0.1", "http:80:HTTP"),
		svc(t, "shop/db", "10.96.0.2", "tcp:5432:TCP"),
		svc(t, "data/ratings", "10.96.0.3", "http:80:HTTP", "raw:9000:AUTO"),
		eps(t, "shop/web-1", "{name: http, number: 8080}", "10.1.0.1", "10.1.0.2 v2", "10.1.0.3 v2 !"),
		rec(t, model.KindDestinationRule, "shop/web", "{host: web.shop.svc.cluster.local, subsets: [{name: v2, labels: {version: v2}}]}"),
	)
	set := planFor(s, node("shop", "web-1", "app=web"))
	want := map[xds.Type]string{
		xds.Cluster: "BlackHoleCluster InboundPassthroughCluster PassthroughCluster inbound|180|| outbound|5432||db.shop.svc.cluster.local " +
			"outbound|80|v2|web.shop.svc.cluster.local outbound|80||ratings.data.svc.cluster.local outbound|80||web.shop.svc.cluster.local " +
			"outbound|9000||ratings.data.svc.cluster.local",
		xds.Listener: "0.0.0.0_80 10.96.0.2_5432 10.96.0.3_9000 virtualInbound virtualOutbound",
		xds.Route:    "80 ratings.data.svc.cluster.local:9000",
	}
	for kind, w := range want {
		if got := names(set, kind); got != w {
			t.Errorf("%ss:\n got %s\nwant %s", kind.Noun(), got, w)
		}
	}
	if got := addresses(t, set, "outbound|80||web.shop.svc.cluster.local"); got != "10.1.0.1:8080 10.1.0.2:8080" {
		t.Errorf("endpoints: %s", got)
	}
	if got := addresses(t, set, "outbound|80|v2|web.shop.svc.cluster.local"); got != "10.1.0.2:8080" {
		t.Errorf("endpoints of v2: %s", got)
	}
	if got, want := domains(routesOfSet(t, set, "80")), "ratings.data.svc.cluster.local:80: ratings.data.svc.cluster.local ratings.data ratings.data.svc ratings.data.svc.cluster.local. 10.96.0.3\n"+
		"web.shop.svc.cluster.local:80: web.shop.svc.cluster.local web web.shop web.shop.svc web.shop.svc.cluster.local. 10.96.0.1\nallow_any: *"; got != want {
		t.Errorf("virtual hosts:\n%s\nwant\n%s", got, want)
	}
	if got := domains(routesOfSet(t, set, "ratings.data.svc.cluster.local:9000")); got != "ratings.data.svc.cluster.local:9000: *" {
		t.Errorf("virtual hosts of a sniffed port: %s", got)
	}
}
