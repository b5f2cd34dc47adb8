//go:build !race

package plan

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/store/loopback"
	"navarch.io/navarch/store/model"
)

// The regular expressions of a tenant do not occupy a gateway: rules beyond the bound are left out and named, and the
// largest header takes some tenth of a second. Usual expressions stay, however many there are in a usual object.
// Promise: security-gateways.md#regular-expressions
func TestRegexesAreBounded(t *testing.T) {
	rule := func(regex string) string {
		return fmt.Sprintf("- {match: [{headers: {cookie: {regex: '%s'}}}], directResponse: {status: 200}}\n", regex)
	}
	costly, usual := "", ""
	for i := range 20 {
		costly += rule(fmt.Sprintf(`(.*a.{0,30}){20}Z%d`, i))
	}
	for i := range 300 {
		usual += rule(fmt.Sprintf(`^(.*?;)?(user=u%d)(;.*)?$`, i))
	}
	virtualService := func(name, host, rules string) model.Record {
		return rec(t, model.KindVirtualService, name, "hosts: ["+host+"]\ngateways: [edge/front]\nhttp:\n"+rules+
			"- {directResponse: {status: 404}}\n")
	}
	records := []model.Record{virtualService("evil/v", "evil.test", costly), virtualService("shop/v", "shop.test", usual),
		rec(t, model.KindVirtualService, "evil/only", "hosts: [only.test]\ngateways: [edge/front]\nhttp:\n"+rule(`(.*a.{0,30}){20}`)),
		virtualService("evil/both@1", "both.test", costly), virtualService("shop/both@2", "both.test", rule("user=[a-z]+"))}
	p, _, gw := gatewayPlanner(append(records, rec(t, model.KindGateway, "edge/front",
		"{selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}"))...)
	want := map[string]int{"evil.test": 1, "shop.test": 301, "both.test": 2}
	for _, vh := range routesOfSet(t, gw.Set(), "http.80").VirtualHosts {
		if n := len(vh.Routes); n != want[vh.Domains[0]] {
			t.Errorf("%s: %d routes, want %d", vh.Domains[0], n, want[vh.Domains[0]])
		}
	}
	got := problemTexts(p)
	if !strings.Contains(got, "VirtualService evil/only: spec.http[0]: the regular expressions of namespace evil for host only.test") {
		t.Errorf("a host without other rules: problems %.2000s", got)
	}
	if !strings.Contains(got, "VirtualService evil/v: spec.http[0]: the regular expressions of namespace evil for host evil.test") ||
		strings.Contains(got, "VirtualService shop/v") {
		t.Errorf("problems %.2000s", got)
	}

	port := loopback.PortFor(t)
	startGateway(t, routerOf("edge", "gw"), plainServer(port), nil, records...)
	rnd := rand.New(rand.NewPCG(1, 1))
	var cookie strings.Builder
	for range 55_000 {
		cookie.WriteByte("ab"[rnd.IntN(2)])
	}
	for _, host := range []string{"evil.test", "shop.test"} {
		start := time.Now()
		if got := ask(t, dialPort(t, port), get("/", host, "Cookie: "+cookie.String())); got != "404" {
			t.Errorf("%s: %s", host, got)
		}
		if d := time.Since(start); d > 2*time.Second { // 7 s without the bound
			t.Errorf("%s: a request takes %v", host, d)
		}
	}
}
