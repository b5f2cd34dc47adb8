package normal

import (
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Texts that Envoy copies into headers and logs, or that it refuses, have no control characters.
// Promise: security-gateways.md#make-a-gateway-fail
func TestControlCharacters(t *testing.T) {
	const cookie = "{host: a, trafficPolicy: {loadBalancer: {consistentHash: {httpCookie: "
	for _, c := range []struct{ kind, spec, field string }{
		{"VirtualService", `{hosts: [a], http: [{name: "x\ny", route: [{destination: {host: a}}]}]}`, "spec.http[0].name"},
		{"VirtualService", `{hosts: [a], http: [{match: [{name: "x\u007f"}], route: [{destination: {host: a}}]}]}`, "spec.http[0].match[0].name"},
		{"DestinationRule", cookie + `{name: "a\r\nb", path: /}}}}}`, "spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.name"},
		{"DestinationRule", cookie + `{name: a, path: "/\r\nSet-Cookie: b"}}}}}`, "spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.path"},
		{"DestinationRule", cookie + `{name: a, attributes: [{name: "b\n"}]}}}}}`, "spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.attributes[0].name"},
		{"DestinationRule", cookie + `{name: a, attributes: [{name: b, value: "\r\nc"}]}}}}}`, "spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.attributes[0].value"},
		{"DestinationRule", `{host: a, trafficPolicy: {tls: {mode: SIMPLE, sni: "a\0"}}}`, "spec.trafficPolicy.tls.sni"},
	} {
		r := testNormal.Object(read(t, istio(c.kind, c.spec)), &fake{})
		if !r.Spoiled || !slices.ContainsFunc(r.Problems, func(p object.Problem) bool {
			return p.Field == c.field && p.Severity == problem.Error && strings.Contains(p.Message, "control characters")
		}) {
			t.Errorf("%s: %v", c.field, r.Problems)
		}
	}
	near := testNormal.Object(read(t, istio("DestinationRule", cookie+`{name: a b, path: "/;x", attributes: [{name: b, value: é}]}}}}}`)), &fake{})
	if near.Spoiled {
		t.Error(near.Problems)
	}
}

// Envoy refuses configuration with a duration of 292 years. Longer durations than a century are a century.
// Promise: security-gateways.md#make-a-gateway-fail
func TestLongDurations(t *testing.T) {
	for text, want := range map[string]string{"9223372036s": "3153600000s", "2562047h47m16.854s": "3153600000s", "876000h": "3153600000s",
		"875999h": "3153596400s"} {
		vs := testNormal.Object(read(t, istio("VirtualService", "{hosts: [a], http: [{timeout: "+text+", route: [{destination: {host: a}}]}]}")), &fake{})
		wantBody(t, vs, key(model.KindVirtualService, "x"),
			"{hosts: [a.shop.svc.cluster.local], http: [{timeout: "+want+", route: [{destination: {host: a.shop.svc.cluster.local}}]}], gateways: [mesh], exportTo: [\"*\"]}")
	}
}
